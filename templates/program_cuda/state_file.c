// state_file: the parts of step.c about state of the optimizer that lies in a file: the host sweeps over it behind the
// graph of a cycle, when it knows the decision.

//@ windows(addresses)
/* -- the state in the file ----------------------------------------------------------------------- */

/* The segment in use goes from its windows on the host to those of the device, or comes back. */
static void move_segment(queue *q, model *m, bool back) {
    const ga_address states[] = {$addresses};
    const size_t held = sizeof(real) * (size_t)ga_state_file_held(m->state_file);
    for (int i = 0; i < (int)(sizeof states / sizeof *states) && q->code == 0; i++) {
        const ga_state_part part = ga_state_file_part(m->state_file, i);
        q->code = back ? ga_device_fetch(q->device, q->stream, part.values, states[i] + held, part.bytes, q->e)
                       : ga_device_send(q->device, q->stream, states[i] + held, part.values, part.bytes, q->e);
    }
}

/* The segment in use, if there is one, comes back to the host, where it may be written. */
static void leave_segment(queue *q, model *m) {
    move_segment(q, m, true);
    if (q->code == 0) q->code = ga_device_sync(q->device, q->stream, q->e);
}

/* Whether a part is to be updated now: those with their states on the device, or `filed`, those with a segment. Behind
 * this, the segment is in the windows of the device. The one before it is written, the next one is read, while the part
 * is updated. */
static bool state_need(queue *q, model *m, const range *r, bool filed) {
    if ((r->segment >= 0) != filed || q->code < 0) return false;
    if (!filed) return true;
    leave_segment(q, m);
    if (q->code == 0) q->code = ga_state_file_need(m->state_file, r->segment, GA_STATE_ALL, q->e);
    move_segment(q, m, false);
    return q->code == 0;
}

//@ sweep(calls)
/* The update of the parts whose states lie on the device, or `filed`, of those in the file. */
static void sweep(queue *q, model *m, bool filed) {
    $calls
}

//@ after_sweep(calls)
/* Needs all parameters of the update. */
static void after_sweep(queue *q, model *m) {
    $calls
}

//@ host_update(after)
/* The host's part of an update that is not skipped: the sweep over the file, then what waits for it. */
static int host_update(model *m, ga_err *e) {
    queue q = queue_of(m, e);
    sweep(&q, m, true);
    leave_segment(&q, m);
    GA_TRY(q.code);
//% if after then
    GA_TRY(run_graph(m, AFTER_SWEEP, e));
//% end
    return ga_state_file_finish(m->state_file, e);
}

//@ averages(name, average, index_of, elements, gathers)
/* The averages take the place of the parameters on the device; m->flat_w keeps these. */
static int send_averages(model *m, ga_err *e) {
    static _Alignas(64) char buffer[GA_RUN];
    const ga_array *a = &m->saved.state[$average];
    const size_t held = sizeof(real) * (size_t)ga_state_file_held(m->state_file);
    GA_TRY(ga_device_download(m->device, m->flat_w, m->device_w, sizeof(real) * $elements, e));
    GA_TRY(ga_device_download(m->device, m->state_ema, m->device_state_ema, held, e));
    for (const ga_param *p = a->params; p < a->params + a->count; p++)
        for (int l = 0; l < p->count; l++)
            for (ga_held h = {0}; ga_array_next(a, p, l, &h);) {
                const void *values = ga_array_get(a, &h, buffer, e);
                const ga_address to = m->device_w + sizeof(real) * (size_t)$index_of;
                if (!values) return GA_ENVIRONMENT;
                GA_TRY(ga_device_upload(m->device, to, values, sizeof(real) * (size_t)h.n, e));
            }
    return 0;
}

/* The first call brings the averages, the next one the parameters: the file is read once, and not written. */
int $(name)_model_exchange(model *m, ga_err *e) {
    queue q = queue_of(m, e);
    m->averaged = !m->averaged;
    if (m->averaged)
        GA_TRY(send_averages(m, e));
    else
        GA_TRY(ga_device_upload(m->device, m->device_w, m->flat_w, sizeof(real) * $elements, e));
//% if gathers then
    if (m->averaged) parameters_gather(&q, m);
//% end
    pack_views(&q, m);
    return q.code;
}
