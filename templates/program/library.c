//@ head(header, name, sizes, fields, handles, divided)
$header
#ifdef GA_LIBRARY
#include <stdio.h>
#include <string.h>

#include "$(name).h"
#include "runtime/ranks/collect.h"

/* step.c includes this file for libNAME.a; $(name).h says what each function does. */
$sizes
enum { BY_GRAD = -1 }; /* the weight of a cycle of backward_by_grad, where the gradient has its weight from outside */

struct $name {
    model m;               /* first: a pointer to it is one to this record */
    ga_arena memory;       /* of this record and what it points to */
    const char *folder;    /* of checkpoints, or NULL */
    char *own;             /* the caller's micro-batch, as kernels read it */
    char *served;          /* the one that next has handed out */
    int left;              /* of the cycle that next is in */
    int64_t epoch;
    bool has_served;
    bool by_grad;          /* of the present cycle's micro-steps: the weight is BY_GRAD until the boundary */
    real *d_output;        /* where backward_by_grad starts */
//% if handles then
    $(name)_handler *handler;
    void *context;
    bool handles;          /* the handler has been called, and has not returned */
    ga_tensor *gradients;
    char (*names)[GA_NAME_MAX];
    int tensors;           /* of which trained */
//% end
//% if divided then
    real *whole;           /* room for the largest of them */
    float *values;         /* the same as f32 */
//% else
    float *values;         /* room for all of them */
//% end
    $(name)_counters counters;
};

/* Fields of a micro-batch: where each lies, bytes of a row, and if it holds numbers of things how many
 * things there are. */
static const struct field { const char *name; size_t at, bytes; int64_t things; bool target; } FIELDS[] = {
    $fields
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS };

static int need_model(const $name *p, ga_err *e) {
    return p ? 0 : ga_fail(e, GA_INPUT, "the model is NULL, expected the one of $(name)_open");
}

/* Refuses a call without a model, or by a gradient handler: a step is under way then. */
static int need_idle(const $name *p, const char *call, ga_err *e) {
    GA_TRY(need_model(p, e));
//% if handles then
    if (p->handles)
        return ga_fail(e, GA_INPUT, "%s: called by the gradient handler, expected after its step", call);
//% else
    (void)call;
//% end
    return 0;
}

/* Refuses a call without a model, or without another thing. */
static int need(const $name *p, const char *what, const void *given, ga_err *e) {
    GA_TRY(need_model(p, e));
    return given ? 0 : ga_fail(e, GA_INPUT, "%s is NULL", what);
}

#include "library_steps.c"   /* micro-batches and the boundary */
#include "library_measure.c" /* losses and outputs without training */
#include "library_state.c"   /* parameters and checkpoints */

//@ ranks(name, groups, last_scale)
int $(name)_all_gather($name *p, const void *in, void *out, size_t n, ga_dtype t, ga_err *e) {
    GA_TRY(need_model(p, e));
    return ga_collect_gather(p->m.comm, in, out, n, t, e);
}

int $(name)_reduce($name *p, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e) {
    GA_TRY(need_model(p, e));
    return ga_collect_reduce(p->m.comm, buf, n, t, op, to, e);
}

int $(name)_broadcast($name *p, void *buf, size_t bytes, int from, ga_err *e) {
    GA_TRY(need_model(p, e));
    return ga_collect_broadcast(p->m.comm, buf, bytes, from, e);
}

//% if groups then
int $(name)_group(const $name *p, const char *name) {
    if (!p) return GA_INPUT;
    const int group = name ? ga_comm_group_named(p->m.comm, name) : 0;
    return group < 0 ? GA_INPUT : group;
}

static int check_group(const $name *p, int group, ga_err *e) {
    GA_TRY(need_model(p, e));
    if (group == 0 || ga_comm_group(p->m.comm, group)) return 0;
    return ga_fail(e, GA_INPUT, "group %d: there is none, expected what $(name)_group gives", group);
}

int $(name)_all_gather_in($name *p, int group, const void *in, void *out, size_t n, ga_dtype t, ga_err *e) {
    GA_TRY(check_group(p, group, e));
    return ga_collect_gather_in(p->m.comm, group, in, out, n, t, e);
}

int $(name)_reduce_in($name *p, int group, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e) {
    GA_TRY(check_group(p, group, e));
    return ga_collect_reduce_in(p->m.comm, group, buf, n, t, op, to, e);
}

int $(name)_broadcast_in($name *p, int group, void *buf, size_t bytes, int from, ga_err *e) {
    GA_TRY(check_group(p, group, e));
    return ga_collect_broadcast_in(p->m.comm, group, buf, bytes, from, e);
}

