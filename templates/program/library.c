//@ library(header, name, fields, sizes, from, handed, scales, groups, by_grad, has_by_grad, half_gradient, output_type, number, d_output, output, buckets, residues, stops_at_nonfinite, hopeless, at_least, scaled, scale, last_scale, schedule, f1, plateau, chunked, ema, gradient_dtype, full_batches, by_sum, divisor, half_sums)
$header
#ifdef GA_LIBRARY
#include <stdio.h>
#include <string.h>

#include "$(name).h"
#include "runtime/ranks/collect.h"

/* step.c includes this file for libNAME.a; $(name).h says what each function does. */
enum { $sizes }; /* elements of the model's output; parameters, each iteration apart */
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
    $(name)_handler *handler;
    void *context;
    ga_tensor *gradients;
    char (*names)[GA_NAME_MAX];
    int tensors;           /* of which trained */
    float *values;         /* room for all of them */
    $(name)_counters counters;
};

/* Fields of a micro-batch: where each lies, bytes of a row, and if it holds numbers of things how many
 * things there are. */
static const struct field { const char *name; size_t at, bytes; int64_t things; bool target; } FIELDS[] = {
    $fields
};
enum { FIELD_COUNT = sizeof FIELDS / sizeof *FIELDS };

/* -- a micro-batch of the caller --------------------------------------------------------------- */

static int check_things(const struct field *f, const int32_t *x, int rows, ga_err *e) {
    const int64_t n = rows * (int64_t)(f->bytes / sizeof *x);
    for (int64_t i = 0; i < n; i++)
        if ((x[i] < 0 || x[i] >= f->things) && !(f->target && x[i] == IGNORE))
            return ga_fail(e, GA_INPUT, "batch: %s: element %lld is %d, expected 0 to %lld", f->name,
                           (long long)i, x[i], (long long)f->things - 1);
    return 0;
}

static int take_field(char *own, const struct field *f, const void *from, int rows, bool needs_target, ga_err *e) {
    char *to = own + f->at;
    const size_t bytes = (size_t)rows * f->bytes;
    if (!from && (needs_target || !f->target) && rows > 0)
        return ga_fail(e, GA_INPUT, "batch: %s is NULL", f->name);
    if (from && f->things > 0) GA_TRY(check_things(f, from, rows, e));
    memset(to, 0, B * f->bytes);
    if (from) memcpy(to, from, bytes);
    for (size_t row = (size_t)rows; from && rows > 0 && row < B; row++) /* not zeros: see runtime/data/data.c */
        memcpy(to + row * f->bytes, to, f->bytes);
    for (size_t i = 0; !from && f->target && f->things > 0 && i < B * f->bytes / sizeof(int32_t); i++)
        ((int32_t *)to)[i] = IGNORE;
    return 0;
}

static int take_batch($name *p, const $(name)_batch *b, bool training, bool needs_target, ga_err *e) {
    const model *m = &p->m;
    const void *const from[] = {$from};
    if (b->rows < 0 || b->rows > B)
        return ga_fail(e, GA_INPUT, "batch: %d rows, expected 0 to %d", b->rows, B);
//% if full_batches then
    if (training && b->rows < B)
        return ga_fail(e, GA_INPUT, "batch: %d rows, expected %d: batchnorm takes statistics over all of them",
                       b->rows, B);
//% end
    for (int i = 0; i < FIELD_COUNT; i++)
        GA_TRY(take_field(p->own, &FIELDS[i], from[i], b->rows, needs_target, e));
    const int64_t world = ga_comm_size(m->comm), rank = ga_comm_rank(m->comm);
    *(ga_micro *)(p->own + AT_FACTS) = (ga_micro){.rows = b->rows, .row = (m->count.r * world + rank) * B,
        .cycle = m->count.cycle, .training = training, .seed = m->seed};
    return 0;
}

/* -- steps ------------------------------------------------------------------------------------- */

