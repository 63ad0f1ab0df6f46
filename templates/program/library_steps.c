//@ head(header)
$header

//@ batch(name, from, full_batches)
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
    *(ga_micro *)(p->own + AT_MICRO) = (ga_micro){.rows = b->rows, .row = (m->count.r * world + rank) * B,
        .before = m->count.r, .cycle = m->count.cycle, .training = training, .seed = m->seed};
    return 0;
}

//@ backward_from(name, by_grad, half_gradient, d_output)
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

//@ bodies(name, has_by_grad)
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
    evaluate(w, &p->m, &b);
}

//@ no_handler(name)
int $(name)_set_gradient_handler($name *p, $(name)_handler *f, void *context) {
    (void)p, (void)context;
    return f ? GA_INPUT : 0;
}

//@ set_handler(name)
int $(name)_set_gradient_handler($name *p, $(name)_handler *f, void *context) {
    if (!p) return GA_INPUT;
    p->handler = f;
    p->context = context;
    return 0;
}

//@ handler(name, half_sums, scattered, by_sum, divisor, groups, handlers)
/* Multiplies elements of the gradient. */
static void multiply_run(model *m, int64_t from, int64_t n, double by) {
    if (by == 1) return;
//% if half_sums then
    for (int64_t i = from; i < from + n; i++) m->flat_g[i] = bf16_narrow((float)(bf16_widen(m->flat_g[i]) * by));
//% else
    for (int64_t i = from; i < from + n; i++) m->flat_g[i] = (real)(m->flat_g[i] * by);
//% end
}

//% if groups > 0 then
/* Multiplies the gradient by the factor of the mean and the share of each bucket's handler, or divides it again. */
static void multiply_gradient(model *m, double mean, bool back) {
    static const int HANDLERS[] = {$handlers}; /* of each bucket; -1: it has no gradient */
    for (int i = 0; i < m->division.count; i++) {
        const ga_bucket *b = &m->division.buckets[i];
        const double by = HANDLERS[i] < 0 ? 1 : mean * m->step.share[HANDLERS[i]];
        if (by != 0) multiply_run(m, b->offset, b->n, back ? 1 / by : by);
    }
}

//% if not by_sum then
/* The shares of handlers follow from the weights of the lists of ranks. */
static int share_gradient(model *m, double weight, ga_err *e) {
    double *lists = m->step.small + SMALL_LISTS;
    const int count = SMALL_NONFINITE - SMALL_LISTS;
    for (int i = 0; i < count; i++) lists[i] = 0;
    for (int k = 1; k <= $groups; k++) lists[ga_comm_list(m->comm, k)] = m->sums[SUM_WEIGHT];
    GA_TRY(ga_comm_small(m->comm, lists, (size_t)count, 0, e));
    m->step.weight = weight;
    set_shares(m);
    return 0;
}
//% end
//% else
static void multiply_gradient(model *m, double mean, bool back) { multiply_run(m, 0, TRAINED, back ? 1 / mean : mean); }
//% end

/* Worker 0: the handler sees the mean gradient, which has been divided by the weight of a full cycle until now, and
 * is left so. */
static int handle($name *p, ga_err *e) {
    model *m = &p->m;
//% if scattered then
    GA_TRY(ga_division_gather(&m->division, m->comm, m->flat_g, REAL, e)); /* a rank has the sums of its own part */
//% end
//% if by_sum then
    const double mean = 1$divisor;
//% if groups > 0 then
    set_shares(m);
//% end
//% else
    double weight = m->sums[SUM_WEIGHT];
    GA_TRY(ga_comm_all_reduce(m->comm, &weight, 1, GA_F64, e));
    const double mean = weight > 0 ? m->nominal / weight$divisor : 1;
//% if groups > 0 then
    GA_TRY(share_gradient(m, weight, e));
//% end
//% end
    multiply_gradient(m, mean, false);
    p->handles = true;
    const int code = p->handler(p->context, p->gradients, p->tensors, e);
    p->handles = false;
    multiply_gradient(m, mean, true);
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

//@ micro(name)
/* Sets the facts that the next micro-step needs of its cycle. */
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
    GA_TRY(need_idle(p, "backward", e));
    GA_TRY(need(p, "backward: the micro-batch", b, e));
    GA_TRY(begin_micro(p, by_grad, e));
    GA_TRY(take_batch(p, b, true, !by_grad, e));
    GA_TRY(run_team(&p->m, own_step, p, e));
    if (by_grad) p->m.sums[SUM_WEIGHT] = BY_GRAD;
    return ga_cycle_micro_done(&p->m.count, e);
}

int $(name)_backward($name *p, const $(name)_batch *b, ga_err *e) { return own_micro(p, b, false, e); }