//% end
int64_t $(name)_least($name *p, int64_t n, ga_err *e) {
    double least = (double)n;
    GA_TRY(need_model(p, e));
    if (n < 0 || n >= (int64_t)1 << 53)
        return ga_fail(e, GA_INPUT, "least: found %lld, expected 0 <= n < 2^53", (long long)n);
    GA_TRY(ga_collect_reduce(p->m.comm, &least, 1, GA_F64, GA_MIN, -1, e));
    return (int64_t)least;
}

int $(name)_rank(const $name *p) { return ga_comm_rank(p->m.comm); }
int $(name)_world(const $name *p) { return ga_comm_size(p->m.comm); }
int $(name)_root_device(const $name *p) { return (void)p, -1; }

const $(name)_counters *$(name)_count($name *p) {
    const model *m = &p->m;
    const step *s = &m->step;
    const ga_comm_counts c = ga_comm_counted(m->comm);
    p->counters = ($(name)_counters){.micro = m->count.micro, .cycle = m->count.cycle,
        .update = m->count.update, .skipped = m->count.skipped, .epoch = ga_loader_place(m->loader).epoch,
        .rows = (int64_t)s->rows, .r = m->count.r, .accumulate = m->count.a, .loss = s->loss,
        .grad_norm = s->grad_norm, .lr = s->lr, .scale = $last_scale, .collectives = c.collectives + c.small,
        .comm_bytes = c.bytes};
    return &p->counters;
}

//@ open(name, handles, divided)
static int open_record($name **out, ga_err *e) {
    $name *p;
//% if handles then
    const size_t tensors = TENSORS, page = 4096;
    const size_t bytes = sizeof *p + 2 * BATCH_BYTES + tensors * (sizeof(ga_tensor) + GA_NAME_MAX) +
        FLAT * sizeof(float) + (OUTPUT + 1) * sizeof(real) + 8 * 64;
//% else
    const size_t page = 4096;
//% if divided then
    const size_t bytes = sizeof *p + 2 * BATCH_BYTES + LARGEST_TENSOR * (sizeof(float) + sizeof(real)) +
        (OUTPUT + 1) * sizeof(real) + 8 * 64;
//% else
    const size_t bytes = sizeof *p + 2 * BATCH_BYTES + FLAT * sizeof(float) + (OUTPUT + 1) * sizeof(real) + 8 * 64;
//% end
//% end
    ga_arena a;
    GA_TRY(ga_arena_open(&a, "library", (bytes + page - 1) / page * page, e));
    p = ga_take(&a, sizeof *p, 64, e);
    if (!p) return GA_BUG;
    p->own = ga_take(&a, BATCH_BYTES, 64, e);
    p->served = ga_take(&a, BATCH_BYTES, 64, e);
//% if handles then
    p->gradients = ga_take(&a, tensors * sizeof *p->gradients, 64, e);
    p->names = ga_take(&a, tensors * sizeof *p->names, 64, e);
//% end
//% if divided then
    p->whole = ga_take(&a, LARGEST_TENSOR * sizeof *p->whole, 64, e);
    p->values = ga_take(&a, LARGEST_TENSOR * sizeof *p->values, 64, e);
//% else
    p->values = ga_take(&a, FLAT * sizeof *p->values, 64, e);
//% end
    p->d_output = ga_take(&a, (OUTPUT + 1) * sizeof *p->d_output, 64, e);
    p->memory = a;
    *out = p;
    return p->d_output ? 0 : GA_BUG;
}

int $(name)_open($name **out, const $(name)_options *o, ga_err *e) {
    $name *p = NULL;
    const $(name)_options none = {0};
    if (!o) o = &none;
    if (!out) return ga_fail(e, GA_INPUT, "open: the place for the model is NULL");
    *out = NULL;
    if (o->seed > INT64_MAX)
        return ga_fail(e, GA_INPUT, "seed: %llu, expected at most 2^63 - 1", (unsigned long long)o->seed);
    if (o->fresh && !o->init)
        return ga_fail(e, GA_INPUT, "open: the option fresh without init, expected both");
    int code = open_record(&p, e);
    if (code >= 0)
        code = $(name)_model_open(&p->m, &(ga_options){.data = o->data, .checkpoint = o->checkpoint,
            .resume = o->resume, .init = o->init, .fresh = o->fresh, .log = o->log, .threads = o->threads,
            .quiet = o->quiet, .seed = o->seed ? (int64_t)o->seed : -1, .own_loop = true}, e);
    if (code >= 0) code = know_cycle(p, e);
    if (code < 0) {
        $(name)_close(p);
        return code;
    }
    p->folder = o->checkpoint;
    p->epoch = ga_epochs_began(ga_loader_place(p->m.loader));
//% if handles then
    describe(p);
//% end
    *out = p;
    return 0;
}

void $(name)_close($name *p) {
    if (!p) return;
    ga_arena a = p->memory;
    $(name)_model_close(&p->m);
    ga_arena_close(&a);
}

#endif
