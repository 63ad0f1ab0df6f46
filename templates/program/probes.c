//@ head(header, kernels, calls, tensors, sizes, watched)
$header
//% if watched then
#if defined GA_PROBES || defined GA_WATCH
//% else
#ifdef GA_PROBES
//% end
#include "probes.h"

#include <string.h>

#include "runtime/log/probe.h"

enum { $sizes };

/* Calls of kernels in the order of the program, with the plan's operations and bytes of one. */
static const ga_probe_kernel KERNEL_PROBES[PROBED_KERNELS] = {
    $kernels
};

//% if watched then
/* The results of kernels; behind RESULT_COUNT those that only train-watch looks at. */
static const ga_param RESULTS[ALL_RESULTS] = {
//% else
/* The results of kernels; those of an evaluation alone at the end. */
static const ga_param RESULTS[RESULT_COUNT] = {
//% end
    $tensors
};

//% if watched then
/* The calls in the order of the text of step.c: the place in KERNEL_PROBES, the function, its results: places in
 * RESULTS, -1 for what is not looked at, whether each iteration of a loop has one of its own, and the place of all that
 * the call may have written, for train-watch. */
//% else
/* The calls in the order of the text of step.c: the place in KERNEL_PROBES, the function, its results: places in
 * RESULTS, -1 for what is not looked at, and whether each iteration of a loop has one of its own. */
//% end
static const struct {
    int kernel;
    const char *function;
    int result_count;
//% if watched then
    struct { int tensor; bool each; int whole; } results[MOST_RESULTS];
//% else
    struct { int tensor; bool each; } results[MOST_RESULTS];
//% end
} CALLS[CALL_COUNT] = {
    $calls
};

//@ numbers(halves, half)
$halves

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

//@ check()
/* Call number `call` of the text of step.c, counted from 0, is of this function unless step.c was edited. */
static int check_call(int call, const char *function, ga_err *e) {
    if (call < CALL_COUNT && strcmp(CALLS[call].function, function) == 0) return 0;
    return ga_fail(e, GA_INPUT, "step.c was edited: its call %d is of %s, probes.c expects other calls", call + 1,
                   function);
}

//@ watched()
#ifdef GA_WATCH
#include "compared.c"
#else

//@ device(half, rows)
//% if rows then
/* Elements of a row of a result, and from one row to the next on the device; 0: they lie behind each other. */
static const struct {
    int64_t width, apart;
} ROWS[RESULT_COUNT] = {
    $rows
};

//% end
/* The elements of a result as they are stored. */
static int stored(model *m, int tensor, void *room, ga_address at, ga_err *e) {
//% if half then
    const size_t size = IS_HALF[tensor] ? sizeof($half) : sizeof(real);
//% else
    const size_t size = sizeof(real);
//% end
//% if rows then
    const size_t width = (size_t)ROWS[tensor].width, apart = (size_t)ROWS[tensor].apart;
    if (apart > 0) {
        const size_t rows = (size_t)RESULTS[tensor].n / width;
        return ga_device_download_rows(m->device, room, at, rows, width * size, apart * size, e);
    }
//% end
    return ga_device_download(m->device, room, at, (size_t)RESULTS[tensor].n * size, e);
}

/* The time of a kernel is that between two events of its stream, which the device itself takes. */
static void probe_begin(queue *q, model *m) {
    if (m->probe && q->code == 0) q->code = ga_device_record(q->device, m->probed[0], q->stream, q->e);
}

static void probe_end(queue *q, model *m, int kernel) {
    float ms = 0;
    if (!m->probe || q->code < 0) return;
    q->code = ga_device_record(q->device, m->probed[1], q->stream, q->e);
    if (q->code == 0) q->code = ga_device_elapsed(q->device, m->probed[0], m->probed[1], &ms, q->e);
    if (q->code == 0) ga_probe_took(m->probe, kernel, 1e-3 * ms);
}

/* Behind a call of `function` in iteration l, which wrote to the places `at`. */
static void probe_results(queue *q, model *m, int call, const char *function, int l, const ga_address *at) {
    if (q->code == 0) q->code = check_call(call, function, q->e);
    if (q->code < 0) return;
    probe_end(q, m, CALLS[call].kernel);
    for (int i = 0; i < CALLS[call].result_count && q->code == 0 && ga_probe_wants(m->probe); i++) {
        const int tensor = CALLS[call].results[i].tensor;
        if (tensor < 0) continue;
        void *room = ga_probe_room(m->probe);
        q->code = stored(m, tensor, room, at[i], q->e);
//% if half then
        const ga_probe_value v = {tensor, CALLS[call].results[i].each ? l : 0, numbers(m, tensor, room)};
//% else
        const ga_probe_value v = {tensor, CALLS[call].results[i].each ? l : 0, room};
//% end
        if (q->code == 0) q->code = ga_probe_see(m->probe, CALLS[call].kernel, &v, q->e);
    }
}

#define PROBED(call, function, ...) \
    (probe_begin(q, m), call, \
     probe_results(q, m, __COUNTER__ - FIRST_CALL, function, l, (const ga_address[]){__VA_ARGS__}))
#define TIMED(kernel, call) (probe_begin(q, m), call, probe_end(q, m, kernel))

//@ host(half)
static void probe_begin(ga_worker *w, model *m) {
    ga_barrier(w);
    if (w->index == 0) ga_probe_begin(m->probe);
}

static void probe_end(ga_worker *w, model *m, int kernel) {
    ga_barrier(w);
    if (w->index == 0) ga_probe_end(m->probe, kernel);
}

/* Behind a call of `function` in iteration l, which wrote to the places `at`. */
static void probe_results(ga_worker *w, model *m, int call, const char *function, int l, const void *const *at) {
    int code = ga_team_status(w);
    if (code == 0 && w->index == 0) code = check_call(call, function, &m->error);
    probe_end(w, m, code == 0 ? CALLS[call].kernel : 0);
    for (int i = 0; w->index == 0 && code == 0 && i < CALLS[call].result_count && ga_probe_wants(m->probe); i++) {
        const int tensor = CALLS[call].results[i].tensor;
        if (tensor < 0) continue;
//% if half then
        const ga_probe_value v = {tensor, CALLS[call].results[i].each ? l : 0, numbers(m, tensor, at[i])};
//% else
        const ga_probe_value v = {tensor, CALLS[call].results[i].each ? l : 0, at[i]};
//% end
        code = ga_probe_see(m->probe, CALLS[call].kernel, &v, &m->error);
    }
    if (code < 0) ga_team_fail(w, code);
    ga_barrier(w);
}

#define PROBED(call, function, ...) \
    (probe_begin(w, m), call, \
     probe_results(w, m, __COUNTER__ - FIRST_CALL, function, l, (const void *const[]){__VA_ARGS__}))
#define TIMED(kernel, call) (probe_begin(w, m), call, probe_end(w, m, kernel), ga_barrier(w))

//@ functions(name, macros, watched, device)
int $(name)_probe_open(model *m, const ga_options *o, ga_err *e) {
//% if device then
    for (int i = 0; i < 2; i++) GA_TRY(ga_device_event(m->device, &m->probed[i], e));
//% end
    return ga_probe_open(&m->probe, &(ga_probe_config){
        .kernels = KERNEL_PROBES, .kernel_count = PROBED_KERNELS, .tensors = RESULTS,
        .tensor_count = RESULT_COUNT, .dumped = DUMPED_RESULTS, .dtype = REAL, .dump = o->dump,
        .check_finite = o->check_finite, .profile = o->profile, .rank = ga_comm_rank(m->comm)}, e);
}

int $(name)_probe_micro(model *m, int k, ga_err *e) {
    return ga_probe_micro(m->probe, m->count.cycle, m->count.micro, k, e);
}

int $(name)_probe_report(model *m, ga_err *e) { return m->probe ? ga_probe_report(m->probe, e) : 0; }

void $(name)_probe_close(model *m) { ga_probe_close(m->probe); }

//% if watched then
#endif

//% end
/* A call of a kernel in step.c becomes the same call with a look at what it wrote: __COUNTER__ is one more at each. l
 * is the iteration of the loop around it, 0 outside of loops. */
enum { FIRST_CALL = __COUNTER__ + 1, l = 0 };

$macros

#endif
