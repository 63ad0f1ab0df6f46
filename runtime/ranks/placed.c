/* placed.c: see placed.h. */
#include "ranks/placed.h"

int ga_placed_bucket(const ga_placed *p, int64_t at) {
    const ga_bucket *b = p->division->buckets;
    int i = 0;
    while (at < b[i].offset || at >= b[i].offset + b[i].n) i++;
    return i;
}

int ga_placed_open(ga_placed *p, const ga_division *d, const ga_placing *places, ga_err *e) {
    *p = (ga_placed){.division = d, .places = places};
    int code = ga_shard_open(&p->values, d->own.count, e);
    if (code == GA_OK) code = ga_shard_open(&p->state, d->own.count, e);
    if (code == GA_OK) code = ga_shard_open(&p->updated, d->own.count, e);
    for (int k = 0; k < d->own.count && code == GA_OK; k++) {
        const ga_piece *own = &d->own.pieces[k];
        const ga_placing place = places[ga_placed_bucket(p, own->from)];
        if (place != GA_ON_HOST) ga_shard_add(&p->values, own->from, own->n);
        ga_shard_add(place == GA_ON_DEVICE ? &p->state : &p->updated, own->from, own->n);
    }
    if (code < 0) ga_placed_close(p);
    return code;
}

void ga_placed_close(ga_placed *p) {
    ga_shard_close(&p->values);
    ga_shard_close(&p->state);
    ga_shard_close(&p->updated);
    *p = (ga_placed){0};
}

int64_t ga_placed_at(const ga_placed *p, int i) {
    const ga_division *d = p->division;
    const int64_t *cuts = ga_division_cuts(d, i), from = cuts[d->rank];
    if (p->places[i] == GA_ON_HOST) return ga_division_place(d, i);
    return from < cuts[d->rank + 1] ? ga_shard_place(&p->values, d->buckets[i].offset + from) : 0;
}
