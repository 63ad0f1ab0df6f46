/* products.c: the products in `products.h` against simple loops, bit by bit: blocking must not change
 * the order or the rounding of a sum. Built in a folder with real.h, math.c, products.h and
 * table.h, which test_products.lua writes. With MATRIX_REGISTERS or MATRIX_VECTORS the operands are bf16, and sums have
 * the order of their instruction. With ADDED_LAST a sum is added to C when it is complete. usage: products */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"
#include "runtime/base/rng.h"
#include "runtime/base/team.h"

#include "math.c"

#include "products.h"

typedef void product(ga_worker *w, real *c, const left_operand *a, const operand *b, const real *bias, bool add);

typedef struct shape {
    const char *name;
    product *multiply;
    int M, N, K;
    size_t a_row, a_column, b_row, b_column;
} shape;

static const shape SHAPES[] = {
#include "table.h"
};

enum { MOST = 1 << 20, GUARD = 64 };

static left_operand a[MOST];
static operand b[MOST];
static real bias[MOST], c[MOST + GUARD], expected[MOST + GUARD];

static real value(uint64_t stream, uint64_t i) { return (real)(2 * ga_uniform(ga_rng(1, stream, i)) - 1); }

static real left(const shape *s, int i, int k) { return LEFT_NUMBER(a[i * s->a_row + k * s->a_column]); }
static real right(const shape *s, int j, int k) { return NUMBER(b[k * s->b_row + j * s->b_column]); }

static __attribute__((unused)) real add_term(const shape *s, int i, int j, int k, real sum) {
    return PLAIN_FMA(left(s, i, k), right(s, j, k), sum);
}

#if defined(MATRIX_REGISTERS)
/* The slices of the operands: each the rest after those before it, rounded to bf16. */
enum { SLICES_MOST = 3 };
static real slice_a[SLICES_MOST][MOST], slice_b[SLICES_MOST][MOST];

static void cut(real slice[SLICES_MOST][MOST], const operand *x) {
    for (size_t i = 0; i < MOST; i++) {
        real rest = NUMBER(x[i]);
        for (int s = 0; s < SLICES_MOST; s++) rest -= slice[s][i] = bf16_widen(bf16_narrow(rest));
    }
}

/* 32 terms at a time, by one product of slices after another: those of even k and of odd k apart. */
static real plain(const shape *s, int i, int j, real sum) {
    static const int ORDER[][2] = {MATRIX_ORDER};
    for (int k0 = 0; k0 < s->K; k0 += 32) {
        for (size_t p = 0; p < sizeof ORDER / sizeof *ORDER; p++) {
            const real *x = slice_a[ORDER[p][0]] + i * s->a_row, *y = slice_b[ORDER[p][1]] + j * s->b_column;
            real part[2] = {0, 0};
            for (int k = k0; k < k0 + 32 && k < s->K; k++)
                part[k % 2] = PLAIN_FMA(x[k * s->a_column], y[k * s->b_row], part[k % 2]);
            sum += part[0] + part[1];
        }
    }
    return sum;
}
#elif defined(MATRIX_VECTORS)
/* Two terms at a time: that of odd k, then that of even k. */
static real plain(const shape *s, int i, int j, real sum) {
    for (int k = 0; k < s->K; k += 2) {
        if (k + 1 < s->K) sum = add_term(s, i, j, k + 1, sum);
        sum = add_term(s, i, j, k, sum);
    }
    return sum;
}
#else
static real plain(const shape *s, int i, int j, real sum) {
    for (int k = 0; k < s->K; k++) sum = add_term(s, i, j, k, sum);
    return sum;
}
#endif

typedef struct call {
    const shape *s;
    bool add;
} call;

static void multiply(ga_worker *w, void *arg) {
    const call *x = arg;
    x->s->multiply(w, c, a, b, bias, x->add);
}

/* The element of the result where C has this value: sums begin with bias, C or 0, by the name of the kernel. */
static real element(const shape *s, int i, int j, bool adds, real before) {
    const real first = strstr(s->name, "bias") ? bias[j] : 0;
#ifdef ADDED_LAST
    const real sum = plain(s, i, j, first);
    return adds ? before + sum : sum;
#else
    return plain(s, i, j, adds ? before : first);
#endif
}

/* One thread and three compute the same. */
enum { TEAMS = 2 };
static const int THREADS[TEAMS] = {1, 3};

static int compare(ga_team *team, const shape *s, bool adds) {
    const size_t n = (size_t)s->M * s->N;
    call x = {s, adds};
    for (size_t i = 0; i < n + GUARD; i++) c[i] = value(4, i);
    ga_team_run(team, multiply, &x);
    for (size_t i = 0; i < n + GUARD; i++)
        if (memcmp(&c[i], &expected[i], sizeof *c) != 0) {
            printf("%s: row %zu, column %zu: %.17g, expected %.17g\n", s->name, i / s->N, i % s->N, (double)c[i],
                   (double)expected[i]);
            return 1;
        }
    return 0;
}

