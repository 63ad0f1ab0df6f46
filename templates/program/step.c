//@ step(header, name, batch, forward, evaluation, backward, view_calls, sweep_calls, lr, scalars, cycle_functions, cycle_cases, micro_functions, micro_cases, buckets, bucket_rows, small, by_sum, clip, skip, t)
$header
#include "model.h"

#include <math.h>

#include "runtime/stop.h"

#include "kernels.c" /* one translation unit: the compiler sees every size */
#ifdef GA_PROBES
#include "probes.c" /* `make probe`: a look at what each call below writes */
#endif

/* -- one micro-batch --------------------------------------------------------------------------- */

static void forward(ga_worker *w, model *m, const batch *b) {
    $forward
    ga_barrier(w);
}

/* After forward: what an evaluation measures beside the loss. */
static void measure(ga_worker *w, model *m, const batch *b) {
    $evaluation
    ga_barrier(w);
}

//% if buckets > 0 then
/* Buckets of the gradient: offset and elements. Only the last micro-step of a cycle starts them. */
static const struct { int64_t offset, n; } BUCKETS[$buckets] = {
    $bucket_rows
};

static void bucket_start(ga_worker *w, model *m, int i) {
    ga_barrier(w);
    if (w->index != 0) return;
    const int code = ga_comm_start(m->comm, i, m->flat_g + BUCKETS[i].offset, (size_t)BUCKETS[i].n, REAL,
                                   &m->error);
    if (code < 0) ga_team_fail(w, code);
}

static void buckets_finish(ga_worker *w, model *m) {
    for (int i = 0; i < $buckets && w->index == 0; i++) {
        const int code = ga_comm_wait(m->comm, i, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

//% end
$backward

/* The micro-batch that begins at `at`. */
static batch batch_of(const char *at) {
    return (batch){
        $batch
    };
}

static batch batch_at(const model *m, int k) { return batch_of(ga_loader_field(m->loader, k, 0)); }

$micro_functions

/* -- the boundary ------------------------------------------------------------------------------ */

/* Copies that kernels read; constant over a cycle, so made once per update. */
static void pack_views(ga_worker *w, model *m) {
    $view_calls
    ga_barrier(w);
}

$lr

/* Worker 0, in double: what the update is to be. A skipped update changes neither parameters nor
 * optimizer state nor the schedule. */
static int decide(model *m, ga_err *e) {
    step *s = &m->step;
    double squares = 0;
    s->nonfinite = 0;
    for (int i = 0; i < NORM_TILES; i++) {
        squares += m->partials[2 * i];
        s->nonfinite += m->partials[2 * i + 1];
    }
    $small
    s->weight = sums[SUM_WEIGHT];
    s->rows = sums[SUM_ROWS];
//% if by_sum then
    s->loss = sums[SUM_LOSS];
    const double mean = 1; /* the sum of the losses is what is minimised */
//% else
    s->loss = sums[SUM_LOSS] / s->weight;
    const double mean = s->weight > 0 ? m->nominal / s->weight : 0; /* exactly 1 for full cycles */
//% end
    s->grad_norm = sqrt(squares) * mean;
    s->skip = $skip;
//% if clip.text ~= "" then
    double factor = mean;
    $clip
    s->factor = (real)factor;
//% else
    s->factor = (real)mean;
//% end
    const int64_t t = $t;
    s->lr = $(name)_model_lr(m, t);
    $scalars
    return 0;
}

static void boundary(ga_worker *w, model *m) {
    ga_barrier(w);
//% if buckets > 0 then
    buckets_finish(w, m);
//% end
    gradient_partials(w, m->partials, m->flat_g);
    ga_barrier(w);
    if (w->index == 0) {
        const int code = decide(m, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
    if (ga_team_status(w) < 0 || m->step.skip) return;
    $sweep_calls
    ga_barrier(w);
    pack_views(w, m);
}

/* -- cycles ------------------------------------------------------------------------------------ */

$cycle_functions

typedef struct micro_call {
    model *m;
    int k;
    ga_role role;
} micro_call;

static void micro_step(ga_worker *w, void *arg) {
    const micro_call *call = arg;
    switch (call->role) {
    $micro_cases
    default: break;
    }
}

static void boundary_step(ga_worker *w, void *arg) { boundary(w, arg); }

static void refresh_step(ga_worker *w, void *arg) { pack_views(w, arg); }

static void evaluate_step(ga_worker *w, void *arg) {
    model *m = arg;
    const batch b = batch_of(m->eval_batch);
    forward(w, m, &b);
    measure(w, m, &b);
}

/* Runs body on the team; an error of worker 0 is in m->error. */
static int run(model *m, void (*body)(ga_worker *, void *), void *arg, ga_err *e) {
    const int code = ga_team_run(m->team, body, arg);
    if (code < 0) *e = m->error;
    return code;
}

/* Counts the cycle and clears its sums. */
static int commit(model *m, ga_err *e) {
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
    return ga_cycle_commit(&m->count, !m->step.skip, e);
}

int $(name)_model_cycle(model *m, int r, ga_err *e) {
    GA_TRY(ga_cycle_begin(&m->count, r, e));
    switch (r) {
    $cycle_cases
    }
    for (int k = 0; k < r; k++) GA_TRY(ga_cycle_micro_done(&m->count, e));
    return commit(m, e);
}

int $(name)_model_micro(model *m, int k, ga_err *e) {
    micro_call call = {m, k, ga_cycle_role(&m->count)};
    GA_TRY(run(m, micro_step, &call, e));
    return ga_cycle_micro_done(&m->count, e);
}

int $(name)_model_boundary(model *m, ga_err *e) {
    GA_TRY(run(m, boundary_step, m, e));
    return commit(m, e);
}

int $(name)_model_refresh(model *m, ga_err *e) { return run(m, refresh_step, m, e); }

int $(name)_model_evaluate_batch(model *m, ga_err *e) { return run(m, evaluate_step, m, e); }
