/* drive.h: drives an emitted f64 program named "probe": sets parameters and batches, runs the roles of
 * one cycle, reads loss and gradient. */
#ifndef DRIVE_H
#define DRIVE_H

#include "model.h"

_Static_assert(sizeof(real) == sizeof(double), "the checks need a program of precision f64");

/* One tensor: a parameter, or one iteration of a parameter of a region. */
typedef struct tensor {
    char name[GA_NAME_MAX];
    int64_t at, n; /* elements at .. at + n - 1 of the flat space */
    bool trained;  /* has a gradient; else the loss must not depend on it */
} tensor;

int drive_tensors(const model *m); /* number of tensors */
tensor drive_tensor(const model *m, int i);

/* Opens the program with the batches of one cycle, filled from `seed`: inputs in [-1.5, 1.5],
 * targets and ids 0..classes-1, one target in seven IGNORE; the initial values of parameters are moved by up
 * to 0.25. Rows depend on their number in the cycle, not on how many rows a micro-step has. */
int drive_open(model *m, int threads, uint64_t seed, int classes, ga_err *e);

/* A number in [-1, 1), a function of its arguments. */
double drive_random(uint64_t seed, uint64_t index);

/* Mean loss of the cycle at the present parameters. */
int drive_loss(model *m, double *loss, ga_err *e);

/* Runs the A micro-steps with their roles; flat_g then holds the gradient of the mean loss. Gradients
 * and activations are filled with NaN first, so that a read of an old value is found. */
int drive_gradient(model *m, ga_err *e);

/* Runs the program's own cycle with its boundary, which updates the parameters. */
int drive_cycle(model *m, ga_err *e);

/* Runs one boundary with the gradient in flat_g, as if the cycle had its full weight and loss 0. */
int drive_boundary(model *m, ga_err *e);

/* Runs only the update kernel over [from, to), with the scalars of the last boundary; for programs with one
 * parameter group, compiled with -DSTATE_ARRAYS="m->state_buf + from" (all state arrays, separated by
 * commas). */
int drive_sweep(model *m, int64_t from, int64_t to, ga_err *e);

#endif
