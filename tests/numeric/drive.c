/* drive.c: see drive.h. It includes the emitted program, so that its static functions can be called. */
#include "step.c"
#include "model.c"

#include "drive.h"

#include <string.h>

#include "runtime/base/rng.h"

_Static_assert(sizeof(real) == sizeof(double), "the checks need a program of precision f64");

enum { POISON = 0xff }; /* doubles of these bytes are NaN */

model *drive_model(void) {
    static model only;
    return &only;
}

void drive_close(model *m) { probe_model_close(m); }
int64_t drive_trained(void) { return TRAINED; }
int drive_states(void) { return STATES; }

double *drive_weights(model *m) { return m->flat_w; }
double *drive_gradients(model *m) { return m->flat_g; }
double *drive_state(model *m, int i) { return m->saved.state[i].base; }
const char *drive_suffix(const model *m, int i) { return m->saved.state[i].suffix; }

scalars drive_scalars(const model *m) {
    return (scalars){m->nominal, m->step.weight, m->step.grad_norm, m->step.factor, m->step.lr};
}

double drive_random(uint64_t seed, uint64_t index) {
    return 2 * ga_uniform(ga_rng(seed, 0, index)) - 1;
}

/* -- tensors ----------------------------------------------------------------------------------- */

int drive_tensors(const model *m) {
    int n = 0;
    for (int i = 0; i < PARAM_COUNT; i++) n += m->saved.parameters.params[i].count;
    return n;
}

tensor drive_tensor(const model *m, int i) {
    const ga_param *p = m->saved.parameters.params;
    int index = 0;
    for (; i >= p[index].count; index++) i -= p[index].count;
    tensor t = {.at = p[index].offset + i * p[index].stride,
                .n = p[index].n,
                .trained = index < TRAINED_PARAMS};
    ga_param_name(&p[index], i, "", t.name);
    return t;
}

/* -- opening ----------------------------------------------------------------------------------- */

static void move_parameters(model *m, uint64_t seed) {
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        for (int64_t j = t.at; j < t.at + t.n; j++)
            m->flat_w[j] += 0.25 * drive_random(seed, (uint64_t)j);
    }
}

static void fill_batch(const model *m, int k, uint64_t seed, int classes) {
    for (int f = 0; f < m->train.fields; f++) {
        const ga_field *field = &m->train.field[f];
        const bool is_target = strcmp(field->name, "target") == 0;
        void *base = (void *)ga_loader_field(m->loader, k, f); /* writable here until it is released */
        for (int64_t i = 0; i < B * field->width; i++) {
            const int64_t element = k * B * field->width + i;
            const double u = drive_random(seed + 1 + (uint64_t)f, (uint64_t)element);
            if (field->type == GA_F64) ((double *)base)[i] = 1.5 * u;
            else if (is_target && element % 7 == 3) ((int32_t *)base)[i] = IGNORE;
            else ((int32_t *)base)[i] = (int32_t)((0.5 + 0.5 * u) * classes);
        }
    }
}

int drive_open(model *m, int threads, uint64_t seed, int classes, ga_err *e) {
    const ga_options o = {.threads = threads, .seed = -1, .eval = true, .quiet = true};
    GA_TRY(probe_model_open(m, &o, e));
    const int batches = ga_loader_cycle(m->loader, e);
    if (batches < 0) return batches;
    if (batches != A)
        return ga_fail(e, GA_BUG, "a cycle of %d micro-batches, expected %d", batches, A);
    for (int k = 0; k < A; k++) fill_batch(m, k, seed, classes);
    move_parameters(m, seed);
    return 0;
}

/* -- running ----------------------------------------------------------------------------------- */

static void clear_sums(model *m) {
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
}

static void forward_cycle(ga_worker *w, void *arg) {
    model *m = arg;
    pack_views(w, m);
    for (int k = 0; k < A; k++) {
        const batch b = batch_at(m, k);
        evaluate(w, m, &b);
    }
}

int drive_loss(model *m, double *loss, ga_err *e) {
    clear_sums(m);
    GA_TRY(run_team(m, forward_cycle, m, e));
    *loss = m->sums[SUM_LOSS] / m->sums[SUM_WEIGHT];
    clear_sums(m);
    return 0;
}

static void poison(model *m) {
    const ga_arena *a = &m->memory[ARENA_ACTIVATIONS];
    memset(a->base, POISON, a->bytes);
    for (int i = 0; i < drive_tensors(m); i++) {
        const tensor t = drive_tensor(m, i);
        if (t.trained) memset(m->flat_g + t.at, POISON, (size_t)t.n * sizeof(real));
    }
}

/* The backward pass starts from 1 / nominal weight; the boundary's factor corrects it to the true weight. */
static void scale_gradient(model *m, double weight) {
    for (int64_t i = 0; i < TRAINED; i++) m->flat_g[i] *= m->nominal / weight;
}

int drive_gradient(model *m, ga_err *e) {
    poison(m);
    clear_sums(m);
    GA_TRY(probe_model_refresh(m, e));
    for (int k = 0; k < A; k++) GA_TRY(probe_model_micro(m, k, e));
    ga_cycle_discard(&m->count);
    scale_gradient(m, m->sums[SUM_WEIGHT]);
    clear_sums(m);
    return 0;
}

int drive_cycle(model *m, ga_err *e) {
    poison(m);
    clear_sums(m);
    GA_TRY(probe_model_refresh(m, e));
    GA_TRY(probe_model_cycle(m, A, e));
    scale_gradient(m, m->step.weight);
    return 0;
}

int drive_boundary(model *m, ga_err *e) {
    clear_sums(m);
    m->sums[SUM_WEIGHT] = m->nominal;
    m->count.r = A;
    return probe_model_boundary(m, e);
}

/* -- the update alone -------------------------------------------------------------------------- */

#ifdef STATE_ARRAYS
typedef struct sweep_call {
    model *m;
    int64_t from, to;
} sweep_call;

static void sweep_step(ga_worker *w, void *arg) {
    const sweep_call *call = arg;
    model *m = call->m;
    const range part = {.count = call->to - call->from, .layers = 1, .flat = {call->from, 0}};
    update_all(w, &m->step, &part, 0, m->flat_w, m->flat_g, STATE_ARRAYS);
    ga_barrier(w);
}

int drive_sweep(model *m, int64_t from, int64_t to, ga_err *e) {
    sweep_call call = {m, from, to};
    return run_team(m, sweep_step, &call, e);
}
#else
int drive_sweep(model *m, int64_t from, int64_t to, ga_err *e) {
    (void)m;
    return ga_fail(e, GA_BUG, "[%lld, %lld): compiled without STATE_ARRAYS", (long long)from,
                   (long long)to);
}
#endif

#ifdef REPORTS
int drive_report(model *m, double metric, double *lr, ga_err *e) {
    GA_TRY(probe_model_report(m, metric, e));
    *lr = probe_model_lr(m, 0);
    return 0;
}
#else
int drive_report(model *m, double metric, double *lr, ga_err *e) {
    (void)m;
    *lr = metric;
    return ga_fail(e, GA_BUG, "compiled without REPORTS");
}
#endif