//@ backward_by_grad(name, scaled, scale)
int $(name)_backward_by_grad($name *p, const $(name)_batch *b, const float *d_output, ga_err *e) {
    GA_TRY(need_idle(p, "backward_by_grad", e));
    GA_TRY(need(p, "backward_by_grad: the micro-batch", b, e));
    GA_TRY(need(p, "backward_by_grad: d_output", d_output, e));
    const int64_t there = b->rows * (int64_t)(OUTPUT / B); /* the rest has weight 0 */
//% if scaled then
    const double scale = $scale;
    for (int64_t i = 0; i < OUTPUT; i++) p->d_output[i] = i < there ? (real)(scale * d_output[i]) : 0;
//% else
    for (int64_t i = 0; i < OUTPUT; i++) p->d_output[i] = i < there ? (real)d_output[i] : 0;
//% end
    return own_micro(p, b, true, e);
}

//@ no_backward_by_grad(name, chunked)
int $(name)_backward_by_grad($name *p, const $(name)_batch *b, const float *d_output, ga_err *e) {
    (void)p, (void)b, (void)d_output;
//% if chunked then
    return ga_fail(e, GA_INPUT, "backward_by_grad: the output is never whole in memory: generate the program with "
                   "memory { logits = \"whole\" }");
//% else
    return ga_fail(e, GA_INPUT, "backward_by_grad: this program computes the gradient of its output "
                   "together with what comes before it: generate it without fusion, or with one output");
//% end
}

//@ flush_step(residues, starts)
static void flush_step(ga_worker *w, void *arg) {
    model *m = arg;
//% if residues then
    settle(w, m->flat_g, m->flat_residue);
//% end
//% if starts.text ~= "" then
    /* the last micro-step would have done it */
    $starts
//% end
    boundary(w, m);
}

//@ check_finite(hopeless, at_least)
static int check_finite(const model *m, ga_err *e) {
    if ($hopeless)
        return ga_fail(e, GA_NONFINITE, "cycle %lld: %g elements of the gradient are not finite; "
                       $at_least
                       "train.on_nonfinite = \"skip\" would go on", (long long)m->count.cycle,
                       m->step.nonfinite);
    return 0;
}

//@ boundary(name, stops_at_nonfinite, buckets, handles)
bool $(name)_accumulation_boundary(const $name *p) { return p->m.count.r == 0; }
bool $(name)_should_step(const $name *p) { return p->m.count.r > 0 && ga_cycle_boundary(&p->m.count); }

static int pass_boundary($name *p, void (*body)(ga_worker *, void *), ga_err *e) {
    model *m = &p->m;
//% if handles then
    m->at_boundary = handle_gradients;
//% end
    if (p->by_grad) { /* so that decide() divides by nothing */
        m->sums[SUM_WEIGHT] = m->nominal / ga_comm_size(m->comm);
        m->sums[SUM_LOSS] = 0;
    }
    GA_TRY(run_team(m, body, m, e));
    GA_TRY(commit(m, e));
//% if stops_at_nonfinite then
    GA_TRY(check_finite(m, e));
//% end
    return m->step.skip ? 2 : 1;
}

int $(name)_step($name *p, ga_err *e) {
    GA_TRY(need_idle(p, "step", e));
    return $(name)_should_step(p) ? pass_boundary(p, boundary_step, e) : 0;
}

int $(name)_flush($name *p, ga_err *e) {
    GA_TRY(need_idle(p, "flush", e));
    if (p->m.count.r == 0) return 0;
    return pass_boundary(p, $(name)_should_step(p) ? boundary_step : flush_step, e);
}

void $(name)_zero_grad($name *p) { (void)p; }

void $(name)_discard($name *p) {
    model *m = &p->m;
//% if handles then
    if (p->handles) return;
//% end
//% if buckets > 0 then
    for (int i = 0; i < $buckets; i++) ga_comm_wait(m->comm, i, NULL);
//% end
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
    ga_cycle_discard(&m->count);
}

//@ own_data(name, handed, stops_at_nonfinite, handles)
int $(name)_next($name *p, $(name)_batch *b, ga_err *e) {
    GA_TRY(need_idle(p, "next", e));
    GA_TRY(need(p, "next: the micro-batch", b, e));
    model *m = &p->m;
    const ga_place place = ga_loader_place(m->loader);
    if (place.r == 0 && place.epoch != p->epoch) {
        p->epoch = place.epoch;
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
    *b = ($(name)_batch){$handed, .rows = (int)s.micro->rows};
    return 1;
}

int $(name)_cycle($name *p, ga_err *e) {
    GA_TRY(need_idle(p, "cycle", e));
    model *m = &p->m;
    if (m->count.r > 0)
        return ga_fail(e, GA_INPUT, "cycle: %d micro-steps are accumulated: step, flush or discard first",
                       m->count.r);
    const int served = ga_loader_place(m->loader).r;
    if (served > 0)
        return ga_fail(e, GA_INPUT, "cycle: next has given %d micro-batches of a cycle of the data: expected all of "
                       "them", served);
    if (m->count.cycle >= m->cycles) return 0;
    const int batches = ga_loader_cycle(m->loader, e);
    if (batches < 0) return batches;
//% if handles then
    m->at_boundary = handle_gradients;
//% end
    p->has_served = true;
    GA_TRY($(name)_model_cycle(m, batches, e));
    ga_loader_release(m->loader, batches);
    p->epoch = ga_loader_place(m->loader).epoch;
//% if stops_at_nonfinite then
    GA_TRY(check_finite(m, e));
//% end
    return 1;
}
