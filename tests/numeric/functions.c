/* functions.c: the functions of math.c for all floats (or every STEP-th) against the C library's in double,
 * every 4096th of them also against long double; and a single element against the same element in a
 * vector. Built in a folder with math.c.
 * usage: functions STEP; prints a line per function, exits with 1 if one is above its BOUND. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef float real;

#include "math.c"

enum { BLOCK = 4096 };

typedef struct function {
    const char *name;
    double bound; /* in units of the last place */
    void (*many)(float *restrict y, const float *restrict x);
    float (*one)(float x);
    double (*reference)(double x);
    long double (*exact)(long double x);
} function;

#define FUNCTION(name)                                                                            \
    static __attribute__((noinline)) void name##_many(float *restrict y, const float *restrict x) { \
        for (int i = 0; i < BLOCK; i++) y[i] = ga_##name##f(x[i]);                                \
    }                                                                                             \
    static __attribute__((noinline)) float name##_one(float x) { return ga_##name##f(x); }
FUNCTION(exp)
FUNCTION(log)
FUNCTION(tanh)
FUNCTION(erf)

static const function FUNCTIONS[] = {
    {"exp", 1, exp_many, exp_one, exp, expl},
    {"log", 1, log_many, log_one, log, logl},
    {"tanh", 2, tanh_many, tanh_one, tanh, tanhl},
    {"erf", 2, erf_many, erf_one, erf, erfl},
};

static float x[BLOCK], y[BLOCK];

/* Distance of y from the exact value, in units of the last place; 0 if both are the same infinity, NaN or
 * zero, infinite if only one is. */
static double distance(float got, long double value) {
    if (isnan(value) || isnan(got)) return isnan(value) && isnan(got) ? 0 : INFINITY;
    if (isinf((float)value) || isinf(got)) return (float)value == got ? 0 : INFINITY;
    int exponent = FLT_MIN_EXP;
    if (fabsl(value) >= FLT_MIN) frexpl(value, &exponent);
    return (double)(fabsl(got - value) / ldexpl(1, exponent - FLT_MANT_DIG));
}

/* The same for a value in double, in few instructions: got - value and the division by a power of two are exact. */
static double near_distance(float got, double value) {
    if (!(isfinite((float)value) && isfinite(got))) return distance(got, value);
    const int64_t least = (int64_t)(FLT_MIN_EXP + 1022) << 52; /* the exponent of the smallest normal float */
    int64_t bits;
    double unit;
    memcpy(&bits, &value, sizeof bits);
    bits &= (int64_t)0x7ff << 52;
    bits = (bits > least ? bits : least) - ((int64_t)(FLT_MANT_DIG - 1) << 52);
    memcpy(&unit, &bits, sizeof unit);
    return fabs(got - value) / unit;
}

static int check(const function *f, uint64_t step) {
    double worst = 0;
    float at = 0;
    uint64_t checked = 0, unequal = 0;
    for (uint64_t from = 0; from < (uint64_t)1 << 32; from += step * BLOCK) {
        for (int i = 0; i < BLOCK; i++) {
            const uint32_t bits = (uint32_t)(from + (uint64_t)i * step); /* wraps around at the end */
            memcpy(&x[i], &bits, sizeof bits);
        }
        f->many(y, x);
        for (int i = 0; i < BLOCK; i++, checked++) {
            double d = near_distance(y[i], f->reference(x[i]));
            if (i == 0) d = fmax(d, distance(y[i], f->exact(x[i])));
            if (d > worst) worst = d, at = x[i];
            const float alone = i % 64 == 0 ? f->one(x[i]) : y[i];
            unequal += memcmp(&alone, &y[i], sizeof alone) != 0;
        }
    }
    printf("%s: %llu floats, at most %.3f ulp, at %a; %llu unequal alone\n", f->name,
           (unsigned long long)checked, worst, at, (unsigned long long)unequal);
    return !(worst <= f->bound) || unequal > 0;
}

int main(int argc, char **argv) {
    const uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 61;
    int wrong = 0;
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) wrong += check(&FUNCTIONS[i], step);
    return wrong > 0;
}
