/* convolutions.c: convolutions of bf16, with F32 of f32, and both gradients against plain sums in double. Built in a
 * folder with kernels.h, calls.h and table.h, which test_convolutions.lua writes. Whole numbers, whose sums are exact in
 * f32, must come out exactly; of fractions a sum of n terms in f32 may be off by n / 2^24 of the sum of their absolute
 * values, and a stored bf16 by 2^-8 of its value. usage: convolutions */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

enum { MOST = 1 << 19, PARTIALS = 1 << 22, GUARD = 64 };

static operand x[MOST], weight[MOST], dy[MOST], turned[MOST], y[MOST], dx[MOST];
static real bias[MOST], partial[PARTIALS], dw[MOST];

#include "calls.h"

typedef void kernel(ga_worker *w);

typedef struct shape {
    kernel *kernels[5];
    bool bias, adds;
    int images, channels, height, width, out, rows, columns, window_h, window_w, stride_h, stride_w, pad_h, pad_w;
    int dilation_h, dilation_w, groups;
} shape;

static const shape SHAPES[] = {
#include "table.h"
};

/* A sum in double, of the terms and of their absolute values, and the number of terms. */
typedef struct sum {
    double value, size;
    int terms;
} sum;

static sum of_y[MOST], of_dx[MOST], of_dw[MOST];

static void add(sum *s, double term) {
    s->value += term;
    s->size += fabs(term);
    s->terms++;
}

/* Value i of a stream: a whole number from -2 to 2, or a fraction. */
static float value(uint64_t stream, uint64_t i, bool whole) {
    const double u = ga_uniform(ga_rng(1, stream, i));
    return whole ? (float)floor(5 * u) - 2 : (float)(2 * u - 1);
}

/* n elements of an operand, and NaN behind them, that no sum may have. */
static void fill(operand *to, size_t n, uint64_t stream, bool whole) {
    for (size_t i = 0; i < n; i++) to[i] = narrow(value(stream, i, whole));
    for (size_t i = n; i < n + GUARD; i++) to[i] = narrow(NAN);
}

/* The sums of all results as the convolution is defined. */
static void define(const shape *s) {
    const int in = s->channels / s->groups, out = s->out / s->groups;
    size_t at = 0;
    for (int b = 0; b < s->images; b++)
        for (int o = 0; o < s->out; o++)
            for (int p = 0; p < s->rows; p++)
                for (int q = 0; q < s->columns; q++, at++) {
                    if (s->bias) add(&of_y[at], bias[o]);
                    for (int c = 0; c < in; c++)
                        for (int r = 0; r < s->window_h; r++)
                            for (int v = 0; v < s->window_w; v++) {
                                const int h = p * s->stride_h + r * s->dilation_h - s->pad_h;
                                const int w = q * s->stride_w + v * s->dilation_w - s->pad_w;
                                if (h < 0 || h >= s->height || w < 0 || w >= s->width) continue;
                                const int channel = o / out * in + c;
                                const size_t i = ((size_t)(b * s->channels + channel) * s->height + h) * s->width + w;
                                const size_t k = ((size_t)(o * in + c) * s->window_h + r) * s->window_w + v;
                                add(&of_y[at], (double)widen(x[i]) * widen(weight[k]));
                                add(&of_dx[i], (double)widen(dy[at]) * widen(weight[k]));
                                add(&of_dw[k], (double)widen(dy[at]) * widen(x[i]));
                            }
                }
}

static void call(ga_worker *w, void *arg) { (*(kernel **)arg)(w); }

/* Whether a result is the sum: the same number if `exact`, rounded to bf16 if `half`, or within the error of f32. */
static bool is_near(double found, const sum *s, bool half, bool exact) {
    if (exact) return found == (half ? bf16_rounded((float)s->value) : s->value);
    const double error = ldexp(s->terms * s->size, -24);
    return fabs(found - s->value) <= error + (half ? ldexp(fabs(s->value) + error, -8) : 0);
}

static int wrong_of(int number, const char *what, const void *found, bool half, const sum *sums, size_t n, bool exact) {
    for (size_t i = 0; i < n + GUARD; i++) {
        const double value = half ? widen(((const operand *)found)[i]) : ((const real *)found)[i];
        if (i < n ? is_near(value, &sums[i], half, exact) : value == 1) continue;
        printf("shape %d, element %zu of %s: %.9g, expected %.9g\n", number, i, what, value, sums[i].value);
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
    for (size_t i = 0; i < MOST; i++) y[i] = dx[i] = narrow(1), dw[i] = 1;
    for (int k = 0; k < 5; k++) ga_team_run(team, call, (void *)&s->kernels[k]);
    return hash(hash(hash(0, y, places * sizeof *y), dx, inputs * sizeof *dx), dw, weights * sizeof *dw);
}

/* The number of wrong results of a shape. */
static int check(ga_team *const *teams, int number, bool exact) {
    const shape *s = &SHAPES[number - 1];
    const size_t places = (size_t)s->images * s->out * s->rows * s->columns;
    const size_t inputs = (size_t)s->images * s->channels * s->height * s->width;
    const size_t weights = (size_t)s->out * s->channels / s->groups * s->window_h * s->window_w;
    if (places + GUARD > MOST || inputs + GUARD > MOST || weights + GUARD > MOST) abort();
    fill(x, inputs, 1, exact);
    fill(weight, weights, 2, exact);
    fill(dy, places, 3, exact);
    for (int i = 0; i < s->out; i++) bias[i] = value(4, (uint64_t)i, exact);
    memset(of_y, 0, sizeof of_y);
    memset(of_dx, 0, sizeof of_dx);
    memset(of_dw, 0, sizeof of_dw);
    for (size_t i = 0; s->adds && i < inputs; i++) add(&of_dx[i], 1);
    for (size_t i = 0; s->adds && i < weights; i++) add(&of_dw[i], 1);
    define(s);
    const uint64_t first = compute(teams[0], s, places, inputs, weights);
    if (compute(teams[1], s, places, inputs, weights) != first) {
        printf("shape %d: %d threads compute other bits\n", number, THREADS[1]);
        return 1;
    }
    return wrong_of(number, "y", y, HALF, of_y, places, exact) + wrong_of(number, "dx", dx, HALF, of_dx, inputs, exact)
        + wrong_of(number, "dw", dw, false, of_dw, weights, exact);
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