static int check(ga_team *const *teams, const shape *s, bool adds) {
    const size_t n = (size_t)s->M * s->N;
    for (size_t i = 0; i < n + GUARD; i++) expected[i] = value(4, i);
    for (int i = 0; i < s->M; i++)
        for (int j = 0; j < s->N; j++) {
            real *to = &expected[(size_t)i * s->N + j];
            *to = element(s, i, j, adds, *to);
        }
    int wrong = 0;
    for (int k = 0; k < TEAMS; k++) wrong += compare(teams[k], s, adds);
    return wrong;
}

#ifdef MATRIX_SLICES
/* The operands of a shape times powers of 2. */
static void fill(const shape *s, int exponent) {
    const real scale = ldexpf(1, exponent), other = ldexpf(1, exponent > 90 ? -90 : -exponent);
    for (size_t i = 0; i < (size_t)s->M * s->K; i++) a[i] = value(1, i) * scale;
    for (size_t i = 0; i < (size_t)s->N * s->K; i++) b[i] = value(2, i) * other;
}

/* The error of a product, and that of a chain of multiply-adds, as a share of the result: root mean squares. */
static void errors(ga_team *team, const shape *s, double *of_matrix, double *of_chain) {
    double size = 0, matrix = 0, chain = 0;
    call x = {s, false};
    ga_team_run(team, multiply, &x);
    for (int i = 0; i < s->M; i++)
        for (int j = 0; j < s->N; j++) {
            double exact = 0;
            real sum = 0;
            for (int k = 0; k < s->K; k++) {
                exact += (double)left(s, i, k) * right(s, j, k);
                sum = add_term(s, i, j, k, sum);
            }
            size += exact * exact;
            matrix += pow(c[(size_t)i * s->N + j] - exact, 2);
            chain += pow(sum - exact, 2);
        }
    *of_matrix = sqrt(matrix / size);
    *of_chain = sqrt(chain / size);
}

/* Three slices: errors below those of a chain of multiply-adds. Two: below 2^-17. A row with an element that is not
 * finite has no finite result. */
static int check_errors(ga_team *team, const shape *s) {
    static const real SPECIAL[] = {INFINITY, -INFINITY, NAN};
    int wrong = 0;
    for (int exponent = -90; exponent <= 120; exponent += 30) {
        double matrix, chain;
        fill(s, exponent);
        errors(team, s, &matrix, &chain);
        const double most = MATRIX_SLICES == 3 ? chain : ldexp(1, -17);
        if (matrix < most) continue;
        printf("%s, 2^%d: error %.3g, expected less than %.3g\n", s->name, exponent, matrix, most);
        wrong++;
    }
    for (int i = 0; i < 3; i++) {
        fill(s, 0);
        a[s->a_row + 7 * s->a_column] = SPECIAL[i];
        call x = {s, false};
        ga_team_run(team, multiply, &x);
        for (int j = 0; j < s->N; j++) wrong += isfinite(c[s->N + j]) || !isfinite(c[j]);
    }
    return wrong;
}
#endif

int main(void) {
    ga_err e = {0};
    ga_arena arenas[TEAMS] = {{0}};
    ga_team *teams[TEAMS];
    const int shapes = sizeof SHAPES / sizeof *SHAPES;
    int wrong = 0;
#ifdef MATRIX_REGISTERS
    if (ga_matrix_open(&e) < 0) return 3;
#endif
    for (int k = 0; k < TEAMS; k++) {
        if (ga_arena_open(&arenas[k], "team", 1 << 16, &e) < 0) return 2;
        if (ga_team_open(&teams[k], THREADS[k], &arenas[k], &e) < 0) return 2;
    }
    for (size_t i = 0; i < MOST; i++) {
        a[i] = LEFT_OPERAND(value(1, i));
        b[i] = OPERAND(value(2, i));
        bias[i] = value(3, i);
    }
#ifdef MATRIX_REGISTERS
    cut(slice_a, a);
    cut(slice_b, b);
#endif
    for (int i = 0; i < shapes; i++) {
        wrong += check(teams, &SHAPES[i], false);
        if (strstr(SHAPES[i].name, "add")) wrong += check(teams, &SHAPES[i], true);
    }
#ifdef MATRIX_SLICES
    for (int i = 0; i < shapes; i++) {
        const shape *s = &SHAPES[i];
        if (s->K >= 500 && s->M * s->N * s->K < 1000000 && !strstr(s->name, "bias")) wrong += check_errors(teams[0], s);
    }
#endif
    printf("%d shapes, %d wrong\n", shapes, wrong);
    for (int k = 0; k < TEAMS; k++) ga_team_close(teams[k]);
    return wrong > 0;
}
