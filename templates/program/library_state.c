//@ head(header)
$header

//@ describe(name, gradient_dtype)
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

//@ walk(name)
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

//@ average(name, index)
/* The average of what the caller has changed in layer l of a parameter, from `before` to `values`, begins again. */
static int begin_again($name *p, const ga_param *q, int l, const real *before, const float *values, ga_err *e) {
    const ga_array *averages = &p->m.saved.state[$index];
    char buffer[GA_RUN];
    for (ga_held h = {0}; ga_array_next(averages, q, l, &h);) {
        real *average = ga_array_get(averages, &h, buffer, e);
        if (!average) return GA_ENVIRONMENT;
        for (int64_t i = 0; i < h.n; i++)
            if (values[h.i + i] != (float)before[h.i + i]) average[i] = (real)values[h.i + i];
        GA_TRY(ga_array_put(averages, &h, average, e));
    }
    return 0;
}

//@ walk_parts(name, first, arrays, ema)
/* Layer l of a parameter in `whole`, and as f32 in `values`: rank 0 collects it and gives it to all. */
static int bring_together($name *p, const ga_array *a, const ga_param *q, int l, ga_err *e) {
    if (a->shard) {
        GA_TRY(ga_shard_collect(p->m.comm, a, q, l, p->whole, e));
        GA_TRY(ga_comm_broadcast(p->m.comm, p->whole, (size_t)q->n * sizeof(real), 0, e));
    } else {
        memcpy(p->whole, (const real *)a->base + ga_layout_index(q, l, 0), (size_t)q->n * sizeof(real));
    }
    for (int64_t i = 0; i < q->n; i++) p->values[i] = (float)p->whole[i];
    return 0;
}

/* Takes over what this rank has of the elements that the caller has changed. */
static void take_over($name *p, const ga_array *a, const ga_param *q, int l) {
    for (ga_held h = {0}; ga_array_next(a, q, l, &h);)
        for (int64_t i = h.i; i < h.i + h.n; i++) {
            if (p->values[i] == (float)p->whole[i]) continue;
            ((real *)a->base)[h.at + i - h.i] = (real)p->values[i];
        }
}

/* Calls f for each tensor in turn; f NULL: this rank only takes part. Behind a call that fails there are none, but the
 * rank still takes part. */
static int walk($name *p, int (*f)(void *, ga_tensor *), void *context, ga_err *e) {
    char name[GA_NAME_MAX];
    int code = 0;
    for (const ga_array *a = $first; a < $first + $arrays; a++)
        for (const ga_param *q = a->params; q < a->params + a->count; q++)
            for (int l = 0; l < q->count; l++) {
                GA_TRY(bring_together(p, a, q, l, e));
                ga_tensor t = {.name = ga_param_name(q, l, "", name), .dtype = GA_F32, .rank = q->rank,
                    .data = p->values};
                memcpy(t.shape, q->shape, sizeof q->shape);
                if (f && code == 0 && f(context, &t) < 0)
                    code = ga_fail(e, GA_INPUT, "%s: the caller's function stopped here", name);
//% if ema then
                if (code == 0 && a->shard) code = begin_again(p, q, l, p->whole, p->values, e);
//% end
                if (code == 0) take_over(p, a, q, l);
            }
    return code;
}

//@ visits()
typedef struct visit_call {
    int (*visit)(void *context, const ga_tensor *t);
    void *context;
} visit_call;

static int visit_one(void *context, ga_tensor *t) {
    const visit_call *call = context;
    return call->visit(call->context, t);
}

//@ state_dict_parts(name)
int $(name)_state_dict($name *p, bool rank_zero_only, int (*visit)(void *context, const ga_tensor *t),
                       void *context, ga_err *e) {
    visit_call call = {visit, context};
    GA_TRY(need_model(p, e));
    const bool visits = !rank_zero_only || ga_comm_rank(p->m.comm) == 0;
    if (visits) GA_TRY(need(p, "state_dict: the function", visit, e));
    return walk(p, visits ? visit_one : NULL, &call, e);
}

int $(name)_load_state_dict($name *p, int (*fill)(void *context, ga_tensor *t), void *context, ga_err *e) {
    GA_TRY(need_idle(p, "load_state_dict", e));
    GA_TRY(need(p, "load_state_dict: the function", fill, e));
    return walk(p, fill, context, e);
}

//@ state_dict(name, ema)
int $(name)_state_dict($name *p, bool rank_zero_only, int (*visit)(void *context, const ga_tensor *t),
                       void *context, ga_err *e) {
    visit_call call = {visit, context};
    GA_TRY(need_model(p, e));
    if (rank_zero_only && ga_comm_rank(p->m.comm) != 0) return 0;
    GA_TRY(need(p, "state_dict: the function", visit, e));
    return walk(p, visit_one, &call, e);
}

int $(name)_load_state_dict($name *p, int (*fill)(void *context, ga_tensor *t), void *context, ga_err *e) {
    GA_TRY(need_idle(p, "load_state_dict", e));
    GA_TRY(need(p, "load_state_dict: the function", fill, e));
    model *m = &p->m;
    GA_TRY(walk(p, fill, context, e));
//% if ema then
    for (int k = 0; k < TRAINED_PARAMS; k++)
        for (int l = 0; l < m->saved.parameters.params[k].count; l++) {
            const ga_param *q = &m->saved.parameters.params[k];
            const int64_t first = ga_layout_index(q, l, 0);
            GA_TRY(begin_again(p, q, l, m->flat_w + first, p->values + first, e));
        }
//% end
    for (int64_t i = 0; i < FLAT; i++)
        if (p->values[i] != (float)m->flat_w[i]) m->flat_w[i] = (real)p->values[i];
    return $(name)_model_refresh(m, e);
}

//@ checkpoints(name)
int $(name)_save($name *p, const char *folder, ga_err *e) {
    GA_TRY(need_idle(p, "save", e));
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
    GA_TRY(need_idle(p, "load", e));
    GA_TRY(need(p, "load: the path", path, e));
    model *m = &p->m;
    if (!p->folder && strcmp(path, "latest") == 0)
        return ga_fail(e, GA_INPUT, "load: \"latest\" of no folder: the options name one");
    $(name)_discard(p);
    GA_TRY($(name)_model_load(m, p->folder ? p->folder : ".", path, true, found, e));
    GA_TRY($(name)_model_refresh(m, e));
    p->left = 0;
    p->epoch = ga_epochs_began(ga_loader_place(m->loader));
    return know_cycle(p, e);
}
