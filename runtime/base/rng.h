/* rng.h: random numbers as pure functions of (seed, stream, index), without state to save.
 * All arithmetic is modulo 2^64; G = 0x9e3779b97f4a7c15.
 *   mix(z):  z ^= z >> 30;  z *= 0xbf58476d1ce4e5b9;
 *            z ^= z >> 27;  z *= 0x94d049bb133111eb;  z ^= z >> 31
 *   key    = mix(mix(seed + G) ^ stream)
 *   number = mix(key + G * (index + 1))                        (splitmix64 started at key)
 * Initial values are the same on every machine if compiled with -ffp-contract=off. */
#ifndef GA_RNG_H
#define GA_RNG_H

#include "base/ga.h"

uint64_t ga_rng_key(uint64_t seed, uint64_t stream);
static inline uint64_t ga_rng_at(uint64_t key, uint64_t index);
uint64_t ga_rng(uint64_t seed, uint64_t stream, uint64_t index); /* key and number in one call */

/* Upper 53 bits as a number in [0, 1): (bits >> 11) * 2^-53. */
static inline double ga_uniform(uint64_t bits);

/* Stream of a name: FNV-1a, 64 bits (basis 0xcbf29ce484222325, prime 0x100000001b3). */
uint64_t ga_rng_stream(const char *name);

/* Key of all random numbers of one row of a batch: it does not depend on the micro-step, rank or thread
 * that computes the row. stream: ga_rng_stream of a layer's name or "augment"; iteration: of the `times`
 * around the layer (0 outside); cycle: cycles done before; row: place of the row in the cycle's global
 * batch.
 *   k1 = ga_rng_key(seed, stream);  k2 = ga_rng_key(ga_rng_at(k1, iteration), cycle)
 *   key = ga_rng_at(k2, row);  number e of the row: ga_rng_at(key, e) */
uint64_t ga_draw_key(uint64_t seed, uint64_t stream, uint64_t iteration, uint64_t cycle,
                     uint64_t row);

/* Element i (< n) of a permutation of 0..n-1 (n > 0) chosen by (seed, stream), computed without memory.
 *   h = smallest number >= 1 with 4^h >= n,  M = 2^h - 1
 *   one pass over x < 4^h:  L = x >> h,  R = x & M;
 *       for round = 0..5:  (L, R) = (R, L ^ (ga_rng(seed, stream, round * 2^32 + R) & M));
 *       x = L << h | R
 * The first pass is over i; passes are repeated over their result until it is < n. */
uint64_t ga_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);

/* Fill `count` elements of data (GA_F32 or GA_F64) as a function of (seed, name, element), computed in
 * double and then rounded to the type; large arrays by up to 16 threads, which end with the call.
 *   uniform: low + (high - low) * U(element)
 *   normal:  sd * sqrt(-2 ln(1 - U(2 element))) * cos(2 pi U(2 element + 1))
 * with U(k) = ga_uniform(ga_rng(seed, ga_rng_stream(name), k)). */
void ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                     double low, double high);
void ga_init_normal(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                    double sd);

/* The same of elements first .. first + count - 1, of which data has nothing else. */
void ga_init_uniform_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                         double low, double high);
void ga_init_normal_run(void *data, ga_dtype t, int64_t first, int64_t count, uint64_t seed, const char *name,
                        double sd);
void ga_init_value(void *data, ga_dtype t, int64_t count, double value);

/* Inline, since kernels draw one number per element in their loops. */
static inline uint64_t ga_rng_mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t ga_rng_at(uint64_t key, uint64_t index) {
    return ga_rng_mix(key + 0x9e3779b97f4a7c15u * (index + 1));
}

static inline double ga_uniform(uint64_t bits) {
    return (double)(bits >> 11) * 0x1p-53;
}

#endif
