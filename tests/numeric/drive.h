/* drive.h: drives an emitted f64 program named "probe": sets parameters and batches, runs the roles of
 * one cycle, reads loss and gradient. drive.c is compiled with the program; nothing here depends on it. */
#ifndef DRIVE_H
#define DRIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/ga.h"
#include "runtime/files/layout.h"

typedef struct model model;

/* One tensor: a parameter, or one iteration of a parameter of a region. */
typedef struct tensor {
    char name[GA_NAME_MAX];
    int64_t at, n; /* elements at .. at + n - 1 of the flat space */
    bool trained;  /* has a gradient; else the loss must not depend on it */
} tensor;

/* The scalars of the last boundary. */
typedef struct scalars {
    double nominal, weight, grad_norm, factor, lr;
} scalars;

model *drive_model(void); /* the only one; closed by drive_close */
void drive_close(model *m);
int64_t drive_trained(void); /* elements of the flat space with a gradient: the first ones */
int drive_states(void);      /* arrays of optimizer state */

double *drive_weights(model *m);
double *drive_gradients(model *m);
double *drive_state(model *m, int i);
const char *drive_suffix(const model *m, int i); /* name of state i, behind a dot */
scalars drive_scalars(const model *m);

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

/* Tells the schedule a metric; the rate of the next update. For programs compiled with -DREPORTS. */
int drive_report(model *m, double metric, double *lr, ga_err *e);

#endif
