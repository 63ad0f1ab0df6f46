// step: step.c, where the program calls kernels on a team of workers.

//@ head(header, sample, statistics, handlers)
$header
//% if handlers.text ~= "" then
$handlers

//% end
#include "model.h"

#include <math.h>

//% if statistics then
#include "runtime/ranks/moments.h"

//% end
#include "kernels.c" /* one translation unit: the compiler sees every size */
//% if sample then
#include "one_row.c" /* the forward pass for --sample */
//% end
#include "probes.c" /* `make probe`: a look at what each call below writes; else nothing */
#include "update.c"

//@ passes(forward, evaluation, backward, buckets, windows, chunked, begins)
/* -- one micro-batch --------------------------------------------------------------------------- */

static void forward(ga_worker *w, model *m, const batch *b) {
    $forward
    ga_barrier(w);
}

//% if chunked then
/* An evaluation: losses and metrics are computed for some rows at a time. */
//% else
/* An evaluation: the losses and the metrics. */
//% end
static void evaluate(ga_worker *w, model *m, const batch *b) {
    forward(w, m, b);
//% if evaluation.text ~= "" then
    $evaluation
    ga_barrier(w);
//% end
}

//% if chunked then
/* The last layer and its losses are computed here, for some rows at a time. The logits of these rows go from
 * the loss straight into the gradients; the whole logits are never in memory.
 *
//% end
//% if windows then
$begins Kernels write the gradients of a micro-step into windows. As soon as a bucket is complete, its sum over the ranks
 * starts; the first micro-step of a cycle (GA_ONLY, GA_FIRST) writes this rank's part of it, all others (GA_NEXT,
 * GA_LAST) add to it, so nothing is ever set to zero. */
//% elseif buckets > 0 then
$begins The first micro-step of a cycle (GA_ONLY, GA_FIRST) writes the gradients. All others (GA_NEXT, GA_LAST)
 * add to them, each kernel to those that it computes, so nothing is ever set to zero. The last micro-step
 * (GA_ONLY, GA_LAST) starts the sum of each bucket over the ranks as soon as the bucket is complete. */
//% else
$begins The first micro-step of a cycle (GA_ONLY, GA_FIRST) writes the gradients. All others (GA_NEXT, GA_LAST)
 * add to them, each kernel to those that it computes, so nothing is ever set to zero. */
//% end
static void backward(ga_worker *w, model *m, const batch *b, ga_role role) {
    $backward
    ga_barrier(w);
}

//@ micro(batch)
/* The micro-batch that begins at `at`. */
static batch batch_of(const char *at) {
    return (batch){
        $batch
    };
}

static batch batch_at(const model *m, int k) { return batch_of(ga_loader_field(m->loader, k, 0)); }

static void micro(ga_worker *w, model *m, int k, ga_role role) {
    const batch b = batch_at(m, k);
    forward(w, m, &b);
    backward(w, m, &b, role);
}

//@ cycles(functions)
/* -- cycles ------------------------------------------------------------------------------------ */

$functions

//@ bodies()
typedef struct micro_call {
    model *m;
    int k;
    ga_role role;
} micro_call;

static void micro_step(ga_worker *w, void *arg) {
    const micro_call *call = arg;
    micro(w, call->m, call->k, call->role);
}

static void boundary_step(ga_worker *w, void *arg) { boundary(w, arg); }

static void refresh_step(ga_worker *w, void *arg) { pack_views(w, arg); }

static void evaluate_step(ga_worker *w, void *arg) {
    model *m = arg;
    const batch b = batch_of(m->eval_batch);
    evaluate(w, m, &b);
}


//@ run_team()
/* Runs body on the team; an error of worker 0 is in m->error. */
static int run_team(model *m, void (*body)(ga_worker *, void *), void *arg, ga_err *e) {
    const int code = ga_team_run(m->team, body, arg);
    if (code < 0) *e = m->error;
    return code;
}

/* Counts the cycle and clears its sums. */
static int commit(model *m, ga_err *e) {
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
    return ga_cycle_commit(&m->count, !m->step.skip, e);
}

//@ model(name, cycle_cases)
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
    GA_TRY(run_team(m, micro_step, &call, e));
    return ga_cycle_micro_done(&m->count, e);
}

int $(name)_model_boundary(model *m, ga_err *e) {
    GA_TRY(run_team(m, boundary_step, m, e));
    return commit(m, e);
}

int $(name)_model_refresh(model *m, ga_err *e) { return run_team(m, refresh_step, m, e); }

//@ averages(name, sharded, filed, average, gathers)
static void exchange_step(ga_worker *w, void *arg) {
    model *m = arg;
//% if filed then
    for (const range *r = m->swept.all.first; r < m->swept.all.end; r++) {
        if (!state_need(w, m, r, 1u << $average)) return; /* the averages alone */
        exchange(w, r, 0, m->flat_w, m->state_ema);
    }
    state_finish(w, m);
    ga_barrier(w);
    if (ga_team_status(w) < 0) return;
//% elseif sharded then
    for (const range *r = m->own.all.first; r < m->own.all.end; r++) exchange(w, r, 0, m->flat_w, m->state_ema);
//% else
    exchange(w, &RANGES.all, 0, m->flat_w, m->state_ema);
//% end
//% if gathers then
    ga_barrier(w);
    parameters_gather(w, m);
//% end
    ga_barrier(w);
    pack_views(w, m);
}

int $(name)_model_exchange(model *m, ga_err *e) { return run_team(m, exchange_step, m, e); }


//@ evaluations(name)
int $(name)_model_evaluate_batch(model *m, ga_err *e) { return run_team(m, evaluate_step, m, e); }

//@ library(name)
#include "library.c" /* `make lib`: $(name).h; else nothing */
