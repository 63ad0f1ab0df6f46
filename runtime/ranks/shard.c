/* shard.c: see shard.h. */
#include "ranks/shard.h"

#include <stdlib.h>

/* === shards ============================================================================================= */

int ga_shard_open(ga_shard *s, int count, ga_err *e) {
    *s = (ga_shard){.pieces = malloc(sizeof(ga_piece) * (size_t)(count + 1))};
    return s->pieces ? GA_OK : ga_fail(e, GA_ENVIRONMENT, "no memory for a table of %d pieces", count);
}

void ga_shard_close(ga_shard *s) {
    free(s->pieces);
    *s = (ga_shard){0};
}

void ga_shard_add(ga_shard *s, int64_t from, int64_t n) {
    s->pieces[s->count++] = (ga_piece){from, n, s->elements};
    s->elements += (n + GA_CUT - 1) / GA_CUT * GA_CUT;
}

int64_t ga_shard_place(const ga_shard *s, int64_t i) {
    int low = 0, high = s->count; /* the piece, if there is one, is in low .. high - 1 */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (s->pieces[middle].from <= i) low = middle;
        else high = middle;
    }
    if (low == high) return -1;
    const ga_piece *p = &s->pieces[low];
    return i >= p->from && i < p->from + p->n ? p->at + i - p->from : -1;
}

/* === cuts =============================================================================================== */

/* The tensors of a bucket: their first elements, and its end. */
typedef struct tensors {
    const int64_t *starts;
    int count;
    int64_t end;
} tensors;

static tensors tensors_of(const ga_bucket *b, const int64_t *starts, int count) {
    tensors t = {starts, 0, b->offset + b->n};
    while (count > 0 && *t.starts < b->offset) t.starts++, count--;
    while (t.count < count && t.starts[t.count] < t.end) t.count++;
    return t;
}

/* Gives each rank in turn the tensors that it has room for below `most` elements; false: some are left. */
static bool fill(const tensors *t, const int64_t *load, int size, int64_t most, int64_t *cuts) {
    int at = 0;
    cuts[0] = 0;
    for (int rank = 0; rank < size; rank++) {
        const int first = at;
        for (; at < t->count; at++) {
            const int64_t end = at + 1 < t->count ? t->starts[at + 1] : t->end;
            if (load[rank] + end - t->starts[first] > most) break;
        }
        cuts[rank + 1] = (at < t->count ? t->starts[at] : t->end) - t->starts[0];
    }
    return at == t->count;
}

/* Cuts a bucket between tensors, and adds what each rank gets to its load. */
static void cut_whole(const ga_bucket *b, const tensors *t, int64_t *load, int size, int64_t *cuts) {
    int64_t low = 0, high = b->n; /* the least that the fullest rank has is in low + 1 .. high */
    for (int rank = 0; rank < size; rank++)
        if (load[rank] + b->n > high) high = load[rank] + b->n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (fill(t, load, size, middle, cuts)) high = middle;
        else low = middle;
    }
    fill(t, load, size, high, cuts);
    for (int rank = 0; rank < size; rank++) load[rank] += cuts[rank + 1] - cuts[rank];
}

static int64_t *cuts_of(const ga_division *d, int i) {
    return d->cuts + (int64_t)i * (d->size + 1);
}

/* The bucket with the lowest offset above `above`; -1: there is none. */
static int next_bucket(const ga_division *d, int64_t above) {
    int best = -1;
    for (int i = 0; i < d->count; i++) {
        const int64_t offset = d->buckets[i].offset;
        if (offset > above && (best < 0 || offset < d->buckets[best].offset)) best = i;
    }
    return best;
}

/* Gives the buckets that have one owner each to the ranks in turn. */
static void cut_owned(const ga_division *d, int64_t *load) {
    for (int i = next_bucket(d, -1); i >= 0; i = next_bucket(d, d->buckets[i].offset)) {
        if (d->buckets[i].sharing != GA_BY_BUCKET) continue;
        int owner = 0;
        for (int rank = 1; rank < d->size; rank++)
            if (load[rank] < load[owner]) owner = rank;
        for (int rank = 0; rank <= d->size; rank++) cuts_of(d, i)[rank] = rank <= owner ? 0 : d->buckets[i].n;
        load[owner] += d->buckets[i].n;
    }
}

/* This rank's place among those that divide a bucket, and how many these are. */
static int rank_in(const ga_division *d, int i) {
    return d->comm ? ga_comm_group_rank(d->comm, d->groups[i]) : d->rank;
}

static int size_in(const ga_division *d, int i) {
    return d->comm ? ga_comm_group_size(d->comm, d->groups[i]) : d->size;
}

static void cut_equal(const ga_bucket *b, int size, int64_t *cuts) {
    const ga_exchange x = {.n = b->n};
    for (int rank = 0; rank <= size; rank++) cuts[rank] = ga_cut(&x, rank, size);
}

