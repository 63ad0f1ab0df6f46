/* probe.h: what `train-probe` sees after each kernel call: values into files, the first one that is not
 * finite, time against the plan. `train` has none of it. Memory is an arena of its own, outside the
 * plan. */
#ifndef GA_PROBE_H
#define GA_PROBE_H

#include "base/arena.h"
#include "files/safetensors.h"

/* Name, and the plan's numbers for one call. */
typedef struct ga_probe_kernel {
    const char *name, *at; /* at: where in the spec it comes from */
    double flops, bytes;
} ga_probe_kernel;

/* A result of a kernel: its index in `tensors`, the iteration it belongs to, its n elements in host
 * memory. */
typedef struct ga_probe_value {
    int tensor, iteration;
    const void *at;
} ga_probe_value;

typedef struct ga_probe_config {
    const ga_probe_kernel *kernels;
    const ga_param *tensors; /* offset and stride: as if they lay one behind the other */
    int kernel_count, tensor_count;
    int dumped;        /* the first so many tensors are results of every micro-step */
    ga_dtype dtype;    /* of all tensors: GA_F32 or GA_F64 */
    const char *dump;  /* NULL, or the folder for DIR/micro-K.safetensors of the first cycle */
    bool check_finite; /* stop at the first value that is not finite */
    bool profile;      /* measure time */
    int rank;          /* above 0: files are called micro-K-rankR.safetensors */
} ga_probe_config;

typedef struct ga_probe ga_probe;

/* GA_INPUT if the folder cannot be made. */
int ga_probe_open(ga_probe **out, const ga_probe_config *c, ga_err *e);
void ga_probe_close(ga_probe *p); /* NULL allowed */

/* A micro-step begins: number k of cycle `cycle`, `micro` before it; k < 0: what follows is between
 * micro-steps. A new file is begun in the first cycle seen. */
int ga_probe_micro(ga_probe *p, int64_t cycle, int64_t micro, int k, ga_err *e);

/* Around a kernel call, by one thread, while no other is inside a kernel. p may be NULL in both. */
void ga_probe_begin(ga_probe *p);
void ga_probe_end(ga_probe *p, int kernel);

/* Whether values are wanted now; false after the first that was not finite. NULL allowed. */
bool ga_probe_wants(const ga_probe *p);

/* One result of a kernel that has just run. GA_NONFINITE names tensor, element, kernel, micro-step. */
int ga_probe_see(ga_probe *p, int kernel, const ga_probe_value *v, ga_err *e);

/* Room for the largest tensor: where a program with a device puts what it reads back. */
void *ga_probe_room(ga_probe *p);

/* The profile, one line per kernel that ran, longest first, to stdout. */
void ga_probe_report(const ga_probe *p);

#endif
