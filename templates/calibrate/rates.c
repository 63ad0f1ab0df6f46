/* rates.c: the greatest rates of this machine with a number of threads. Each line of the output is "NAME RATE", in FLOP
 * or bytes per second of all threads together: the best of many tries, so short that other processes miss some.
 *
 *   f32      multiply-adds in registers
 *   bf16     products on matrix registers (AMX), else by vdpbf16ps; absent where the compiler's flags have neither
 *   memory   numbers of 256 MiB read, multiplied and written back
 *   cache    the same with 512 KiB per thread
 *
 *   rates THREADS */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined __AMX_BF16__ || defined __AVX512BF16__
#include <immintrin.h>
#endif

#if defined __AVX512F__
enum { VECTOR = 64, CHAINS = 24 };
#elif defined __AVX__
enum { VECTOR = 32, CHAINS = 12 };
#else
enum { VECTOR = 16, CHAINS = 12 };
#endif
enum { LANES = VECTOR / 4, TRIES = 300, MEMORY_TRIES = 9, MOST_THREADS = 1024 };

static const size_t MEMORY_BYTES = 256 << 20, CACHE_BYTES = 512 << 10;

typedef float vec __attribute__((vector_size(VECTOR)));

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *together;
    double (*work)(struct worker *); /* returns FLOP or bytes */
    size_t bytes;
    float *values;
    double done, best; /* of a try, in a second over all threads; only the first worker's is used */
    struct worker *all;
    int count, tries;
    float used; /* results, so that they are computed */
} worker;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double multiply_adds(worker *w) {
    enum { ROUNDS = 20000 };
    vec sum[CHAINS];
    vec factor = (vec){0} + 0.999f, term = (vec){0} + 0.001f;
    /* A compiler that knew where chains begin would leave out the one that stays at 1. */
    for (int i = 0; i < CHAINS; i++) sum[i] = (vec){0} + (float)i + w->used;
    for (int k = 0; k < ROUNDS; k++) {
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) sum[i] = sum[i] * factor + term;
    }
    for (int i = 0; i < CHAINS; i++) w->used += sum[i][0];
    return 2.0 * LANES * CHAINS * ROUNDS;
}

#if defined __AMX_BF16__
static double products(worker *w) {
    enum { ROUNDS = 5000, OF_ROUND = 4 * 2 * 16 * 16 * 32 };
    static const struct {
        uint8_t palette, first_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    /* Operands are numbers of all signs and bits: with zeros a processor may be faster by a fifth. */
    float sums[256];
    uint16_t numbers[4 * 512];
    for (uint32_t i = 0, x = 1; i < 4 * 512; i++, x = x * 1664525 + 1013904223)
        numbers[i] = (uint16_t)(0x3f00 | (x >> 16 & 0x80ff));
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, numbers, 64);
    _tile_loadd(5, numbers + 512, 64);
    _tile_loadd(6, numbers + 2 * 512, 64);
    _tile_loadd(7, numbers + 3 * 512, 64);
    for (int k = 0; k < ROUNDS; k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    w->used += sums[0];
    return (double)OF_ROUND * ROUNDS;
}
#elif defined __AVX512BF16__
static double products(worker *w) {
    enum { ROUNDS = 20000 };
    __m512 sum[CHAINS];
    const __m512bh factor = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (int k = 0; k < ROUNDS; k++) {
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], factor, factor);
    }
    for (int i = 0; i < CHAINS; i++) w->used += sum[i][0];
    return 4.0 * LANES * CHAINS * ROUNDS;
}
#endif

static double sweeps(worker *w) {
    const size_t n = w->bytes / sizeof(vec), times = 1 + (8 << 20) / w->bytes;
    vec *values = (vec *)w->values;
    const vec factor = (vec){0} + 0.999f;
    for (size_t k = 0; k < times; k++) {
        for (size_t i = 0; i < n; i++) values[i] *= factor;
        __asm__ volatile("" ::: "memory"); /* each sweep is done */
    }
    w->used += w->values[0];
    return 2.0 * (double)(times * n * sizeof(vec));
}

static void *run(void *argument) {
    worker *w = argument;
    for (int try = 0; try < w->tries; try++) {
        pthread_barrier_wait(w->together);
        const double from = now();
        w->done = w->work(w);
        pthread_barrier_wait(w->together);
        const double seconds = now() - from;
        double all = 0;
        for (int i = 0; i < w->count; i++) all += w->all[i].done;
        if (all / seconds > w->best) w->best = all / seconds;
        pthread_barrier_wait(w->together);
    }
    return NULL;
}

/* Prints the rate of `work`; each thread has so many bytes of its own, or none. */
static void measure(const char *name, int threads, double (*work)(worker *), size_t bytes, int tries) {
    static worker all[MOST_THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        const size_t whole = bytes / VECTOR * VECTOR;
        all[i] = (worker){.together = &together, .work = work, .bytes = whole, .all = all, .count = threads,
                          .tries = tries};
        if (whole && !(all[i].values = aligned_alloc(VECTOR, whole))) {
            fprintf(stderr, "rates: not enough memory\n");
            exit(3);
        }
        for (size_t k = 0; k < whole / sizeof(float); k++) all[i].values[k] = 1;
        if (pthread_create(&all[i].thread, NULL, run, &all[i]) != 0) {
            fprintf(stderr, "rates: a thread cannot be started\n");
            exit(3);
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        free(all[i].values);
    }
    pthread_barrier_destroy(&together);
    printf("%s %.6g\n", name, all[0].best);
}

int main(int argc, char **argv) {
    const int threads = argc == 2 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: rates THREADS, expected 1 to %d\n", MOST_THREADS);
        return 1;
    }
    measure("f32", threads, multiply_adds, 0, TRIES);
#if defined __AMX_BF16__
    enum { ASK = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of asm/prctl.h */
    if (syscall(SYS_arch_prctl, ASK, TILES) != 0) {
        fprintf(stderr, "rates: the system does not allow matrix registers (AMX)\n");
        return 3;
    }
#endif
#if defined __AMX_BF16__ || defined __AVX512BF16__
    measure("bf16", threads, products, 0, TRIES);
#endif
    measure("memory", threads, sweeps, MEMORY_BYTES / (size_t)threads, MEMORY_TRIES);
    measure("cache", threads, sweeps, CACHE_BYTES, TRIES);
    return 0;
}
