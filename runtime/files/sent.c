/* sent.c: see sent.h. */
#include "files/sent.h"

#include <stdlib.h>
#include <string.h>

/* The parameters of a program, and which of them kernels read in 16 bits. */
typedef struct kinds {
    const ga_param *params;
    const bool *halves;
    int count;
} kinds;

/* The elements that iteration l of a parameter takes in the flat space, those behind it too: *first up to *end. */
static void taken(const ga_param *p, int l, int64_t *first, int64_t *end) {
    *first = ga_layout_index(p, l, 0);
    *end = *first + (p->n + GA_CUT - 1) / GA_CUT * GA_CUT;
}

/* How many of the elements from .. end - 1 kernels read in 16 bits. */
static int64_t count_halves(const kinds *k, int64_t from, int64_t end) {
    int64_t sum = 0;
    for (int i = 0; i < k->count; i++)
        for (int l = 0; k->halves[i] && l < k->params[i].count; l++) {
            int64_t a, b;
            taken(&k->params[i], l, &a, &b);
            if (a < from) a = from;
            if (b > end) b = end;
            if (a < b) sum += b - a;
        }
    return sum;
}

/* Whether kernels read element x in 16 bits; *end: the first element behind it of the other kind, if it is below. */
static bool kind_of(const kinds *k, int64_t x, int64_t *end) {
    bool half = false;
    for (int i = 0; i < k->count; i++)
        for (int l = 0; k->halves[i] && l < k->params[i].count; l++) {
            int64_t a, b;
            taken(&k->params[i], l, &a, &b);
            half = half || (a <= x && x < b);
            const int64_t next = a > x ? a : b; /* where the kind may change */
            if (next > x && next < *end) *end = next;
        }
    return half;
}

/* Appends the runs of elements from .. end - 1, which are at element `at` of this rank's memory, or counts them where
 * `to` is NULL. */
static void add_runs(ga_sent *s, const kinds *k, int64_t from, int64_t end, int64_t at, ga_sent_run *to) {
    for (int64_t x = from, next; x < end; at += next - x, x = next) {
        next = end;
        const bool half = kind_of(k, x, &next);
        if (next - x > GA_SENT_MOST) next = x + GA_SENT_MOST;
        if (to) to[s->count] = (ga_sent_run){at, s->words, (int)(next - x), half};
        s->count++;
        s->words += (next - x) * (half ? 1 : 2);
    }
}

const int64_t *ga_sent_cuts(const ga_sent *s, int bucket) {
    const int64_t *cuts = s->cuts + (int64_t)bucket * (s->size + 1);
    return cuts[s->size] > 0 ? cuts : NULL;
}

static void set_cuts(ga_sent *s, const ga_division *d, const kinds *k) {
    for (int i = 0; i < d->count; i++) {
        const int64_t first = d->buckets[i].offset, *cuts = ga_division_cuts(d, i);
        const bool sent = count_halves(k, first, first + d->buckets[i].n) > 0;
        for (int rank = 0; rank <= s->size; rank++)
            s->cuts[i * (s->size + 1) + rank] = sent ? 2 * cuts[rank] - count_halves(k, first, first + cuts[rank]) : 0;
    }
}

/* Appends all runs of this rank to `to`, or counts them. */
static void add_all(ga_sent *s, const ga_division *d, const kinds *k, ga_sent_run *to) {
    s->count = 0;
    s->words = 0;
    for (int i = 0; i < d->count; i++) {
        const int64_t first = d->buckets[i].offset, *cuts = ga_division_cuts(d, i) + d->rank;
        s->places[i] = s->words;
        if (ga_sent_cuts(s, i)) add_runs(s, k, first + cuts[0], first + cuts[1], ga_division_place(d, i), to);
    }
}

int ga_sent_open(ga_sent *s, const ga_division *d, const ga_param *params, const bool *halves, int count, ga_dtype half,
                 ga_err *e) {
    const kinds k = {params, halves, count};
    const size_t buckets = (size_t)d->count;
    *s = (ga_sent){.half = half, .size = d->size};
    s->cuts = malloc(sizeof *s->cuts * buckets * (size_t)(d->size + 1));
    s->places = malloc(sizeof *s->places * buckets);
    if (s->cuts && s->places) {
        set_cuts(s, d, &k);
        add_all(s, d, &k, NULL);
        s->runs = malloc(sizeof *s->runs * (size_t)(s->count + 1));
    }
    if (!s->runs) {
        ga_sent_close(s);
        return ga_fail(e, GA_ENVIRONMENT, "no memory for what is sent of %d buckets", d->count);
    }
    add_all(s, d, &k, s->runs);
    return GA_OK;
}

void ga_sent_close(ga_sent *s) {
    free(s->cuts);
    free(s->places);
    free(s->runs);
    *s = (ga_sent){0};
}

void ga_sent_pack(const ga_sent *s, int run, const float *own, uint16_t *words) {
    const ga_sent_run *r = &s->runs[run];
    if (r->half) ga_exchange_narrow(words + r->to, own + r->from, r->n, s->half);
    else memcpy(words + r->to, own + r->from, sizeof(float) * (size_t)r->n);
}
