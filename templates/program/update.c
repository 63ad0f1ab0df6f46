//@ update(header, name, view_calls, sweep_calls, lr, scalars, buckets, bucket_rows, small, by_sum, clip, skip, rate_lines, has_factor)
$header
#include "runtime/stop.h"

//% if buckets > 0 then
/* Buckets of the gradient: offset and elements. Only the last micro-step of a cycle starts them. */
static const struct { int64_t offset, n; } BUCKETS[$buckets] = {
    $bucket_rows
};

static void bucket_start(ga_worker *w, model *m, int i) {
    ga_barrier(w);
    if (w->index != 0) return;
    const int code = ga_comm_start(m->comm, i, m->flat_g + BUCKETS[i].offset, (size_t)BUCKETS[i].n, REAL,
                                   &m->error);
    if (code < 0) ga_team_fail(w, code);
}

static void buckets_finish(ga_worker *w, model *m) {
    for (int i = 0; i < $buckets && w->index == 0; i++) {
        const int code = ga_comm_wait(m->comm, i, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

//% end
/* Copies that kernels read; constant over a cycle, so made once per update. */
static void pack_views(ga_worker *w, model *m) {
    $view_calls
    ga_barrier(w);
}

$lr

/* Worker 0, in double: what the update is to be. A skipped update changes neither parameters nor
 * optimizer state nor the schedule. */
static int decide(model *m, ga_err *e) {
    step *s = &m->step;
    double squares = 0;
    s->nonfinite = 0;
    for (int i = 0; i < NORM_TILES; i++) {
        squares += m->partials[2 * i];
        s->nonfinite += m->partials[2 * i + 1];
    }
    $small
    s->weight = sums[SUM_WEIGHT];
    s->rows = sums[SUM_ROWS];
//% if by_sum then
    s->loss = sums[SUM_LOSS];
    const double mean = 1; /* the sum of the losses is what is minimised */
//% else
    s->loss = sums[SUM_LOSS] / s->weight;
    const double mean = s->weight > 0 ? m->nominal / s->weight : 0; /* exactly 1 for full cycles */
//% end
    s->grad_norm = sqrt(squares) * mean;
    s->skip = $skip;
//% if has_factor then
    double factor = mean;
    $clip
    s->factor = (real)factor;
//% else
    s->factor = (real)mean;
//% end
    $rate_lines
    $scalars
    return 0;
}

static void boundary(ga_worker *w, model *m) {
    ga_barrier(w);
//% if buckets > 0 then
    buckets_finish(w, m);
//% end
    if (m->at_boundary) m->at_boundary(w, m);
    gradient_partials(w, m->partials, m->flat_g);
    ga_barrier(w);
    if (w->index == 0) {
        const int code = decide(m, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
    if (ga_team_status(w) < 0 || m->step.skip) return;
    $sweep_calls
    ga_barrier(w);
    pack_views(w, m);
}
