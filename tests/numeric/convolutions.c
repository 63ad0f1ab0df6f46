/* convolutions.c: convolutions of bf16, with F32 of f32, and both gradients against plain sums in double. Built in a
 * folder with kernels.h, calls.h and table.h, which test_convolutions.lua writes. Whole numbers, whose sums are exact in
 * f32, must come out exactly; of fractions a sum of n terms in f32 may be off by n / 2^24 of the sum of their absolute
 * values, and a stored bf16 by 2^-8 of its value. usage: convolutions */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "convolution_sums.h"

#include "base/bf16.h"
#include "base/ga.h"
#include "base/rng.h"
#include "base/team.h"

typedef float real;

#ifdef F32
typedef real operand;
static real widen(operand x) { return x; }
static operand narrow(real x) { return x; }
enum { HALF = false };
#else
typedef bf16 operand;
static real widen(operand x) { return bf16_widen(x); }
static operand narrow(real x) { return bf16_narrow(x); }
enum { HALF = true };
#endif

#include "kernels.h"

enum { PARTIALS = 1 << 22, GUARD = 64 };

static operand x[MOST], weight[MOST], dy[MOST], turned[MOST], y[MOST], dx[MOST];
static real bias[MOST], partial[PARTIALS], dw[MOST];

#include "calls.h"

typedef void kernel(ga_worker *w);

typedef struct shape {
    kernel *kernels[5];
    bool bias, adds;
    convolution sizes;
} shape;

static const shape SHAPES[] = {
#include "table.h"
};

/* Value i of a stream: a whole number from -2 to 2, or a fraction. */
static float value(uint64_t stream, uint64_t i, bool whole) {
    const double u = ga_uniform(ga_rng(1, stream, i));
    return whole ? (float)floor(5 * u) - 2 : (float)(2 * u - 1);
}

/* n elements of an operand and as numbers, and NaN behind them, that no sum may have. */
static void fill(operand *to, double *number, size_t n, uint64_t stream, bool whole) {
    for (size_t i = 0; i < n; i++) number[i] = widen(to[i] = narrow(value(stream, i, whole)));
    for (size_t i = n; i < n + GUARD; i++) to[i] = narrow(NAN);
}

static void call(ga_worker *w, void *arg) { (*(kernel **)arg)(w); }

/* Whether a result is sum i: the same number if `exact`, rounded to bf16 if `half`, or within the error of f32. */
static bool is_near(double found, const sums *s, size_t i, bool half, bool exact) {
    const double value = s->value[i], error = s->terms[i] * s->size[i] * 0x1p-24;
    if (exact) return found == (half ? bf16_rounded((float)value) : value);
    return fabs(found - value) <= error + (half ? (fabs(value) + error) * 0x1p-8 : 0);
}

static int wrong_of(int number, const char *what, const void *found, bool half, const sums *s, size_t n, bool exact) {
    for (size_t i = 0; i < n + GUARD; i++) {
        const double value = half ? widen(((const operand *)found)[i]) : ((const real *)found)[i];
        if (i < n ? is_near(value, s, i, half, exact) : value == 1) continue;
        printf("shape %d, element %zu of %s: %.9g, expected %.9g\n", number, i, what, value, i < n ? s->value[i] : 1);
        return 1;
    }
    return 0;
}

static uint64_t hash(uint64_t h, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3;
    return h;
}

/* One thread and three compute the same bits. */
enum { TEAMS = 2 };
static const int THREADS[TEAMS] = {1, 3};

/* The hash of the results of a shape. dx and dw are 1 before, and so is what lies behind all results. */
static uint64_t compute(ga_team *team, const shape *s, size_t places, size_t inputs, size_t weights) {
    for (size_t i = 0; i < places + GUARD; i++) y[i] = narrow(1);
    for (size_t i = 0; i < inputs + GUARD; i++) dx[i] = narrow(1);
    for (size_t i = 0; i < weights + GUARD; i++) dw[i] = 1;
    for (int k = 0; k < 5; k++) ga_team_run(team, call, (void *)&s->kernels[k]);
    return hash(hash(hash(0, y, places * sizeof *y), dx, inputs * sizeof *dx), dw, weights * sizeof *dw);
}

/* n sums without a term, or with 1 where results are added to what is there. */
static void begin(sums *s, size_t n, bool adds) {
    for (size_t i = 0; i < n; i++) s->value[i] = s->size[i] = s->terms[i] = adds;
}

/* The number of wrong results of a shape. */
static int check(ga_team *const *teams, int number, bool exact) {
    const shape *s = &SHAPES[number - 1];
    const convolution *c = &s->sizes;
    const size_t places = (size_t)c->images * c->out * c->rows * c->columns;
    const size_t inputs = (size_t)c->images * c->channels * c->height * c->width;
    const size_t weights = (size_t)c->out * c->channels / c->groups * c->window_h * c->window_w;
    if (places + GUARD > MOST || inputs + GUARD > MOST || weights + GUARD > MOST) abort();
    fill(x, of_x, inputs, 1, exact);
    fill(weight, of_weight, weights, 2, exact);
    fill(dy, of_dy, places, 3, exact);
    for (int i = 0; i < c->out; i++) bias[i] = value(4, (uint64_t)i, exact);
    begin(&of_y, places, false);
    begin(&of_dx, inputs, s->adds);
    begin(&of_dw, weights, s->adds);
    sums_define(c, s->bias ? bias : NULL);
    const uint64_t first = compute(teams[0], s, places, inputs, weights);
    if (compute(teams[1], s, places, inputs, weights) != first) {
        printf("shape %d: %d threads compute other bits\n", number, THREADS[1]);
        return 1;
    }
    return wrong_of(number, "y", y, HALF, &of_y, places, exact)
        + wrong_of(number, "dx", dx, HALF, &of_dx, inputs, exact)
        + wrong_of(number, "dw", dw, false, &of_dw, weights, exact);
}

int main(void) {
    ga_err e = {0};
    ga_arena arenas[TEAMS] = {{0}};
    ga_team *teams[TEAMS];
    const int shapes = sizeof SHAPES / sizeof *SHAPES;
    int wrong = 0;
#ifdef MATRIX
    if (ga_matrix_open(&e) < 0) return 3;
#endif
    for (int k = 0; k < TEAMS; k++) {
        if (ga_arena_open(&arenas[k], "team", 1 << 16, &e) < 0) return 2;
        if (ga_team_open(&teams[k], THREADS[k], &arenas[k], &e) < 0) return 2;
    }
    for (int exact = 0; exact < 2; exact++)
        for (int i = 1; i <= shapes; i++) wrong += check(teams, i, exact);
    printf("%d shapes, %d wrong\n", shapes, wrong);
    for (int k = 0; k < TEAMS; k++) ga_team_close(teams[k]);
    return wrong > 0;
}
