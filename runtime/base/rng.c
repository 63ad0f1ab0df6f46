/* rng.c: counter-based numbers, permutation, initial values. rng.h defines them exactly. */
#include "base/rng.h"

#include "base/cores.h"

#include <math.h>
#include <pthread.h>

uint64_t ga_rng_key(uint64_t seed, uint64_t stream) {
    return ga_rng_mix(ga_rng_mix(seed + 0x9e3779b97f4a7c15u) ^ stream);
}

uint64_t ga_rng(uint64_t seed, uint64_t stream, uint64_t index) {
    return ga_rng_at(ga_rng_key(seed, stream), index);
}

uint64_t ga_rng_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

uint64_t ga_draw_key(uint64_t seed, uint64_t stream, uint64_t iteration, uint64_t cycle,
                     uint64_t row) {
    uint64_t name = ga_rng_at(ga_rng_key(seed, stream), iteration);
    return ga_rng_at(ga_rng_key(name, cycle), row);
}

uint64_t ga_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i) {
    uint64_t key = ga_rng_key(seed, stream), x = i;
    int half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (ga_rng_at(key, round << 32 | right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

/* -- initial values: elements are drawn alone, so threads share out those of a large array ------------------------ */

enum { DRAWS_OF_A_THREAD = 1 << 18, DRAWING_THREADS = 16 };

/* Elements of an array to draw: uniform from `low` on within `width`, or, with `normal`, with `width` as their
 * deviation. */
typedef struct draw {
    void *data;
    ga_dtype type;
    int64_t first;
    uint64_t key;
    bool normal;
    double low, width;
} draw;

/* The elements of it that one thread draws. */
typedef struct drawn_part {
    const draw *of;
    int64_t from, to;
} drawn_part;

static void *draw_part(void *arg) {
    const drawn_part *p = arg;
    const draw *d = p->of;
    const double two_pi = 6.283185307179586476925;
    for (int64_t i = p->from; i < p->to; i++) {
        const uint64_t e = (uint64_t)(d->first + i);
        if (d->normal) {
            double u = ga_uniform(ga_rng_at(d->key, 2 * e)), v = ga_uniform(ga_rng_at(d->key, 2 * e + 1));
            ga_set(d->data, d->type, i, d->width * sqrt(-2 * log1p(-u)) * cos(two_pi * v));
        } else {
            ga_set(d->data, d->type, i, d->low + d->width * ga_uniform(ga_rng_at(d->key, e)));
        }
    }
    return NULL;
}

static void draw_all(const draw *d, int64_t count) {
    if (count < 2 * DRAWS_OF_A_THREAD) {
        draw_part(&(drawn_part){d, 0, count});
        return;
    }
    pthread_t threads[DRAWING_THREADS];
    bool started[DRAWING_THREADS] = {false};
    drawn_part parts[DRAWING_THREADS];
    const int64_t cores = ga_cores_usable(), busy = count / DRAWS_OF_A_THREAD;
    int64_t n = cores < busy ? cores : busy;
    n = n > DRAWING_THREADS ? DRAWING_THREADS : n;
    for (int64_t k = n - 1; k >= 0; k--) {
        parts[k] = (drawn_part){d, count * k / n, count * (k + 1) / n};
        started[k] = k > 0 && pthread_create(&threads[k], NULL, draw_part, &parts[k]) == 0;
    }
    for (int64_t k = 0; k < n; k++)
        if (started[k]) pthread_join(threads[k], NULL);
        else draw_part(&parts[k]);
}

void ga_init_uniform_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                         double low, double high) {
    const uint64_t key = ga_rng_key(seed, ga_rng_stream(name));
    draw_all(&(draw){data, t, first, key, false, low, high - low}, count);
}

void ga_init_normal_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                        double sd) {
    const uint64_t key = ga_rng_key(seed, ga_rng_stream(name));
    draw_all(&(draw){data, t, first, key, true, 0, sd}, count);
}

void ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                     double low, double high) {
    ga_init_uniform_run(data, t, 0, count, seed, name, low, high);
}

void ga_init_normal(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                    double sd) {
    ga_init_normal_run(data, t, 0, count, seed, name, sd);
}

void ga_init_value(void *data, ga_dtype t, int64_t count, double value) {
    for (int64_t i = 0; i < count; i++) ga_set(data, t, i, value);
}
