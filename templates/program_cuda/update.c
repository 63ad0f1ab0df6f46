// update: update.c of a program with parameters in host memory: their part of an update, which the host makes.

//@ head(header)
$header
#include "runtime/base/denormals.h"

//@ kernels(kernels)
/* -- kernels in C: the rules of the device's kernels, with the same bits ------------------------- */

$kernels

//@ transfers()
/* -- the update of what lies in host memory ----------------------------------------------------- */

/* The gradients that lie on the device and are updated here come to the host, in the order of the updates. */
static int fetch_gradients(model *m, ga_err *e) {
    for (const ga_piece *p = m->placed.updated.pieces; p < m->placed.updated.pieces + m->placed.updated.count; p++) {
        const int i = ga_placed_bucket(&m->placed, p->from);
        const ga_address g = m->device_g + sizeof(real) * (size_t)ga_placed_at(&m->placed, i);
        if (m->placed.places[i] == GA_ON_HOST) continue;
        GA_TRY(ga_device_fetch(m->device, m->reducing, m->flat_g + ga_division_place(&m->division, i), g,
                               sizeof(real) * (size_t)p->n, e));
        GA_TRY(ga_device_record(m->device, m->here[i], m->reducing, e));
    }
    return 0;
}

/* Behind this, the gradient of a part is in host memory; false: waiting failed. Those of the next buckets are on their
 * way while the part is updated. */
static bool gradient_need(ga_worker *w, model *m, const range *r) {
    if (m->placed.places[r->bucket] == GA_ON_HOST) return true;
    if (w->index == 0) {
        const int code = ga_device_wait_host(m->device, m->here[r->bucket], &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
    return ga_team_status(w) == 0;
}

/* The new values of a part go to the device, if they belong there; any others do so at the next gather. */
static void values_done(ga_worker *w, model *m, const range *r) {
    if (m->placed.places[r->bucket] == GA_ON_HOST) return;
    ga_barrier(w);
    if (w->index != 0) return;
    const int code = ga_device_send(m->device, m->stream, m->device_w + sizeof(real) * (size_t)r->values.first,
                                    m->flat_w + r->shard.first, sizeof(real) * (size_t)r->count, &m->error);
    if (code < 0) ga_team_fail(w, code);
}

//@ update(calls, mixed)
/* All workers: the parts of each range that the host updates. */
static void update_parts(ga_worker *w, void *arg) {
    model *m = arg;
    ga_keep_denormals(); /* as the device does */
    $calls
}

/* The host's part of an update. The device has made its own, and the decision has come. */
static int host_update(model *m, ga_err *e) {
//% if mixed then
    GA_TRY(fetch_gradients(m, e));
//% end
    const int code = ga_team_run(m->team, update_parts, m);
    if (code < 0) *e = m->error;
    return code;
}