/* The largest bucket of whole tensors that has not been cut yet, the first of equal ones; -1: there is none. */
static int next_whole(const ga_division *d, const bool *done) {
    int best = -1;
    for (int i = 0; i < d->count; i++) {
        const ga_bucket *b = &d->buckets[i];
        if (b->sharing == GA_BY_TENSOR && !done[i] && (best < 0 || b->n > d->buckets[best].n)) best = i;
    }
    return best;
}

const int64_t *ga_division_cuts(const ga_division *d, int i) {
    return cuts_of(d, i);
}

int64_t ga_division_place(const ga_division *d, int i) {
    const int64_t *cuts = cuts_of(d, i) + rank_in(d, i);
    return cuts[0] < cuts[1] ? ga_shard_place(&d->own, d->buckets[i].offset + cuts[0]) : 0;
}

/* === the division ======================================================================================= */

/* Appends elements that lie where they are in the whole array. */
static void add_in_place(ga_shard *s, int64_t from, int64_t end) {
    if (from >= end) return;
    s->pieces[s->count++] = (ga_piece){from, end - from, from};
    s->elements = end;
}

static void add_pieces(ga_division *d) {
    for (int i = next_bucket(d, -1); i >= 0; i = next_bucket(d, d->buckets[i].offset)) {
        const int64_t first = d->buckets[i].offset, *cuts = cuts_of(d, i) + rank_in(d, i);
        const int64_t from = first + cuts[0], end = first + cuts[1];
        add_in_place(&d->others, first, from);
        add_in_place(&d->in_place, from, end);
        add_in_place(&d->others, end, first + d->buckets[i].n);
        if (from < end) ga_shard_add(&d->own, from, end - from);
    }
}

/* Divides the buckets of d, whose ranks are set. */
static int divide(ga_division *d, const int64_t *starts, int start_count, ga_err *e) {
    const ga_bucket *buckets = d->buckets;
    const int count = d->count, size = d->size;
    d->cuts = malloc(sizeof(int64_t) * (size_t)count * (size_t)(size + 1));
    int64_t *load = calloc((size_t)size, sizeof *load);
    bool *done = calloc((size_t)count, sizeof *done);
    int code = ga_shard_open(&d->own, count, e);
    if (code == GA_OK) code = ga_shard_open(&d->in_place, count, e);
    if (code == GA_OK) code = ga_shard_open(&d->others, 2 * count, e);
    if (code == GA_OK && (!d->cuts || !load || !done))
        code = ga_fail(e, GA_ENVIRONMENT, "no memory for tables of %d buckets and %d ranks", count, size);
    if (code == GA_OK) {
        for (int i = 0; i < count; i++)
            if (buckets[i].sharing == GA_BY_ELEMENT) cut_equal(&buckets[i], size_in(d, i), cuts_of(d, i));
        for (int i; (i = next_whole(d, done)) >= 0; done[i] = true) {
            const tensors t = tensors_of(&buckets[i], starts, start_count);
            cut_whole(&buckets[i], &t, load, size, cuts_of(d, i));
        }
        cut_owned(d, load);
        add_pieces(d);
    }
    free(load);
    free(done);
    if (code < 0) ga_division_close(d);
    return code;
}

int ga_division_open(ga_division *d, const ga_bucket *buckets, int count, const int64_t *starts, int start_count,
                     int rank, int size, ga_err *e) {
    *d = (ga_division){.buckets = buckets, .count = count, .rank = rank, .size = size};
    return divide(d, starts, start_count, e);
}

int ga_division_open_in(ga_division *d, const ga_bucket *buckets, int count, const int *groups, const ga_comm *c,
                        ga_err *e) {
    *d = (ga_division){.buckets = buckets, .count = count, .rank = ga_comm_rank(c), .size = ga_comm_size(c), .comm = c,
                       .groups = groups};
    return divide(d, NULL, 0, e);
}

void ga_division_close(ga_division *d) {
    free(d->cuts);
    ga_shard_close(&d->own);
    ga_shard_close(&d->in_place);
    ga_shard_close(&d->others);
    *d = (ga_division){0};
}

int ga_division_gather(const ga_division *d, ga_comm *c, void *flat, ga_dtype type, ga_err *e) {
    for (int i = 0; i < d->count; i++) {
        const ga_bucket *b = &d->buckets[i];
        void *values = (char *)flat + (size_t)b->offset * ga_dtype_bytes(type);
        const ga_exchange gathered = {.kind = GA_ALL_GATHER, .values = values, .n = b->n, .cuts = cuts_of(d, i),
                                      .type = type, .wire = type};
        if (b->kind == GA_REDUCE_SCATTER) GA_TRY(ga_comm_start(c, i, &gathered, e));
    }
    for (int i = 0; i < d->count; i++) GA_TRY(ga_comm_wait(c, i, e));
    return GA_OK;
}
