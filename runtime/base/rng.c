/* rng.c: counter-based numbers, permutation, initial values. rng.h defines them exactly. */
#include "base/rng.h"

#include <math.h>

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

void ga_init_uniform_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                         double low, double high) {
    uint64_t key = ga_rng_key(seed, ga_rng_stream(name));
    for (int64_t i = 0; i < count; i++)
        ga_set(data, t, i, low + (high - low) * ga_uniform(ga_rng_at(key, (uint64_t)(first + i))));
}

void ga_init_normal_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                        double sd) {
    const double two_pi = 6.283185307179586476925;
    uint64_t key = ga_rng_key(seed, ga_rng_stream(name));
    for (int64_t i = 0; i < count; i++) {
        double u = ga_uniform(ga_rng_at(key, 2 * (uint64_t)(first + i)));
        double v = ga_uniform(ga_rng_at(key, 2 * (uint64_t)(first + i) + 1));
        ga_set(data, t, i, sd * sqrt(-2 * log1p(-u)) * cos(two_pi * v));
    }
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
