//@ totals(ranks, by_sum, divisor, full)
//% if ranks then
const double losses = s->loss; /* of all ranks: see small_sum */
//% else
const double losses = m->sums[SUM_LOSS];
m->stop = ga_stop_requested() != 0;
s->weight = m->sums[SUM_WEIGHT];
s->rows = m->sums[SUM_ROWS];
//% end
//% if by_sum then
s->loss = losses;
const double mean = 1$divisor; /* the sum of the losses is what is minimised */
//% else
s->loss = losses / s->weight;
const double mean = s->weight > 0 ? m->nominal / s->weight$divisor : 0; /* exactly $full for full cycles */
//% end

//@ ranges(rows)
/* The ranges of parameters that the boundary goes over. Of an array: where the elements of the first
 * layer begin, and how much further those of the next. Calls name a range; only this table knows places. */
static const ranges RANGES = {
    $rows
};

//@ update(header, name, ranges, view_calls, boundary_calls, iterations, lr, scalars, ranks, buckets, bucket_rows, totals, rewrites, sum, largest, grad_norm, groups, group_tiles, clip, skip, outliers, rate_lines, has_factor, scaler, scale_moved)
$header
//% if scaler.text ~= "" then
#include "runtime/loop/scaler.h"
//% end
#include "runtime/loop/stop.h"

$ranges

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
}

//% end
/* Copies that kernels read; constant over a cycle, so made once per update. */
static void pack_views(ga_worker *w, model *m) {
    $view_calls
    ga_barrier(w);
}

$lr

//% if ranks then
/* The one small sum over the ranks: loss, weight, rows, a request to stop. */
static void small_sum(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    double sums[8] = {m->sums[SUM_LOSS], m->sums[SUM_WEIGHT], m->sums[SUM_ROWS], ga_stop_requested() != 0};
    const int code = ga_comm_small(m->comm, sums, 8, &m->error);
    if (code < 0) ga_team_fail(w, code);
    s->loss = sums[0];
    s->weight = sums[1];
    s->rows = sums[2];
    m->stop = sums[3] > 0;
}

//% end
//% if rewrites then
/* The sums of the cycle, by which the gradient is divided before it is changed. */
static void sum_up(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    $totals
    s->mean = (real)mean;
}

//% end
//% if scaler.text ~= "" then
$scaler

//% end
/* The decision about the update, in double. A skipped update changes neither parameters nor
 * optimizer state nor the schedule. */
static void decide(ga_worker *w, model *m) {
    if (w->index != 0) return;
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
//% if not rewrites then
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
}

/* The caller's own changes to the gradient, where the program is a library. */
static void call_handlers(ga_worker *w, model *m) {
    if (m->at_boundary) m->at_boundary(w, m);
}

//% if iterations.text ~= "" then
$iterations

//% end
static void boundary(ga_worker *w, model *m) {
    $boundary_calls
    ga_barrier(w);
    pack_views(w, m);
}
