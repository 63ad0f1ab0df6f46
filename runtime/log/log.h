/* log.h: output of training: text lines of figures on stdout, JSON lines in a file, messages on stderr.
 * On a terminal a progress line replaces the lines of updates (progress.h). Only rank 0 prints. A closed
 * or full output is reported once and never stops training. No allocation after open. */
#ifndef GA_LOG_H
#define GA_LOG_H

#include "base/arena.h"

typedef struct ga_log ga_log;

/* Flags of the optional fields of an event that are set; the others are not printed. */
enum {
    GA_HAS_MOMENTUM = 1,
    GA_HAS_GRAD_NORM = 2,
    GA_HAS_SCALE = 4,
    GA_HAS_TOKENS = 8
};

typedef struct ga_start_event {
    const char *program, *version, *spec_sha256, *target, *profile;
    const char *resumed_from; /* NULL: a fresh start */
    int ranks, threads;
    const char *threads_why; /* what has decided their number */
    int64_t parameters, planned_bytes;
    uint64_t seed;
    int64_t overfit; /* 0: all micro-batches */
} ga_start_event;

typedef struct ga_update_event {
    int fields; /* GA_HAS_MOMENTUM | GA_HAS_GRAD_NORM | GA_HAS_SCALE | GA_HAS_TOKENS; the loss is
                   always set */
    int64_t cycle, cycles; /* cycles: the last cycle of training, for the text line */
    int64_t update, micro, epoch, rows;
    double loss, lr, momentum, grad_norm, scale;
    int64_t skipped; /* updates skipped so far */
    double weight, ms, rows_per_s, tokens_per_s;
    int64_t collectives, comm_bytes; /* of this cycle */
} ga_update_event;

enum { GA_METRICS = 17 }; /* metrics of an evaluation at most */

typedef struct ga_metric {
    const char *name; /* NULL: there is no metric in this place and behind it */
    double value;
    bool share;  /* a part of 1: lines of text show four digits behind the point */
    bool hidden; /* measured for the schedule alone: not in the log */
} ga_metric;

typedef struct ga_eval_event {
    int64_t cycle, rows;
    const char *split; /* the rows: "eval", or "train" of a program without rows for evaluation */
    ga_metric metrics[GA_METRICS];
    bool best; /* the best so far */
} ga_eval_event;

/* An edited kernels.c. */
typedef struct ga_kernels_event {
    int64_t cycle, update;
    const char *sha256;     /* of its text */
    bool taken;
    const char *result;     /* "equal", "rounded", "differs" or "failed" */
    const char *reason;     /* of "failed", else NULL */
    const char *kernel, *element; /* of a difference, or NULL */
    double before, after, most;
} ga_kernels_event;

/* Counters of a device at the end of a run. */
typedef struct ga_device_use {
    const char *name;
    int arch; /* 90 = sm_90 */
    int64_t graph_launches, graph_kernels, kernel_launches; /* kernel_launches: outside graphs */
    int64_t device_bytes, pinned_bytes;                     /* allocated */
} ga_device_use;

size_t ga_log_bytes(void); /* taken from the arena: 8192 */

/* path: file to append JSON lines to, GA_INPUT if it holds something else; NULL: none. A file that is removed is
 * written again. quiet: neither text lines nor progress. rank > 0: no output at all. */
int ga_log_open(ga_log **out, const char *path, bool quiet, int rank, ga_arena *a, ga_err *e);
void ga_log_close(ga_log *l); /* NULL allowed */

/* GA_ENVIRONMENT if a line was lost, for what does nothing but write. */
int ga_log_whole(const ga_log *l, ga_err *e);

/* Draws the losses as a curve above the progress line. Says so where there is no such line. */
void ga_log_plot(ga_log *l);

void ga_log_start(ga_log *l, const ga_start_event *v);
void ga_log_update(ga_log *l, const ga_update_event *v);
void ga_log_eval(ga_log *l, const ga_eval_event *v);

/* The value of a metric of the evaluation; NAN: there is none of this name. */
double ga_eval_value(const ga_eval_event *v, const char *name);

void ga_log_checkpoint(ga_log *l, int64_t cycle, const char *path, double ms);

void ga_log_kernels(ga_log *l, const ga_kernels_event *v);

void ga_log_device(ga_log *l, const ga_device_use *v);

/* Bytes of the file with the optimizer's state, and what this start has read and written of it. */
void ga_log_state_file(ga_log *l, int64_t bytes, int64_t read, int64_t written);

/* reason: "done", "patience", "signal", "nonfinite" or "error". */
void ga_log_end(ga_log *l, int64_t cycle, int64_t update, int64_t skipped, const char *reason);

/* Prints `iteration K, first N elements of P: v, v, ...` to stdout, also when quiet. */
void ga_log_watch(ga_log *l, int64_t iteration, const char *name, const void *values, ga_dtype t,
                  int n);

#endif
