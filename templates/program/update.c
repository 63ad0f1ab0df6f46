//@ totals(small, by_sum, divisor, full)
$small
s->weight = sums[SUM_WEIGHT];
s->rows = sums[SUM_ROWS];
//% if by_sum then
s->loss = sums[SUM_LOSS];
const double mean = 1$divisor; /* the sum of the losses is what is minimised */
//% else
s->loss = sums[SUM_LOSS] / s->weight;
const double mean = s->weight > 0 ? m->nominal / s->weight$divisor : 0; /* exactly $full for full cycles */
//% end

//@ update(header, name, view_calls, measure_calls, sweep_calls, matrices, lr, scalars, buckets, bucket_rows, totals, rewrites, sum, largest, grad_norm, groups, group_tiles, clip, skip, outliers, rate_lines, has_factor, scaler, scale_moved)
$header
//% if scaler.text ~= "" then
#include "runtime/loop/scaler.h"
//% end
#include "runtime/loop/stop.h"

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

//% if rewrites then
/* Worker 0: the sums of the cycle, by which the gradient is divided before it is changed. */
static int sum_up(model *m, ga_err *e) {
    step *s = &m->step;
    $totals
    s->mean = (real)mean;
    return 0;
}

//% end
//% if scaler.text ~= "" then
$scaler

//% end
/* Worker 0, in double: what the update is to be. A skipped update changes neither parameters nor
 * optimizer state nor the schedule. */
static int decide(model *m, ga_err *e) {
    step *s = &m->step;
    double $sum = 0;
    s->nonfinite = 0;
//% if groups > 0 then
    static const int GROUP_TILES[$groups + 1] = {$group_tiles};
    double of_group[$groups] = {0};
    for (int k = 0; k < $groups; k++) {
        for (int i = GROUP_TILES[k]; i < GROUP_TILES[k + 1]; i++) {
//% if largest then
            of_group[k] = fmax(of_group[k], m->partials[2 * i]);
//% else
            of_group[k] += m->partials[2 * i];
//% end
            s->nonfinite += m->partials[2 * i + 1];
        }
//% if largest then
        $sum = fmax($sum, of_group[k]);
//% else
        $sum += of_group[k];
//% end
    }
//% else
    for (int i = 0; i < NORM_TILES; i++) {
//% if largest then
        $sum = fmax($sum, m->partials[2 * i]);
//% else
        $sum += m->partials[2 * i];
//% end
        s->nonfinite += m->partials[2 * i + 1];
    }
//% end
//% if rewrites then
    (void)e; /* what can fail is done */
//% else
    $totals
//% end
    s->grad_norm = $grad_norm;
    s->skip = $skip;
    $outliers
//% if groups > 0 then
    for (int k = 0; k < $groups; k++) {
        $clip
    }
//% elseif has_factor then
//% if rewrites then
    double factor = 1;
//% else
    double factor = mean;
//% end
    $clip
    s->factor = (real)factor;
//% elseif rewrites then
    s->factor = 1; /* the mean has been taken */
//% else
    s->factor = (real)mean;
//% end
    $rate_lines
    $scalars
    $scale_moved
    return 0;
}

//% if matrices.text ~= "" then
$matrices

//% end
static void boundary(ga_worker *w, model *m) {
    ga_barrier(w);
//% if buckets > 0 then
    buckets_finish(w, m);
//% end
    if (m->at_boundary) m->at_boundary(w, m);
//% if rewrites then
    if (w->index == 0) {
        const int code = sum_up(m, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
    if (ga_team_status(w) < 0) return;
//% end
    $measure_calls
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
