/* probe.h: checks of `train-probe` after each kernel call: dumps values to files, finds the first
 * non-finite one, compares times with the plan. `train` has none of this. The memory is a separate arena
 * outside the plan. */
#ifndef GA_PROBE_H
#define GA_PROBE_H

#include "base/arena.h"
#include "files/safetensors.h"

/* A kernel, with the plan's figures for one call. */
typedef struct ga_probe_kernel {
    const char *name, *at; /* at: its place in the spec */
    double flops, bytes;
} ga_probe_kernel;

/* One result of a kernel: its index in `tensors`, its iteration of a region, its elements in host
 * memory. */
typedef struct ga_probe_value {
    int tensor, iteration;
    const void *at;
} ga_probe_value;

typedef struct ga_probe_config {
    const ga_probe_kernel *kernels;
    const ga_param *tensors; /* offset and stride: as if the tensors followed each other in memory */
    int kernel_count, tensor_count;
    int dumped;        /* how many tensors, from the first, every micro-step computes */
    ga_dtype dtype;    /* of all tensors: GA_F32 or GA_F64 */
    const char *dump;  /* NULL, or the folder for micro-K.safetensors of the first cycle */
    bool check_finite; /* stop at the first value that is not finite */
    bool profile;      /* measure time */
    int rank;          /* above 0: files are named micro-K-rankR.safetensors */
} ga_probe_config;

typedef struct ga_probe ga_probe;

/* GA_INPUT if the folder cannot be made. */
int ga_probe_open(ga_probe **out, const ga_probe_config *c, ga_err *e);
void ga_probe_close(ga_probe *p); /* NULL allowed */

/* Begins micro-step k of cycle `cycle`, after `micro` micro-steps of the run; k < 0: the calls that follow
 * lie between micro-steps. In the first cycle it begins a new file. */
int ga_probe_micro(ga_probe *p, int64_t cycle, int64_t micro, int k, ga_err *e);

/* Called around a kernel call by one thread while no other thread runs a kernel. p may be NULL. */
void ga_probe_begin(ga_probe *p);
void ga_probe_end(ga_probe *p, int kernel);

/* Counts a call of a kernel that took so long by another clock. */
void ga_probe_took(ga_probe *p, int kernel, double seconds);

/* Whether results are to be passed to ga_probe_see; false after the first non-finite one. NULL allowed. */
bool ga_probe_wants(const ga_probe *p);

/* Takes one result of the kernel that has just run. GA_NONFINITE names tensor, element, kernel, micro-step. */
int ga_probe_see(ga_probe *p, int kernel, const ga_probe_value *v, ga_err *e);

/* Buffer for the largest tensor: a program with a device copies results there. */
void *ga_probe_room(ga_probe *p);

/* Prints the profile to stdout: one line per kernel that ran, longest first. GA_ENVIRONMENT if it could not
 * be written whole. */
int ga_probe_report(const ga_probe *p, ga_err *e);

#endif
