//@ head(header)
$header

//@ settings(name, scales, groups)
double $(name)_lr(const $name *p, int group, int64_t update) {
    static const double SCALES[] = {$scales}; /* of each group of parameters */
    return group >= 0 && group < $groups && update > 0 ? SCALES[group] * $(name)_model_lr(&p->m, update - 1) : 0;
}

//@ report(name)
int $(name)_report($name *p, double metric, ga_err *e) {
    GA_TRY(need_model(p, e));
    return $(name)_model_report(&p->m, metric, e);
}

//@ no_report(name, schedule)
int $(name)_report($name *p, double metric, ga_err *e) {
    (void)p, (void)metric;
    return ga_fail(e, GA_INPUT, "report: the schedule is $schedule, which watches no metric");
}

//@ measure_batch(name, shift)
/* Runs what an evaluation runs; the sums of the present cycle are kept. */
static int measure_batch($name *p, const $(name)_batch *b, bool needs_target, double sums[SUMS], ga_err *e) {
    model *m = &p->m;
    double kept[SUMS];
    GA_TRY(take_batch(p, b, false, needs_target, e));
    memcpy(kept, m->sums, sizeof kept);
    memset(m->sums, 0, sizeof m->sums);
//% if shift then
    m->sums[SUM_SHIFT] = m->target_shift;
//% end
    const int code = run_team(m, own_evaluation, p, e);
    memcpy(sums, m->sums, sizeof kept);
    memcpy(m->sums, kept, sizeof kept);
    return code;
}

//@ measure_averages(name)
/* The same with the averages in the place of the parameters, as in the program's own evaluations. */
static int measure_averages($name *p, const $(name)_batch *b, bool needs_target, double sums[SUMS], ga_err *e) {
    GA_TRY($(name)_model_exchange(&p->m, e));
    const int code = measure_batch(p, b, needs_target, sums, e);
    ga_err again;
    const int back = $(name)_model_exchange(&p->m, code < 0 ? &again : e);
    return code < 0 ? code : back;
}

//@ copy_output(type, output, number)
static void copy_output(const model *m, float *out) {
    const $type *output = $output;
    for (int64_t i = 0; i < OUTPUT; i++) out[i] = (float)$number;
}

//@ validation(name, ema, hits, f1, measured)
int $(name)_validation_step($name *p, const $(name)_batch *b, $(name)_metrics *out, ga_err *e) {
    double sums[SUMS];
    GA_TRY(need_idle(p, "validation_step", e));
    GA_TRY(need(p, "validation_step: the micro-batch", b, e));
    GA_TRY(need(p, "validation_step: the place for the sums", out, e));
//% if ema then
    GA_TRY(measure_averages(p, b, true, sums, e));
//% else
    GA_TRY(measure_batch(p, b, true, sums, e));
//% end
    *out = ($(name)_metrics){.loss_sum = sums[SUM_LOSS], .weight = sums[SUM_WEIGHT],
        .rows = (int64_t)sums[SUM_ROWS], .counted = (int64_t)sums[SUM_COUNT]};
//% if hits then
    out->correct = (int64_t)sums[SUM_HITS];
//% end
//% if f1 then
    out->tp = (int64_t)sums[SUM_FOUND];
    out->fn = (int64_t)sums[SUM_MISSED];
    out->fp = out->counted - out->correct - out->fn;
//% end
    $measured
    return 0;
}

//@ forward(name)
int $(name)_forward_step($name *p, const $(name)_batch *b, float *out, ga_err *e) {
    double sums[SUMS];
    GA_TRY(need_idle(p, "forward_step", e));
    GA_TRY(need(p, "the micro-batch", b, e));
    GA_TRY(need(p, "the place for the output", out, e));
    GA_TRY(measure_batch(p, b, false, sums, e));
    copy_output(&p->m, out);
    return 0;
}

//@ no_forward(name, chunked)
int $(name)_forward_step($name *p, const $(name)_batch *b, float *out, ga_err *e) {
    (void)p, (void)b, (void)out;
//% if chunked then
    return ga_fail(e, GA_INPUT, "predict: the output is never whole in memory: generate the program with "
                   "memory { logits = \"whole\" }");
//% else
    return ga_fail(e, GA_INPUT, "predict: the model gives several tensors, one was expected");
//% end
}

//@ predict(name, averages)
int $(name)_predict_step($name *p, const $(name)_batch *b, float *out, ga_err *e) {
    GA_TRY(need_idle(p, "predict_step", e));
//% if averages then
    double sums[SUMS];
    GA_TRY(need(p, "the micro-batch", b, e));
    GA_TRY(need(p, "the place for the output", out, e));
    GA_TRY(measure_averages(p, b, false, sums, e));
    copy_output(&p->m, out);
    return 0;
//% else
    return $(name)_forward_step(p, b, out, e);
//% end
}

int64_t $(name)_output_elements(const $name *p) { return (void)p, OUTPUT; }
