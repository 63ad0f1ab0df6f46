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

//@ cut(of_arrays, placed, model, file, places, filed)
//% if placed then
/* Where a part lies: in the arrays of the host, and in those that kernels of the device read and write. */
static void place_part(const model *m, range *part) {
    const int64_t at = in_layer(part->flat, part->l);
    const int64_t values = ga_shard_place(&m->placed.values, at), state = ga_shard_place(&m->placed.state, at);
    part->bucket = ga_placed_bucket(&m->placed, at);
    part->shard = (offsets){ga_shard_place(&m->division.own, at), 0};
    part->values = values < 0 ? part->shard : (offsets){values, 0};
    part->state = state < 0 ? part->shard : (offsets){state, 0};
}

//% end
//% if of_arrays then
/* The place of a part in what this rank has of an array: `at` elements behind the beginning of layer l. */
static offsets place_in(const ga_shard *array, offsets whole, int l, int64_t at) {
    return (offsets){ga_shard_place(array, in_layer(whole, l) + at), 0};
}

//% end
//% if filed then
/* Cuts each range at the ends of these pieces of the flat space; with a file, a part's states lie together, in memory or
 * in one of its segments. Returns what is behind the parts. */
//% else
/* Cuts each range at the ends of these pieces of the flat space; returns what is behind its parts. */
//% end
static range *cut($(model)const ga_shard *pieces, $(file)part_lists *lists, range *next) {
    const range *rows = (const range *)&RANGES;
    parts *list = (parts *)lists;
    for (size_t i = 0; i < sizeof RANGES / sizeof *rows; i++) {
        list[i].first = next;
        for (int l = 0; l < rows[i].layers; l++)
            for (const ga_piece *p = pieces->pieces; p < pieces->pieces + pieces->count; p++) {
                const int64_t first = in_layer(rows[i].flat, l), behind = first + rows[i].count;
//% if filed then
                const int64_t end = p->from + p->n < behind ? p->from + p->n : behind;
                for (int64_t n, from = p->from > first ? p->from : first; from < end; from += n) {
                    n = file ? ga_state_file_run(file, p->at + from - p->from, end - from) : end - from;
                    *next = rows[i];
                    next->l = l;
                    next->count = n;
                    next->flat.first += from - first;
                    $places
                    next++;
                }
//% else
                const int64_t from = p->from > first ? p->from : first;
                const int64_t end = p->from + p->n < behind ? p->from + p->n : behind;
                if (from >= end) continue;
                *next = rows[i];
                next->l = l;
                next->count = end - from;
                next->flat.first += from - first;
                $places
                next++;
//% end
            }
        list[i].end = next;
    }
    return next;
}

//@ cut_ranks(name, others, own, placed, device_updates, none, tiles)
/* Gives each part a place for the sums of its tiles, behind that of the parts before. */
static int64_t number_tiles(const parts *list, int64_t tile) {
    for (range *r = list->first; r < list->end; r++) {
        r->partials = (offsets){2 * tile, 0};
        tile += (r->count + NORM_TILE - 1) / NORM_TILE;
    }
    return tile;
}

void $(name)_model_cut(model *m) {
    int64_t tile = 0;
//% if others then
    range *next = cut($(own)&m->division.own, $(none)&m->own, m->parts);
    cut($(own)&m->division.others, $(none)&m->others, next);
//% elseif placed then
    range *next = cut(m, &m->division.own, &m->own, m->parts);
//% if device_updates then
    next = cut(m, &m->placed.state, &m->on_device, next);
//% end
    cut(m, &m->placed.updated, &m->on_host, next);
//% else
    cut($(own)&m->division.own, $(none)&m->own, m->parts);
//% end
    $tiles
}

//@ cut_state(name, sharded, own, device)
void $(name)_model_cut_state(model *m) {
//% if sharded then
    cut($(own)&m->division.own, m->state_file, &m->swept, m->swept_parts);
//% else
    ga_piece all = {0, TRAINED, 0};
    cut($(own)&(ga_shard){&all, 1, TRAINED}, m->state_file, &m->swept, m->swept_parts);
//% end
}

