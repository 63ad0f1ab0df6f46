//@ types(header, guard, name, upper, accumulate, fields, full_batches, measured, formulas)
$header
#ifndef $guard
#define $guard

#include "runtime/base/ga.h"

/* "$name" for a loop of your own: `make lib`, then link lib$name.a; example.c is one. Functions return 0
 * or more, or a negative ga_status with the text in e: GA_INPUT where a pointer is NULL that may not be. After
 * any failure the object can still be saved and closed. Each rank calls the same functions in the same order,
 * from the thread that opened it. A child by fork() has none of the model's memory. */
typedef struct $name $name;

//% if full_batches then
/* One micro-batch of B rows, in host memory, or fewer where nothing is trained. */
//% else
/* One micro-batch of up to B rows, in host memory; rows < B: the rest has weight 0. */
//% end
typedef struct $(name)_batch {
    $fields
    int rows;
} $(name)_batch;

/* All zero: what the spec says, and no files. */
typedef struct $(name)_options {
    const char *data;       /* folder of the data */
    const char *checkpoint; /* folder for save without one */
    const char *resume;     /* "latest" (of `checkpoint`, else of the runs of train), a run or a path */
    const char *init;       /* .safetensors with the parameters */
    const char *fresh;      /* of init: globs of parameters that keep their initial values, as --fresh has them */
    const char *log;        /* file for JSON lines */
    int threads, quiet;
    uint64_t seed;          /* at most 2^63 - 1; 0: that of the spec */
} $(name)_options;

/* Sums: add them over batches and ranks, then divide. correct: largest logit is the target's, where
 * eval.metrics has accuracy or f1; tp, fp, fn: found, wrongly found and missed of class 1, where it has f1.
$formulas */
typedef struct $(name)_metrics {
    double loss_sum, weight;
    int64_t rows, counted, correct, tp, fp, fn;
    $measured
} $(name)_metrics;

typedef struct $(name)_counters {
    int64_t micro, cycle, update, skipped, epoch;
    int64_t rows;                      /* of the last cycle, over all ranks */
    int r, accumulate;                 /* micro-steps of the present cycle: done, and in all */
    double loss, grad_norm, lr, scale; /* of the last cycle; loss: NaN where no target counted */
    int64_t collectives, comm_bytes;   /* so far */
} $(name)_counters;

enum { $(upper)_ACCUMULATE = $accumulate, $(upper)_HANDLES_GRADIENT_ACCUMULATION = 1 };

//@ functions(name, half_sums, scattered, handles, grouped, collective)
/* o may be NULL. On failure *m is NULL. Collective, as close is, which takes NULL. */
int $(name)_open($name **m, const $(name)_options *o, ga_err *e);
void $(name)_close($name *m);

/* The spec's own data: 1 and a micro-batch, valid until the next call; 0 once at the end of an epoch. A
 * tail that is dropped is not served; with "flush" the caller then calls flush. */
int $(name)_next($name *m, $(name)_batch *b, ga_err *e);

/* Forward and backward of one micro-step. One more than the cycle has is an error: call step.$collective */
int $(name)_backward($name *m, const $(name)_batch *b, ga_err *e);
/* The same from the gradient of the model's output, as laid out there: divided by no weight, multiplied by the
 * scale of the loss where there is one. Targets may be NULL. A cycle has micro-steps of one of the two kinds. */
int $(name)_backward_by_grad($name *m, const $(name)_batch *b, const float *d_output, ga_err *e);

bool $(name)_accumulation_boundary(const $name *m); /* nothing is accumulated: r == 0 */
bool $(name)_should_step(const $name *m);           /* the cycle is full: r == accumulate */

/* Handlers, clip, update, schedule. Before the cycle is full: 0, and nothing happens; else 1 if the update
 * was applied, 2 if it was skipped. Collective in a full cycle. */
int $(name)_step($name *m, ga_err *e);
/* step with what there is, divided by its true weight; 0 if there is nothing. Collective. */
int $(name)_flush($name *m, ga_err *e);
void $(name)_zero_grad($name *m); /* nothing to do: the first micro-step writes */
void $(name)_discard($name *m);   /* drops the partial cycle */
/* A whole cycle of the spec's own data: 1, or 0 at the end of training; it may have been skipped, as count says.
 * Only where nothing is accumulated, and next has given all micro-batches of its cycle. */
int $(name)_cycle($name *m, ga_err *e);

/* The rate of a group in update 1, 2, ..., before layer_decay; 0 for any other number. A schedule by epoch, or with
 * on_skip = "advance", counts cycles: skipped updates too. */
