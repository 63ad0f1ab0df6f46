/* layout.c: see layout.h. */
#include "files/layout.h"

#include <stdio.h>
#include <string.h>

char *ga_param_name(const ga_param *p, int l, const char *suffix, char *out) {
    const char *mark = strstr(p->name, "%d");
    if (mark)
        snprintf(out, GA_NAME_MAX, "%.*s%d%s%s", (int)(mark - p->name), p->name, p->first + l,
                 mark + 2, suffix);
    else
        snprintf(out, GA_NAME_MAX, "%s%s", p->name, suffix);
    return out;
}

int64_t ga_layout_index(const ga_param *p, int l, int64_t i) {
    return p->offset + l * p->stride + i;
}

/* How many elements of a run lie together, in memory or in the rest. */
static int64_t together(const ga_array *a, const ga_held *h) {
    const int64_t before = a->rest->from - h->at;
    const int64_t most = before > 0 ? before : GA_RUN / (int64_t)ga_dtype_bytes(a->dtype);
    return h->n < most ? h->n : most;
}

bool ga_array_next(const ga_array *a, const ga_param *p, int l, ga_held *h) {
    const int64_t start = ga_layout_index(p, l, 0), done = start + h->i + h->n, end = start + p->n;
    const ga_piece whole = {start, p->n, start}, *pieces = a->shard ? a->shard->pieces : &whole;
    const int count = a->shard ? a->shard->count : 1;
    for (int k = 0; k < count; k++) {
        const ga_piece *piece = &pieces[k];
        const int64_t from = piece->from > done ? piece->from : done;
        const int64_t to = piece->from + piece->n < end ? piece->from + piece->n : end;
        if (from >= to) continue;
        *h = (ga_held){from - start, to - from, piece->at + from - piece->from};
        if (a->rest) h->n = together(a, h);
        return true;
    }
    return false;
}

static bool in_memory(const ga_array *a, const ga_held *h) {
    return !a->rest || h->at < a->rest->from;
}

static char *place_of(const ga_array *a, const ga_held *h) {
    return (char *)a->base + h->at * (int64_t)ga_dtype_bytes(a->dtype);
}

void *ga_array_get(const ga_array *a, const ga_held *h, void *buffer, ga_err *e) {
    if (in_memory(a, h)) return place_of(a, h);
    return a->rest->read(a->rest, h->at, h->n, buffer, e) < 0 ? NULL : buffer;
}

int ga_array_put(const ga_array *a, const ga_held *h, const void *values, ga_err *e) {
    if (!in_memory(a, h)) return a->rest->write(a->rest, h->at, h->n, values, e);
    if (values != place_of(a, h)) memcpy(place_of(a, h), values, (size_t)h->n * ga_dtype_bytes(a->dtype));
    return GA_OK;
}

bool ga_array_divided(const ga_array *arrays, int count) {
    for (int i = 0; i < count; i++)
        if (arrays[i].shard) return true;
    return false;
}

bool ga_layout_find(const ga_param *params, int count, const char *name, int *param, int *l) {
    char text[GA_NAME_MAX];
    for (*param = 0; *param < count; ++*param)
        for (*l = 0; *l < params[*param].count; ++*l)
            if (strcmp(ga_param_name(&params[*param], *l, "", text), name) == 0) return true;
    return false;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t n) {
    const unsigned char *at = data;
    for (size_t i = 0; i < n; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

uint64_t ga_layout_hash(const ga_param *params, int count, uint64_t hash) {
    char text[GA_NAME_MAX];
    for (int i = 0; i < count; i++) {
        const ga_param *p = &params[i];
        for (int l = 0; l < p->count; l++) {
            ga_param_name(p, l, "", text);
            hash = hash_bytes(hash, text, strlen(text) + 1);
            for (int d = 0; d < p->rank; d++) {
                int n = snprintf(text, sizeof text, "%lld,", (long long)p->shape[d]);
                hash = hash_bytes(hash, text, (size_t)n);
            }
        }
    }
    return hash;
}
