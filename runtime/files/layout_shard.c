/* layout_shard.c: see layout_shard.h. */
#include "files/layout_shard.h"

#include <stdlib.h>
#include <string.h>

/* The elements of iteration l of a tensor that go with a piece of the flat space. */
static ga_piece going_with(const ga_piece *piece, const ga_param *p, const ga_param *tensor, int l) {
    const int64_t first = ga_layout_index(p, l, 0), at = ga_layout_index(tensor, l, 0);
    const int64_t from = piece->from > first ? piece->from - first : 0;
    const int64_t end = piece->from + piece->n - first < p->n ? piece->from + piece->n - first : p->n;
    if (from >= end) return (ga_piece){0};
    if (tensor->n != p->n) return (ga_piece){at, from == 0 ? tensor->n : 0, 0};
    return (ga_piece){at + from, end - from, 0};
}

static const ga_param *named(const ga_param *params, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(params[i].name, name) == 0) return &params[i];
    return NULL;
}

static int by_beginning(const void *a, const void *b) {
    const int64_t x = ((const ga_piece *)a)->from, y = ((const ga_piece *)b)->from;
    return (x > y) - (x < y);
}

/* Writes the pieces of an array to `out`, NULL: counts them. */
static int collect(ga_piece *out, const ga_shard *own, const ga_param *params, int count, const ga_param *of,
                   int of_count) {
    int found = 0;
    for (int i = 0; i < of_count; i++) {
        const ga_param *p = named(params, count, of[i].name);
        for (int l = 0; p && l < p->count; l++)
            for (int k = 0; k < own->count; k++) {
                const ga_piece piece = going_with(&own->pieces[k], p, &of[i], l);
                if (piece.n > 0 && out) out[found] = piece;
                found += piece.n > 0;
            }
    }
    return found;
}

int ga_layout_shard(ga_shard *out, const ga_shard *own, const ga_param *params, int count, const ga_param *of,
                    int of_count, ga_err *e) {
    const int found = collect(NULL, own, params, count, of, of_count);
    GA_TRY(ga_shard_open(out, found, e));
    collect(out->pieces, own, params, count, of, of_count);
    qsort(out->pieces, (size_t)found, sizeof(ga_piece), by_beginning);
    for (int i = 0; i < found; i++) ga_shard_add(out, out->pieces[i].from, out->pieces[i].n);
    return GA_OK;
}