double $(name)_lr(const $name *m, int group, int64_t update);
int $(name)_report($name *m, double metric, ga_err *e);       /* for schedules that watch a metric */

//% if not handles then
/* Here there can be none, since no rank has whole gradients: GA_INPUT. */
//% elseif half_sums then
/* Called at boundaries only, by one thread: mean gradients as bf16, the upper 16 bits of an f32, before clipping, in
 * place. A negative return ends the step. NULL: none. */
//% else
/* Called at boundaries only, by one thread, when gradients are summed over the ranks: mean gradients,
 * before clipping, in place; their weight is one more small sum. A negative return ends the step. NULL: none. */
//% end
//% if grouped then
/* A rank sees what its update takes: the mean or the sum over its own list, by the spec's handlers. All ranks set one, or
 * none, and those of a list change a gradient alike. */
//% end
//% if scattered and handles then
/* Each rank has the sums of its own part of the gradients, and gathers all of them for a handler: so all ranks set one,
 * or none. */
//% end
//% if handles then
/* A handler may read the model and use the collectives. It may not train, measure, save or load: these calls are
 * refused, and discard does nothing. */
//% end
typedef int $(name)_handler(void *context, ga_tensor *gradients, int n, ga_err *e);
int $(name)_set_gradient_handler($name *m, $(name)_handler *f, void *context);

//@ measures(name, groups, divided)
//% if divided then
/* The parameters are divided over the ranks and gathered before they are used. So the micro-steps above and all that
 * follows up to load_state_dict are collective, with a batch of each rank, which may have 0 rows. */

//% end
/* Without training: nothing random, nothing accumulated. Where the optimizer keeps averages of the parameters
 * (ema), these are measured, as in the program's own evaluations. out of predict: the model's output, whole. */
int $(name)_validation_step($name *m, const $(name)_batch *b, $(name)_metrics *out, ga_err *e);
int $(name)_predict_step($name *m, const $(name)_batch *b, float *out, ga_err *e);
/* As predict, always of the parameters themselves: the output that d_output of backward_by_grad belongs to, but for
 * dropout, and batchnorm by the statistics of the micro-batch, which that has and this has not. */
int $(name)_forward_step($name *m, const $(name)_batch *b, float *out, ga_err *e);
int64_t $(name)_output_elements(const $name *m); /* of predict's out and of d_output */

/* Every parameter as f32, one after the other, in memory that is valid inside the call; fill may change it.
//% if divided then
 * A negative return ends the walk; what load_state_dict has passed before is changed. All ranks fill in the same. With
 * ema these are not the averages; those of what fill changes begin again from there. */
//% else
 * A negative return ends the walk, and with load_state_dict nothing is changed. With ema these are not the
 * averages; those of what fill changes begin again from there. */
//% end
int $(name)_state_dict($name *m, bool rank_zero_only, int (*visit)(void *context, const ga_tensor *t),
                       void *context, ga_err *e);
int $(name)_load_state_dict($name *m, int (*fill)(void *context, ga_tensor *t), void *context, ga_err *e);
/* Also inside a cycle, but not of a full one before its step, nor of one with rows of $(name)_next and others; folder
 * NULL: of the options. */
int $(name)_save($name *m, const char *folder, ga_err *e);
int $(name)_load($name *m, const char *path, ga_err *e);   /* a partial cycle is dropped before */

int $(name)_all_gather($name *m, const void *in, void *out, size_t n, ga_dtype t, ga_err *e); /* by rank */
int $(name)_reduce($name *m, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e); /* to -1: all */
int $(name)_broadcast($name *m, void *buf, size_t bytes, int from, ga_err *e);
//% if groups then
/* The number of a group of parallel.groups, 0 for all ranks (name NULL), or GA_INPUT. The same over the ranks of the own
 * list of a group; `to` and `from` are places in the list. */
int $(name)_group(const $name *m, const char *name);
int $(name)_all_gather_in($name *m, int group, const void *in, void *out, size_t n, ga_dtype t, ga_err *e);
int $(name)_reduce_in($name *m, int group, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e);
int $(name)_broadcast_in($name *m, int group, void *buf, size_t bytes, int from, ga_err *e);
//% end
/* The least n over the ranks, 0 <= n < 2^53: how many micro-batches all of them have, in a loop over data of one's own.
 * Negative: a failure. */
int64_t $(name)_least($name *m, int64_t n, ga_err *e);
int $(name)_rank(const $name *m);
int $(name)_world(const $name *m);
int $(name)_root_device(const $name *m); /* -1: the CPU */
const $(name)_counters *$(name)_count($name *m);

#endif