//% if has_by_grad then
/* The backward pass from a given gradient of the output. */
static void backward_from(ga_worker *w, model *m, const batch *b, ga_role role) {
    const $name *p = (const $name *)m;
//% if half_gradient then
    for (int64_t i = 0; w->index == 0 && i < OUTPUT; i++) $(d_output)[i] = $(half_gradient)_narrow(p->d_output[i]);
//% else
    if (w->index == 0) memcpy($d_output, p->d_output, sizeof(real) * OUTPUT);
//% end
    ga_barrier(w);
    (void)b;
    $by_grad
    ga_barrier(w);
}

//% end
static void own_step(ga_worker *w, void *arg) {
    $name *p = arg;
    model *m = &p->m;
    const batch b = batch_of(p->own);
    forward(w, m, &b);
    const ga_role role = ga_cycle_role(&m->count);
//% if has_by_grad then
    if (p->by_grad) backward_from(w, m, &b, role);
    else backward(w, m, &b, role);
//% else
    backward(w, m, &b, role);
//% end
}

static void own_evaluation(ga_worker *w, void *arg) {
    $name *p = arg;
    const batch b = batch_of(p->own);
    forward(w, &p->m, &b);
    measure(w, &p->m, &b);
}

static void multiply_gradient(model *m, double by) {
    if (by == 1) return;
//% if half_sums then
    for (int64_t i = 0; i < TRAINED; i++) m->flat_g[i] = bf16_narrow((float)(bf16_widen(m->flat_g[i]) * by));
//% else
    for (int64_t i = 0; i < TRAINED; i++) m->flat_g[i] = (real)(m->flat_g[i] * by);
//% end
}

/* Worker 0: the handler sees the mean gradient, which has been divided by the weight of a full cycle until now, and
 * is left so. */
static int handle($name *p, ga_err *e) {
    model *m = &p->m;
//% if by_sum then
    const double mean = 1$divisor;
//% else
    double weight = m->sums[SUM_WEIGHT];
    GA_TRY(ga_comm_all_reduce(m->comm, &weight, 1, GA_F64, e));
    const double mean = weight > 0 ? m->nominal / weight$divisor : 1;
//% end
    multiply_gradient(m, mean);
    const int code = p->handler(p->context, p->gradients, p->tensors, e);
    multiply_gradient(m, 1 / mean);
    return code < 0 ? code : 0;
}

