//@ head(header, kernels, tensors, sizes)
$header
#ifdef GA_PROBES
#include "probes.h"

#include "runtime/log/probe.h"

enum { $sizes };

/* Kernels in the order of the program, with the plan's operations and bytes of one call. */
static const ga_probe_kernel KERNEL_PROBES[PROBED_KERNELS] = {
    $kernels
};

/* What they write; those of an evaluation alone at the end. */
static const ga_param RESULTS[RESULT_COUNT] = {
    $tensors
};

//@ numbers(halves, half)
static const bool IS_HALF[RESULT_COUNT] = {$halves};

/* The elements of a result as numbers, in the room of the probes, where they may lie already. */
static const void *numbers(model *m, int tensor, const void *at) {
    if (!IS_HALF[tensor]) return at;
    char *room = ga_probe_room(m->probe);
    for (int64_t i = RESULTS[tensor].n; i-- > 0;) {
        $half stored;
        memcpy(&stored, (const char *)at + sizeof stored * (size_t)i, sizeof stored);
        const real number = $(half)_widen(stored);
        memcpy(room + sizeof number * (size_t)i, &number, sizeof number);
    }
    return room;
}

//@ device(half)
typedef struct result {
    int tensor, iteration;
    ga_address at;
} result;

static void probe_begin(queue *q, model *m) {
    if (m->probe && q->code == 0) q->code = ga_device_sync(q->device, q->stream, q->e);
    ga_probe_begin(m->probe);
}

static void probe_end(queue *q, model *m, int kernel, const result *r) {
    if (m->probe && q->code == 0) q->code = ga_device_sync(q->device, q->stream, q->e);
    ga_probe_end(m->probe, kernel);
    for (; r->tensor >= 0 && q->code == 0 && ga_probe_wants(m->probe); r++) {
        void *room = ga_probe_room(m->probe);
//% if half then
        const size_t bytes = (size_t)RESULTS[r->tensor].n * (IS_HALF[r->tensor] ? sizeof($half) : sizeof(real));
//% else
        const size_t bytes = (size_t)RESULTS[r->tensor].n * sizeof(real);
//% end
        q->code = ga_device_download(q->device, room, r->at, bytes, q->e);
//% if half then
        const ga_probe_value v = {r->tensor, r->iteration, numbers(m, r->tensor, room)};
//% else
        const ga_probe_value v = {r->tensor, r->iteration, room};
//% end
        if (q->code == 0) q->code = ga_probe_see(m->probe, kernel, &v, q->e);
    }
}

#define PROBED(kernel, call, ...) \
    (probe_begin(q, m), call, probe_end(q, m, kernel, (const result[]){__VA_ARGS__}))

//@ host(half)
static void probe_begin(ga_worker *w, model *m) {
    ga_barrier(w);
    if (w->index == 0) ga_probe_begin(m->probe);
}

static void probe_end(ga_worker *w, model *m, int kernel, const ga_probe_value *v) {
    ga_barrier(w);
    if (w->index == 0) ga_probe_end(m->probe, kernel);
    for (; w->index == 0 && v->tensor >= 0 && ga_probe_wants(m->probe); v++) {
//% if half then
        const ga_probe_value seen = {v->tensor, v->iteration, numbers(m, v->tensor, v->at)};
        const int code = ga_probe_see(m->probe, kernel, &seen, &m->error);
//% else
        const int code = ga_probe_see(m->probe, kernel, v, &m->error);
//% end
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

#define PROBED(kernel, call, ...) \
    (probe_begin(w, m), call, probe_end(w, m, kernel, (const ga_probe_value[]){__VA_ARGS__}))

//@ functions(name, macros)
int $(name)_probe_open(model *m, const ga_options *o, ga_err *e) {
    return ga_probe_open(&m->probe, &(ga_probe_config){
        .kernels = KERNEL_PROBES, .kernel_count = PROBED_KERNELS, .tensors = RESULTS,
        .tensor_count = RESULT_COUNT, .dumped = DUMPED_RESULTS, .dtype = REAL, .dump = o->dump,
        .check_finite = o->check_finite, .profile = o->profile, .rank = ga_comm_rank(m->comm)}, e);
}

int $(name)_probe_micro(model *m, int k, ga_err *e) {
    return ga_probe_micro(m->probe, m->count.cycle, m->count.micro, k, e);
}

void $(name)_probe_report(model *m) { if (m->probe) ga_probe_report(m->probe); }

void $(name)_probe_close(model *m) { ga_probe_close(m->probe); }

/* A call of a kernel in step.c becomes the same call with a look at what it wrote: the result's number
 * in RESULTS, its iteration, its place. */
#define END {.tensor = -1}

$macros

#endif
