/* peak.c: the peak of one core in multiply-adds per second, from registers alone, with the vectors of math.c of an
 * emitted f32 program: the upper bound for bench/gemm. Prints GFLOP/s, the best of a few short runs. */
#include <stdint.h>
#include <stdio.h>
#include <stddef.h>
#include <time.h>

typedef float real;

#include "math.c"

enum { CHAINS = 12, ROUNDS = 200000, TRIES = 9 };

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    vec sum[CHAINS], factor = vec_all(0.999f), term = vec_all(0.001f);
    double best = 0;
    for (int i = 0; i < CHAINS; i++) sum[i] = vec_all((real)i);
    for (int try = 0; try < TRIES; try++) {
        const double from = seconds();
        for (int k = 0; k < ROUNDS; k++) {
#pragma GCC unroll 12
            for (int i = 0; i < CHAINS; i++) sum[i] = vec_fma(sum[i], factor, term);
        }
        const double rate = 2.0 * VEC_LANES * CHAINS * ROUNDS / (seconds() - from) * 1e-9;
        best = rate > best ? rate : best;
    }
    real all = 0; /* used, so that the sums are computed */
    for (int i = 0; i < CHAINS; i++) all += sum[i][0];
    printf("%.1f %s\n", best, all > 0 ? "" : "?");
    return 0;
}