//% if not device then
/* Behind this, the states of a part are in memory, those of these arrays; false: reading or writing failed. Those of
 * the segment before are written, those of the next are read, while the part is updated. */
static bool state_need(ga_worker *w, model *m, const range *r, unsigned arrays) {
    if (r->segment < 0) return true;
    ga_barrier(w);
    if (w->index == 0) {
        const int code = ga_state_file_need(m->state_file, r->segment, arrays, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
    return ga_team_status(w) == 0;
}

/* The end of a sweep: behind this, all states are where they belong. */
static void state_finish(ga_worker *w, model *m) {
    ga_barrier(w);
    if (w->index != 0) return;
    const int code = ga_state_file_finish(m->state_file, &m->error);
    if (code < 0) ga_team_fail(w, code);
}

//% end
//@ buckets(overlap, parameters, windows, gaps, waits, collected, grouped)
//% if windows.text ~= "" then
$windows

//% if gaps then
/* Between two tensors lie a few elements that no kernel writes; the window had other gradients there before. */
static void clear_gaps(model *m, real *window, const ga_bucket *b) {
    const ga_array *all = $parameters;
    for (const ga_param *p = all->params; p < all->params + TRAINED_PARAMS; p++)
        for (int l = 0; l < p->count; l++) {
            const int64_t at = ga_layout_index(p, l, 0) - b->offset;
            for (int64_t k = at + p->n; at >= 0 && k < b->n && k % GA_CUT != 0; k++) window[k] = 0;
        }
}

//% end
/* Starts the exchange of a bucket: its gradients in their window are summed over the ranks, and written to what each
 * rank keeps, or added. Each micro-step does. */
static void bucket_start(ga_worker *w, model *m, int i, bool adds) {
    ga_barrier(w);
    if (w->index != 0) return;
    const ga_bucket *b = &m->division.buckets[i];
//% if gaps then
    clear_gaps(m, m->windows + WINDOWS[i], b);
//% end
//% if collected then
    const bool scatters = b->kind == GA_REDUCE_SCATTER; /* else it is what the cycle has collected */
    const ga_exchange sum = {.kind = b->kind, .values = scatters ? m->windows + WINDOWS[i] : m->collected, .n = b->n,
                             .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = b->wire,
                             .shard = scatters ? m->flat_g + ga_division_place(&m->division, i) : NULL, .add = adds};
//% else
    const ga_exchange sum = {.kind = b->kind, .values = m->windows + WINDOWS[i], .n = b->n,
                             .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = b->wire,
                             .shard = m->flat_g + ga_division_place(&m->division, i), .add = adds};
//% end
//% else
/* Starts the sum of a bucket over the ranks. Only the last micro-step of a cycle does. */
static void bucket_start(ga_worker *w, model *m, int i) {
    ga_barrier(w);
    if (w->index != 0) return;
    const ga_bucket *b = &m->division.buckets[i];
//% if grouped then
    const ga_exchange sum = {.kind = b->kind, .values = m->flat_g + b->offset, .n = b->n,
                             .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = b->wire,
                             .group = m->division.groups[i]};
//% else
    const ga_exchange sum = {.kind = b->kind, .values = m->flat_g + b->offset, .n = b->n,
                             .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = b->wire};
//% end
//% end
//% if overlap then
    const int code = ga_comm_start(m->comm, i, &sum, &m->error);
//% else
    int code = ga_comm_start(m->comm, i, &sum, &m->error);
    if (code == 0) code = ga_comm_wait(m->comm, i, &m->error);
//% end
    if (code < 0) ga_team_fail(w, code);
}

//% if waits then
/* Waits until the gradients of a bucket have left its window. */
static void bucket_wait(ga_worker *w, model *m, int i) {
    if (w->index == 0) {
        const int code = ga_comm_wait(m->comm, i, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

//% end
static void buckets_finish(ga_worker *w, model *m) {
    for (int i = 0; i < m->division.count && w->index == 0; i++) {
        const int code = ga_comm_wait(m->comm, i, &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
}

//@ chunk_order(prefetch, places, orders)
/* Where the window of each chunk of parameters begins. */
$places

/* Chunks in the order in which a pass over a micro-batch needs them. */
typedef struct chunk_order { int count; const int *chunks; } chunk_order;
$orders

enum { PREFETCH = $prefetch }; /* gathers that run ahead of the kernels */

//@ chunks(half)
/* Starts the gather of a chunk: each rank has its own part of it. */
static void chunk_start(ga_worker *w, model *m, int i) {
    const ga_bucket *b = &m->division.buckets[i];
//% if half then
    ga_exchange all = {.kind = GA_ALL_GATHER, .values = m->chunks + CHUNKS[i], .n = b->n,
                       .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = REAL,
                       .shard = m->flat_w + ga_division_place(&m->division, i)};
    const int64_t *words = ga_sent_cuts(&m->sent, i);
    if (words) /* kernels read some of it in 16 bits */
        all = (ga_exchange){.kind = GA_ALL_GATHER, .values = m->chunks + CHUNKS[i], .n = words[m->sent.size],
                            .cuts = words, .type = GA_$half, .wire = GA_$half,
                            .shard = m->words + m->sent.places[i]};
//% else
    const ga_exchange all = {.kind = GA_ALL_GATHER, .values = m->chunks + CHUNKS[i], .n = b->n,
                             .cuts = ga_division_cuts(&m->division, i), .type = REAL, .wire = REAL,
                             .shard = m->flat_w + ga_division_place(&m->division, i)};
//% end
    const int code = ga_comm_start(m->comm, m->division.count + i, &all, &m->error);
    if (code < 0) ga_team_fail(w, code);
}

/* Behind this, place k of the order is there. Before it, all kernels have ended that read what had the memory of the
 * chunks whose gathers start here. */
static void chunk_need(ga_worker *w, model *m, const chunk_order *order, int k) {
    ga_barrier(w);
    if (w->index == 0) {
        for (int i = k > 0 ? k + PREFETCH : 0; i <= k + PREFETCH && i < order->count; i++)
            chunk_start(w, m, order->chunks[i]);
        const int code = ga_comm_wait(m->comm, m->division.count + order->chunks[k], &m->error);
        if (code < 0) ga_team_fail(w, code);
    }
    ga_barrier(w);
}

//@ gather()
/* Each rank has updated its own part of the parameters: all get the parts of all. */
static void parameters_gather(ga_worker *w, model *m) {
    if (w->index != 0) return;
    const int code = ga_division_gather(&m->division, m->comm, m->flat_w, REAL, &m->error);
    if (code < 0) ga_team_fail(w, code);
}

//@ sent()
/* Makes the values that this rank sends of its parameters, once per update: in 16 bits where kernels read these. */
static void sent_pack(ga_worker *w, model *m) {
    for (ga_tiles t = ga_tiles_begin(w, m->sent.count); ga_tile_next(&t);)
        ga_sent_pack(&m->sent, (int)t.index, m->flat_w, m->words);
}

//@ views(view_calls)
/* Copies of weights in the layout that kernels read, made once per update. */
static void pack_views(ga_worker *w, model *m) {
    $view_calls
    ga_barrier(w);
}

//@ small_sum(split, largest, lists)
/* This rank's part of the norm, group by group, and the count of elements of its gradient that are not finite. */
static void own_norms(model *m) {
    double *small = m->step.small;
    int64_t i = 0;
    for (int k = SMALL_NONFINITE; k < SMALL; k++) small[k] = 0;
    for (int k = 0; k < NORMS; k++)
        for (; i < m->step.norm_ends[k]; i++) {
//% if largest then
            small[SMALL_NORM + k] = fmax(small[SMALL_NORM + k], m->partials[2 * i]);
//% else
            small[SMALL_NORM + k] += m->partials[2 * i];
//% end
            small[SMALL_NONFINITE] += m->partials[2 * i + 1];
        }
}

static void sum_small(ga_worker *w, model *m, int from, int end, int largest) {
    const int code = ga_comm_small(m->comm, m->step.small + from, (size_t)(end - from), (size_t)largest, &m->error);
    if (code < 0) ga_team_fail(w, code);
}

//% if split then
/* The small sum over the ranks: loss, weight, rows, requests to stop or save. */
//% else
/* The one small sum over the ranks: loss, weight, rows, requests to stop or save, the norm of the gradient. */
//% end
static void small_sum(ga_worker *w, model *m) {
    if (w->index != 0) return;
    double *small = m->step.small;
    small[SMALL_LOSS] = m->sums[SUM_LOSS];
    small[SMALL_WEIGHT] = m->sums[SUM_WEIGHT];
    small[SMALL_ROWS] = m->sums[SUM_ROWS];
    small[SMALL_STOP] = ga_stop_requests();
//% if lists > 0 then
    for (int i = SMALL_LISTS; i < SMALL_NONFINITE; i++) small[i] = 0;
    for (int k = 1; k <= $lists; k++) small[SMALL_LISTS + ga_comm_list(m->comm, k)] = m->sums[SUM_WEIGHT];
//% end
//% if split then
    sum_small(w, m, 0, SMALL_NONFINITE, 0);
}

/* The norm of the changed gradient: each rank has measured its own part. */
static void norm_sum(ga_worker *w, model *m) {
    if (w->index != 0) return;
    own_norms(m);
    sum_small(w, m, SMALL_NONFINITE, SMALL, LARGEST);
}
//% else
    own_norms(m);
    sum_small(w, m, 0, SMALL, LARGEST);
}
//% end

//@ totals(ranks, by_sum, divisor, full)
//% if ranks then
const double losses = s->small[SMALL_LOSS]; /* of all ranks */
m->stop = ga_stop_agreed(s->small[SMALL_STOP], &m->save);
s->weight = s->small[SMALL_WEIGHT];
s->rows = s->small[SMALL_ROWS];
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

//@ shares(by_sum, lines)
/* The factor that turns a sum over this rank's list of a group, times the mean's factor over all ranks, into the mean
 * over the list. */
static double share_of(const model *m, int group) {
//% if by_sum then
    return (double)ga_comm_size(m->comm) / ga_comm_group_size(m->comm, group);
//% else
    const double weight = m->step.small[SMALL_LISTS + ga_comm_list(m->comm, group)];
    return weight > 0 ? m->step.weight / weight : 0;
//% end
}

static void set_shares(model *m) {
    real *share = m->step.share;
    $lines
}

//@ sum_up(totals, shares)
/* The sums of the cycle, by which the gradient is divided before it is changed. */
static void sum_up(ga_worker *w, model *m) {
    if (w->index != 0) return;
    step *s = &m->step;
    $totals
    s->mean = (real)mean;
//% if shares then
    set_shares(m);
//% end
}

//@ norm(ranks, sum, largest, groups, group_tiles)
//% if ranks then
s->nonfinite = s->small[SMALL_NONFINITE];
//% if groups > 0 then
const double *of_group = s->small + SMALL_NORM;
double $sum = 0;
//% if largest then
for (int k = 0; k < NORMS; k++) $sum = fmax($sum, of_group[k]);
//% else
for (int k = 0; k < NORMS; k++) $sum += of_group[k];
//% end
//% else
const double $sum = s->small[SMALL_NORM];
//% end
//% else
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

//@ decide(ranks, norm, totals, grad_norm, skip, outliers, factor, rate_lines, scalars, scale_moved)
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