/* Before the gradient's norm is taken. */
static void handle_gradients(ga_worker *w, model *m) {
    $name *p = ($name *)m;
    if (p->handler && w->index == 0) {
        const int code = handle(p, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

static void flush_step(ga_worker *w, void *arg) {
    model *m = arg;
//% if residues then
    settle(w, m->flat_g, m->flat_residue);
//% end
//% if buckets > 0 then
    for (int i = 0; i < $buckets; i++) bucket_start(w, m, i); /* the last micro-step would have done it */
//% end
    boundary(w, m);
}

/* What the next micro-step needs to know of its cycle. */
static int begin_micro($name *p, bool by_grad, ga_err *e) {
    model *m = &p->m;
    const ga_epochs epochs = ga_loader_epochs(&m->data);
    if (m->count.r == 0) {
        GA_TRY(ga_cycle_begin(&m->count, ga_epochs_accumulate(&epochs, m->count.cycle), e));
        p->by_grad = by_grad;
    }
    GA_TRY(ga_cycle_room(&m->count, e));
    if (p->by_grad != by_grad)
        return ga_fail(e, GA_INPUT, "a cycle is driven by backward or by backward_by_grad, not by both");
    return 0;
}

static int own_micro($name *p, const $(name)_batch *b, bool by_grad, ga_err *e) {
    GA_TRY(begin_micro(p, by_grad, e));
    GA_TRY(take_batch(p, b, true, !by_grad, e));
    GA_TRY(run(&p->m, own_step, p, e));
    if (by_grad) p->m.sums[SUM_WEIGHT] = BY_GRAD;
    return ga_cycle_micro_done(&p->m.count, e);
}

int $(name)_backward($name *p, const $(name)_batch *b, ga_err *e) { return own_micro(p, b, false, e); }

int $(name)_backward_by_grad($name *p, const $(name)_batch *b, const float *d_output, ga_err *e) {
//% if has_by_grad then
    const int64_t there = b->rows * (int64_t)(OUTPUT / B); /* the rest has weight 0 */
//% if scaled then
    const double scale = $scale;
    for (int64_t i = 0; i < OUTPUT; i++) p->d_output[i] = i < there ? (real)(scale * d_output[i]) : 0;
//% else
    for (int64_t i = 0; i < OUTPUT; i++) p->d_output[i] = i < there ? (real)d_output[i] : 0;
//% end
    return own_micro(p, b, true, e);
//% elseif chunked then
    (void)p, (void)b, (void)d_output;
    return ga_fail(e, GA_INPUT, "backward_by_grad: the output is never whole in memory: generate the program with "
                   "memory { logits = \"whole\" }");
//% else
    (void)p, (void)b, (void)d_output;
    return ga_fail(e, GA_INPUT, "backward_by_grad: this program computes the gradient of its output "
                   "together with what comes before it: generate it without fusion, or with one output");
//% end
}

bool $(name)_accumulation_boundary(const $name *p) { return p->m.count.r == 0; }
bool $(name)_should_step(const $name *p) { return p->m.count.r > 0 && ga_cycle_boundary(&p->m.count); }

//% if stops_at_nonfinite then
static int check_finite(const model *m, ga_err *e) {
    if ($hopeless)
        return ga_fail(e, GA_NONFINITE, "cycle %lld: %g elements of the gradient are not finite; "
                       $at_least
                       "train.on_nonfinite = \"skip\" would go on", (long long)m->count.cycle,
                       m->step.nonfinite);
    return 0;
}

//% end
static int pass_boundary($name *p, void (*body)(ga_worker *, void *), ga_err *e) {
    model *m = &p->m;
    m->at_boundary = handle_gradients;
    if (p->by_grad) { /* so that decide() divides by nothing */
        m->sums[SUM_WEIGHT] = m->nominal / ga_comm_size(m->comm);
        m->sums[SUM_LOSS] = 0;
    }
    GA_TRY(run(m, body, m, e));
    GA_TRY(commit(m, e));
//% if stops_at_nonfinite then
    GA_TRY(check_finite(m, e));
//% end
    return m->step.skip ? 2 : 1;
}

int $(name)_step($name *p, ga_err *e) { return $(name)_should_step(p) ? pass_boundary(p, boundary_step, e) : 0; }

int $(name)_flush($name *p, ga_err *e) {
    if (p->m.count.r == 0) return 0;
    return pass_boundary(p, $(name)_should_step(p) ? boundary_step : flush_step, e);
}

void $(name)_zero_grad($name *p) { (void)p; }

void $(name)_discard($name *p) {
    model *m = &p->m;
//% if buckets > 0 then
    for (int i = 0; i < $buckets && $(name)_should_step(p); i++) ga_comm_wait(m->comm, i, NULL);
//% end
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
    ga_cycle_discard(&m->count);
}

/* -- the spec's own data ----------------------------------------------------------------------- */

int $(name)_next($name *p, $(name)_batch *b, ga_err *e) {
    model *m = &p->m;
    if (p->left == 0 && ga_loader_place(m->loader).epoch != p->epoch) {
        p->epoch = ga_loader_place(m->loader).epoch;
        return 0;
    }
    if (p->left == 0) {
        p->left = ga_loader_cycle(m->loader, e);
        if (p->left < 0) { const int code = p->left; p->left = 0; return code; }
    }
    memcpy(p->served, ga_loader_field(m->loader, 0, 0), BATCH_BYTES);
    ga_loader_release(m->loader, 1);
    p->left--;
    p->has_served = true;
    const batch s = batch_of(p->served);
    *b = ($(name)_batch){$handed, .rows = (int)s.facts->rows};
    return 1;
}

int $(name)_cycle($name *p, ga_err *e) {
    model *m = &p->m;
    if (m->count.r > 0)
        return ga_fail(e, GA_INPUT, "cycle: %d micro-steps are accumulated: step, flush or discard first",
                       m->count.r);
    if (m->count.cycle >= m->cycles) return 0;
    const int batches = ga_loader_cycle(m->loader, e);
    if (batches < 0) return batches;
    m->at_boundary = handle_gradients;
    p->has_served = true;
    GA_TRY($(name)_model_cycle(m, batches, e));
    ga_loader_release(m->loader, batches);
    p->epoch = ga_loader_place(m->loader).epoch;
//% if stops_at_nonfinite then
    GA_TRY(check_finite(m, e));
//% end
    return 1;
}

/* -- what is asked for ------------------------------------------------------------------------- */

double $(name)_lr(const $name *p, int group, int64_t update) {
    static const double SCALES[] = {$scales}; /* of each group of parameters */
    return group >= 0 && group < $groups && update > 0 ? SCALES[group] * $(name)_model_lr(&p->m, update - 1) : 0;
}

int $(name)_report($name *p, double metric, ga_err *e) {
//% if plateau then
    return $(name)_model_report(&p->m, metric, e);
//% else
    (void)p, (void)metric;
    return ga_fail(e, GA_INPUT, "report: the schedule is $schedule, which watches no metric");
//% end
}

int $(name)_set_gradient_handler($name *p, $(name)_handler *f, void *context) {
    p->handler = f;
    p->context = context;
    return 0;
}

/* Runs what an evaluation runs; the sums of the present cycle are kept. */
static int measure_batch($name *p, const $(name)_batch *b, bool needs_target, double sums[SUMS], ga_err *e) {
    model *m = &p->m;
    double kept[SUMS];
    GA_TRY(take_batch(p, b, false, needs_target, e));
    memcpy(kept, m->sums, sizeof kept);
    memset(m->sums, 0, sizeof m->sums);
    const int code = run(m, own_evaluation, p, e);
    memcpy(sums, m->sums, sizeof kept);
    memcpy(m->sums, kept, sizeof kept);
    return code;
}

//% if ema then
/* The same with the averages in the place of the parameters, as in the program's own evaluations. */
static int measure_averages($name *p, const $(name)_batch *b, bool needs_target, double sums[SUMS], ga_err *e) {
    GA_TRY($(name)_model_exchange(&p->m, e));
    const int code = measure_batch(p, b, needs_target, sums, e);
    ga_err again;
    const int back = $(name)_model_exchange(&p->m, code < 0 ? &again : e);
    return code < 0 ? code : back;
}

//% end

//% if output.text ~= "" then
static void copy_output(const model *m, float *out) {
    const $output_type *output = $output;
    for (int64_t i = 0; i < OUTPUT; i++) out[i] = (float)$number;
}

//% end
int $(name)_validation_step($name *p, const $(name)_batch *b, $(name)_metrics *out, ga_err *e) {
    double sums[SUMS];
//% if ema then
    GA_TRY(measure_averages(p, b, true, sums, e));
//% else
    GA_TRY(measure_batch(p, b, true, sums, e));
//% end
    *out = ($(name)_metrics){.loss_sum = sums[SUM_LOSS], .weight = sums[SUM_WEIGHT],
        .rows = (int64_t)sums[SUM_ROWS], .counted = (int64_t)sums[SUM_COUNT],
        .correct = (int64_t)sums[SUM_HITS]};
//% if f1 then
    out->tp = (int64_t)sums[SUM_FOUND];
    out->fn = (int64_t)sums[SUM_MISSED];
    out->fp = out->counted - out->correct - out->fn;
//% end
    return 0;
}

int $(name)_forward_step($name *p, const $(name)_batch *b, float *out, ga_err *e) {
//% if output.text ~= "" then
    double sums[SUMS];
    GA_TRY(measure_batch(p, b, false, sums, e));
    copy_output(&p->m, out);
    return 0;
//% elseif chunked then
    (void)p, (void)b, (void)out;
    return ga_fail(e, GA_INPUT, "predict: the output is never whole in memory: generate the program with "
                   "memory { logits = \"whole\" }");
//% else
    (void)p, (void)b, (void)out;
    return ga_fail(e, GA_INPUT, "predict: the model gives several tensors, one was expected");
//% end
}

int $(name)_predict_step($name *p, const $(name)_batch *b, float *out, ga_err *e) {
//% if ema and output.text ~= "" then
    double sums[SUMS];
    GA_TRY(measure_averages(p, b, false, sums, e));
    copy_output(&p->m, out);
    return 0;
//% else
    return $(name)_forward_step(p, b, out, e);
//% end
}

int64_t $(name)_output_elements(const $name *p) { return (void)p, OUTPUT; }

/* -- parameters and checkpoints ---------------------------------------------------------------- */

/* One tensor per parameter and iteration, in the order of the flat space. */
static void describe($name *p) {
    const ga_array *all = &p->m.saved.parameters;
    p->tensors = 0;
    for (int i = 0; i < TRAINED_PARAMS; i++)
        for (int l = 0; l < all->params[i].count; l++) {
            const ga_param *q = &all->params[i];
            const int n = p->tensors++;
            p->gradients[n] = (ga_tensor){.name = ga_param_name(q, l, "", p->names[n]), .dtype = $gradient_dtype,
                .rank = q->rank, .data = p->m.flat_g + ga_layout_index(q, l, 0)};
            memcpy(p->gradients[n].shape, q->shape, sizeof q->shape);
        }
}

/* Parameter i, iteration l as f32 in `values` (all of them one behind the other). */
static ga_tensor tensor_of(const $name *p, int i, int l, char name[GA_NAME_MAX]) {
    const ga_param *q = &p->m.saved.parameters.params[i];
    ga_tensor t = {.name = ga_param_name(q, l, "", name), .dtype = GA_F32, .rank = q->rank,
        .data = p->values + ga_layout_index(q, l, 0)};
    memcpy(t.shape, q->shape, sizeof q->shape);
    return t;
}

static int walk($name *p, int (*f)(void *, ga_tensor *), void *context, ga_err *e) {
    char name[GA_NAME_MAX];
    for (int64_t i = 0; i < FLAT; i++) p->values[i] = (float)p->m.flat_w[i];
    for (int i = 0; i < PARAM_COUNT; i++)
        for (int l = 0; l < p->m.saved.parameters.params[i].count; l++) {
            ga_tensor t = tensor_of(p, i, l, name);
            if (f(context, &t) < 0) return ga_fail(e, GA_INPUT, "%s: the caller's function stopped here", name);
        }
    return 0;
}

typedef struct visit_call {
    int (*visit)(void *context, const ga_tensor *t);
    void *context;
} visit_call;

static int visit_one(void *context, ga_tensor *t) {
    const visit_call *call = context;
    return call->visit(call->context, t);
}

int $(name)_state_dict($name *p, bool rank_zero_only, int (*visit)(void *context, const ga_tensor *t),
                       void *context, ga_err *e) {
    visit_call call = {visit, context};
    if (rank_zero_only && ga_comm_rank(p->m.comm) != 0) return 0;
    return walk(p, visit_one, &call, e);
}

int $(name)_load_state_dict($name *p, int (*fill)(void *context, ga_tensor *t), void *context, ga_err *e) {
    model *m = &p->m;
    GA_TRY(walk(p, fill, context, e));
//% if ema then
    for (int64_t i = 0; i < FLAT; i++) /* the average of what is changed begins again */
        if (p->values[i] != (float)m->flat_w[i]) m->flat_ema[i] = m->flat_w[i] = (real)p->values[i];
//% else
    for (int64_t i = 0; i < FLAT; i++)
        if (p->values[i] != (float)m->flat_w[i]) m->flat_w[i] = (real)p->values[i];
//% end
    return $(name)_model_refresh(m, e);
}

int $(name)_save($name *p, const char *folder, ga_err *e) {
    const ga_cycle *c = &p->m.count;
    if ($(name)_should_step(p))
        return ga_fail(e, GA_INPUT, "save: %d of %d micro-steps accumulated: call step before", c->r, c->a);
    if (!folder) folder = p->folder;
    if (!folder) return ga_fail(e, GA_INPUT, "save: no folder: give one here or in the options");
    return $(name)_model_save_to(&p->m, folder, p->has_served, e);
}

/* Behind a load: whose the micro-steps are that the present cycle begins with. */
static int know_cycle($name *p, ga_err *e) {
    double ranks = p->m.sums[SUM_WEIGHT] < 0;
    GA_TRY(ga_comm_all_reduce(p->m.comm, &ranks, 1, GA_F64, e));
    p->by_grad = ranks > 0;
    return 0;
}

int $(name)_load($name *p, const char *path, ga_err *e) {
    char found[GA_PATH_MAX];
    model *m = &p->m;
    if (!p->folder && strcmp(path, "latest") == 0)
        return ga_fail(e, GA_INPUT, "load: \"latest\" of no folder: the options name one");
    $(name)_discard(p);
    GA_TRY($(name)_model_load(m, p->folder ? p->folder : ".", path, found, e));
    GA_TRY($(name)_model_refresh(m, e));
    p->left = 0;
    p->epoch = ga_loader_place(m->loader).epoch;
    return know_cycle(p, e);
}

/* -- ranks ------------------------------------------------------------------------------------- */

int $(name)_all_gather($name *p, const void *in, void *out, size_t n, ga_dtype t, ga_err *e) {
    return ga_collect_gather(p->m.comm, in, out, n * ga_dtype_bytes(t), e);
}

int $(name)_reduce($name *p, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e) {
    return ga_collect_reduce(p->m.comm, buf, n, t, op, to, e);
}

int $(name)_broadcast($name *p, void *buf, size_t bytes, int from, ga_err *e) {
    return ga_collect_broadcast(p->m.comm, buf, bytes, from, e);
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

/* -- open and close ---------------------------------------------------------------------------- */

static int open_record($name **out, ga_err *e) {
    const size_t tensors = TENSORS, page = 4096;
    const size_t bytes = sizeof($name) + 2 * BATCH_BYTES + tensors * (sizeof(ga_tensor) + GA_NAME_MAX) +
        FLAT * sizeof(float) + (OUTPUT + 1) * sizeof(real) + 8 * 64;
    ga_arena a;
    GA_TRY(ga_arena_open(&a, "library", (bytes + page - 1) / page * page, e));
    $name *p = ga_take(&a, sizeof *p, 64, e);
    if (!p) return GA_BUG;
    p->own = ga_take(&a, BATCH_BYTES, 64, e);
    p->served = ga_take(&a, BATCH_BYTES, 64, e);
    p->gradients = ga_take(&a, tensors * sizeof *p->gradients, 64, e);
    p->names = ga_take(&a, tensors * sizeof *p->names, 64, e);
    p->values = ga_take(&a, FLAT * sizeof *p->values, 64, e);
    p->d_output = ga_take(&a, (OUTPUT + 1) * sizeof *p->d_output, 64, e);
    p->memory = a;
    *out = p;
    return p->d_output ? 0 : GA_BUG;
}

int $(name)_open($name **out, const $(name)_options *o, ga_err *e) {
    const $(name)_options none = {0};
    if (!o) o = &none;
    *out = NULL;
    $name *p = NULL;
    int code = open_record(&p, e);
    if (code >= 0)
        code = $(name)_model_open(&p->m, &(ga_options){.data = o->data, .checkpoint = o->checkpoint,
            .resume = o->resume, .init = o->init, .fresh = o->fresh, .log = o->log, .threads = o->threads,
            .quiet = o->quiet,
            .seed = o->seed ? (int64_t)o->seed : -1, .eval = true}, e); /* eval: no folder is locked */
    if (code >= 0) code = know_cycle(p, e);
    if (code < 0) {
        $(name)_close(p);
        return code;
    }
    p->folder = o->checkpoint;
    p->epoch = ga_loader_place(p->m.loader).epoch;
    describe(p);
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
