/* divided.h: for unit tests: three arrays over a flat space of four parameters, whole and divided over the ranks. */
#ifndef DIVIDED_H
#define DIVIDED_H

#include "group.h"

#include "base/rng.h"
#include "files/layout.h"

enum { FLAT = 5056, ARRAYS = 3, PIECES = 256, ROOM = 2 * FLAT, CUTS = 6, GUARD = -7 };

/* Odd sizes, a region, a scalar, padding, and a tensor that does not travel at once. */
static const ga_param params[] = {{"a", 0, 1, 2, {3, 5}, 0, 0, 15},
                                  {"h.%d.b", 0, 3, 1, {7}, 16, 8, 7},
                                  {"s", 0, 1, 0, {0}, 40, 0, 1},
                                  {"z", 0, 1, 2, {3, 1667}, 48, 0, 5001}};
enum { PARAMS = sizeof params / sizeof *params };

typedef struct {
    double values[ARRAYS][FLAT], memory[ARRAYS][ROOM], weights[FLAT];
    ga_piece pieces[PIECES];
    ga_shard shard;
    ga_array whole[ARRAYS], mine[ARRAYS], model;
} state;

static inline double random_value(uint64_t seed, int array, int64_t i) {
    return ga_uniform(ga_rng(seed, (uint64_t)array, (uint64_t)i)) - 0.5;
}

/* The same whole arrays on all ranks. */
static inline void fill(state *s, uint64_t seed) {
    static const ga_dtype types[ARRAYS] = {GA_F32, GA_F64, GA_BF16};
    static const char *const suffixes[ARRAYS] = {".m", ".v", ".r"};
    for (int k = 0; k < ARRAYS; k++) {
        s->whole[k] = (ga_array){params, PARAMS, suffixes[k], types[k], s->values[k], NULL, NULL};
        for (int64_t i = 0; i < FLAT; i++) ga_set(s->values[k], types[k], i, random_value(seed, k, i));
    }
    s->model = (ga_array){params, PARAMS, "", GA_F64, s->weights, NULL, NULL};
    for (int64_t i = 0; i < FLAT; i++) s->weights[i] = random_value(seed, ARRAYS, i);
}

/* The owner of the next elements: cut 0 leaves nothing to rank 0, cut 1 nothing to all but the last. */
static inline int owner(const group *g, int cut, uint64_t random) {
    if (cut == 1) return g->size - 1;
    return cut == 0 && g->size > 1 ? 1 + (int)(random % (uint64_t)(g->size - 1)) : (int)(random % (uint64_t)g->size);
}

/* Divides the flat space, in short pieces where the tensors are small, with gaps between them in memory. */
static inline void divide(state *s, const group *g, int cut) {
    int64_t at = 0, n;
    s->shard = (ga_shard){s->pieces, 0, ROOM};
    for (int64_t from = 0, i = 0; from < FLAT; from += n, i += 2) {
        const uint64_t random = ga_rng(77, (uint64_t)cut, (uint64_t)i);
        const uint64_t other = ga_rng(77, (uint64_t)cut, (uint64_t)i + 1);
        n = 1 + (int64_t)(random % (from < 48 ? 9 : 3000));
        if (n > FLAT - from) n = FLAT - from;
        if (owner(g, cut, other) != g->rank) continue;
        assert_true(s->shard.count < PIECES);
        s->pieces[s->shard.count++] = (ga_piece){from, n, at};
        at += n + (int64_t)(other / 16 % 3);
    }
    for (int k = 0; k < ARRAYS; k++) {
        s->mine[k] = s->whole[k];
        s->mine[k].base = s->memory[k];
        s->mine[k].shard = &s->shard;
    }
}

static inline bool is_padding(int64_t i) {
    for (int k = 0; k < PARAMS; k++)
        for (int l = 0; l < params[k].count; l++) {
            const int64_t from = params[k].offset + l * params[k].stride;
            if (i >= from && i < from + params[k].n) return false;
        }
    return true;
}

static inline double whole_value(const state *s, int array, int64_t i) {
    return ga_get(s->values[array], s->whole[array].dtype, i);
}

/* Fills the memory of this rank with its part, or with GUARD. */
static inline void put_parts(state *s, bool values) {
    for (int k = 0; k < ARRAYS; k++) {
        const ga_dtype t = s->mine[k].dtype;
        for (int64_t i = 0; i < ROOM; i++) ga_set(s->memory[k], t, i, GUARD);
        for (int p = 0; p < s->shard.count && values; p++)
            for (int64_t i = 0; i < s->pieces[p].n; i++)
                ga_set(s->memory[k], t, s->pieces[p].at + i, whole_value(s, k, s->pieces[p].from + i));
    }
}

/* All that the pieces name has the values of the whole arrays, except for padding; nothing else is touched. */
static inline void assert_parts(const state *s, int arrays) {
    static double expected[ROOM];
    for (int k = 0; k < arrays; k++) {
        for (int64_t i = 0; i < ROOM; i++) expected[i] = GUARD;
        for (int p = 0; p < s->shard.count; p++)
            for (int64_t i = 0; i < s->pieces[p].n; i++)
                if (!is_padding(s->pieces[p].from + i))
                    expected[s->pieces[p].at + i] = whole_value(s, k, s->pieces[p].from + i);
        for (int64_t i = 0; i < ROOM; i++) assert_true(ga_get(s->memory[k], s->mine[k].dtype, i) == expected[i]);
    }
}

#endif
