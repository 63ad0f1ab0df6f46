/* convolutions.c: convolutions of bf16, with F32 of f32, and both gradients against plain sums in double. Built in a
 * folder with kernels.h, calls.h and table.h, which test_convolutions.lua writes. Whole numbers, whose sums are exact in
 * f32, must come out exactly, but not by squares of 4 x 4 results; of those and of fractions a sum of n terms in f32 may
 * be off by n / 2^24 of the sum of their absolute values, and a stored bf16 by 2^-8 of its value. Results that read an
 * infinite number are not finite, others are; a square of 4 x 4 results has both kinds.
 * usage: convolutions [bits]      bits: prints the hash of all results in place of the number of wrong ones */
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
    bool bias, adds, by_4[3]; /* squares of y, dx and dw have 4 x 4 results */
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

/* Elements of y, of x and of the weight. */
static size_t places_of(const convolution *c) { return (size_t)c->images * c->out * c->rows * c->columns; }
static size_t inputs_of(const convolution *c) { return (size_t)c->images * c->channels * c->height * c->width; }
static size_t weights_of(const convolution *c) {
    return (size_t)c->out * c->channels / c->groups * c->window_h * c->window_w;
}

static void fill_operands(const convolution *c, bool exact) {
    fill(x, of_x, inputs_of(c), 1, exact);
    fill(weight, of_weight, weights_of(c), 2, exact);
    fill(dy, of_dy, places_of(c), 3, exact);
    for (int i = 0; i < c->out; i++) bias[i] = value(4, (uint64_t)i, exact);
}

/* The hash of the results of a shape. dx and dw are 1 before, and so is what lies behind all results. */
static uint64_t compute(ga_team *team, const shape *s) {
    const size_t places = places_of(&s->sizes), inputs = inputs_of(&s->sizes), weights = weights_of(&s->sizes);
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
    const size_t places = places_of(c), inputs = inputs_of(c), weights = weights_of(c);
    if (places + GUARD > MOST || inputs + GUARD > MOST || weights + GUARD > MOST) abort();
    fill_operands(c, exact);
    begin(&of_y, places, false);
    begin(&of_dx, inputs, s->adds);
    begin(&of_dw, weights, s->adds);
    sums_define(c, s->bias ? bias : NULL);
    const uint64_t first = compute(teams[0], s);
    if (compute(teams[1], s) != first) {
        printf("shape %d: %d threads compute other bits\n", number, THREADS[1]);
        return 1;
    }
    return wrong_of(number, "y", y, HALF, &of_y, places, exact && !s->by_4[0])
        + wrong_of(number, "dx", dx, HALF, &of_dx, inputs, exact && !s->by_4[1])
        + wrong_of(number, "dw", dw, false, &of_dw, weights, exact && !s->by_4[2]);
}

/* Whether result (h, w) of a plane reads the element (i, j). */
static bool reads(const convolution *c, int h, int w, int i, int j) {
    const int down = i + c->pad_h - h * c->stride_h, across = j + c->pad_w - w * c->stride_w;
    return down >= 0 && down % c->dilation_h == 0 && down / c->dilation_h < c->window_h && across >= 0
        && across % c->dilation_w == 0 && across / c->dilation_w < c->window_w;
}

/* Whether a result of the square of 4 x 4 results that (h, w) is in reads the element (i, j). */
static bool square_reads(const convolution *c, int h, int w, int i, int j) {
    for (int k = 0; k < 16; k++)
        if (reads(c, h / 4 * 4 + k / 4, w / 4 * 4 + k % 4, i, j)) return true;
    return false;
}

/* 1 if other results are not finite than those that read an infinite element, in the middle of the last plane. */
static int check_infinite(ga_team *team, int number) {
    const shape *s = &SHAPES[number - 1];
    const convolution *c = &s->sizes;
    const int i = c->height / 2, j = c->width / 2, plane = c->height * c->width, results = c->rows * c->columns;
    const size_t count = places_of(c);
    fill_operands(c, true);
    x[inputs_of(c) - (size_t)plane + (size_t)i * c->width + j] = narrow(INFINITY);
    ga_team_run(team, call, (void *)&s->kernels[0]);
    for (size_t k = 0; k < count; k++) {
        const bool group = k >= count - (size_t)(c->out / c->groups) * results;
        const int h = (int)(k % (size_t)results) / c->columns, w = (int)(k % (size_t)results) % c->columns;
        const bool read = group && reads(c, h, w, i, j);
        if (isfinite(widen(y[k])) == !read || (group && !read && s->by_4[0] && square_reads(c, h, w, i, j))) continue;
        printf("shape %d, element %zu of y: %g, expected it %s\n", number, k, widen(y[k]), read ? "infinite" : "finite");
        return 1;
    }
    return 0;
}

/* The hash of the results of fractions. */
static uint64_t bits(ga_team *team, int number) {
    fill_operands(&SHAPES[number - 1].sizes, false);
    return compute(team, &SHAPES[number - 1]);
}

int main(int argc, char **argv) {
    (void)argv;
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
    for (int i = 1; i <= shapes && argc > 1; i++) printf("%016llx\n", (unsigned long long)bits(teams[0], i));
    for (int exact = 0; exact < 2 && argc == 1; exact++)
        for (int i = 1; i <= shapes; i++) wrong += check(teams, i, exact);
    for (int i = 1; i <= shapes && argc == 1; i++) wrong += check_infinite(teams[0], i);
    if (argc == 1) printf("%d shapes, %d wrong\n", shapes, wrong);
    for (int k = 0; k < TEAMS; k++) ga_team_close(teams[k]);
    return wrong > 0;
}
