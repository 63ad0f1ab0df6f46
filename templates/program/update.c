// update: update.c, the boundary of a program whose workers call kernels. All targets use its blocks for the ranges
// and for the clipping by the norm.

//@ head(header, scaler)
$header
//% if scaler then
#include "runtime/loop/scaler.h"
//% end
#include "runtime/loop/stop.h"

//@ ranges(rows)
/* The ranges of parameters that the boundary goes over, the only place with offsets: {first, next} are the
 * offset of the first layer's elements in an array and the distance from layer to layer. */
static const ranges RANGES = {
    $rows
};

//@ buckets(count, rows, narrow, overlap)
//% if narrow then
/* Buckets of the gradient, each summed over the ranks by one call: first element, elements, the type in which
 * the parts of the ranks travel. Only the last micro-step of a cycle starts them. */
static const struct { int64_t offset, n; ga_dtype wire; } BUCKETS[$count] = {
//% else
/* Buckets of the gradient, each summed over the ranks by one call: first element, elements. Only the last
 * micro-step of a cycle starts them. */
static const struct { int64_t offset, n; } BUCKETS[$count] = {
//% end
    $rows
};

static void bucket_start(ga_worker *w, model *m, int i) {
    ga_barrier(w);
    if (w->index != 0) return;
    const ga_exchange sum = {.kind = GA_ALL_REDUCE, .values = m->flat_g + BUCKETS[i].offset, .n = BUCKETS[i].n,
//% if narrow then
                             .type = REAL, .wire = BUCKETS[i].wire};
//% else
                             .type = REAL, .wire = REAL};
//% end
//% if overlap then
    const int code = ga_comm_start(m->comm, i, &sum, &m->error);
//% else
    int code = ga_comm_start(m->comm, i, &sum, &m->error);
    if (code == 0) code = ga_comm_wait(m->comm, i, &m->error);
//% end
    if (code < 0) ga_team_fail(w, code);
}

static void buckets_finish(ga_worker *w, model *m) {
    for (int i = 0; i < $count && w->index == 0; i++) {
        const int code = ga_comm_wait(m->comm, i, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
}

//@ views(view_calls)
/* Copies of weights in the layout that kernels read, made once per update. */
static void pack_views(ga_worker *w, model *m) {
    $view_calls
    ga_barrier(w);
}

//@ small_sum()
/* The one small sum over the ranks: loss, weight, rows, requests to stop or save. */
static void small_sum(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    double sums[8] = {m->sums[SUM_LOSS], m->sums[SUM_WEIGHT], m->sums[SUM_ROWS], ga_stop_requests()};
    const int code = ga_comm_small(m->comm, sums, 8, &m->error);
    if (code < 0) ga_team_fail(w, code);
    s->loss = sums[0];
    s->weight = sums[1];
    s->rows = sums[2];
    m->stop = ga_stop_agreed(sums[3], &m->save);
}

//@ totals(ranks, by_sum, divisor, full)
//% if ranks then
const double losses = s->loss; /* of all ranks: see small_sum */
//% else
const double losses = m->sums[SUM_LOSS];
m->stop = ga_stop_agreed(ga_stop_requests(), &m->save);
s->weight = m->sums[SUM_WEIGHT];
s->rows = m->sums[SUM_ROWS];
//% end
//% if by_sum then
s->loss = losses;
const double mean = 1$divisor; /* the sum of the losses is minimised */
//% else
s->loss = losses / s->weight;
const double mean = s->weight > 0 ? m->nominal / s->weight$divisor : 0; /* exactly $full for full cycles */
//% end

//@ sum_up(totals)
/* The sums of the cycle, by which the gradient is divided before it is changed. */
static void sum_up(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    $totals
    s->mean = (real)mean;
}

//@ norm(sum, largest, groups, group_tiles)
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

//@ factor(groups, clip, has_factor, rewrites)
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

//@ decide(norm, totals, grad_norm, skip, outliers, factor, rate_lines, scalars, scale_moved)
/* The decision about the update, in double. A skipped update changes neither parameters nor
 * optimizer state nor the schedule. */
static void decide(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    $norm
    $totals
    s->grad_norm = $grad_norm;
    s->skip = $skip;
    $outliers
    $factor
    $rate_lines
    $scalars
    $scale_moved
}

//@ handlers()
/* The caller's own changes to the gradient, where the program is a library. */
static void call_handlers(ga_worker *w, model *m) {
    if (m->at_boundary) m->at_boundary(w, m);
}

//@ boundary(boundary_calls)
/* One update: from the gradient of a cycle to the parameters of the next. */
static void boundary(ga_worker *w, model *m) {
    $boundary_calls
    ga_barrier(w);
    pack_views(w, m);
}
