/* products.c: the products in `products.h` against simple loops, bit by bit: blocking must not change
 * the order or the rounding of a sum. Built in a folder with real.h, math.c, products.h and
 * table.h, which test_products.lua writes. With MATRIX_REGISTERS or MATRIX_VECTORS the operands are bf16, and sums have
 * the order of their instruction. usage: products THREADS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"
#include "runtime/base/rng.h"
#include "runtime/base/team.h"

#include "math.c"

#include "products.h"

typedef void product(ga_worker *w, real *c, const operand *a, const operand *b, const real *bias, bool add);

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

static operand a[MOST], b[MOST];
static real bias[MOST], c[MOST + GUARD], expected[MOST + GUARD];

static real value(uint64_t stream, uint64_t i) { return (real)(2 * ga_uniform(ga_rng(1, stream, i)) - 1); }

static real add_term(const shape *s, int i, int j, int k, real sum) {
    const real x = NUMBER(a[i * s->a_row + k * s->a_column]), y = NUMBER(b[k * s->b_row + j * s->b_column]);
    return PLAIN_FMA(x, y, sum);
}

#if defined(MATRIX_REGISTERS)
/* 32 terms at a time: those of even k and of odd k apart. */
static real plain(const shape *s, int i, int j, real start) {
    real sum = 0;
    for (int k0 = 0; k0 < s->K; k0 += 32) {
        real part[2] = {0, 0};
        for (int k = k0; k < k0 + 32 && k < s->K; k++) part[k % 2] = add_term(s, i, j, k, part[k % 2]);
        sum += part[0] + part[1];
    }
    return sum + start;
}
#elif defined(MATRIX_VECTORS)
/* Two terms at a time: that of odd k, then that of even k. */
static real plain(const shape *s, int i, int j, real start) {
    real sum = 0;
    for (int k = 0; k < s->K; k += 2) {
        if (k + 1 < s->K) sum = add_term(s, i, j, k + 1, sum);
        sum = add_term(s, i, j, k, sum);
    }
    return sum + start;
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

/* The initial value of the sums: bias, c or 0, by the name of the kernel. */
static int check(ga_team *team, const shape *s, bool add) {
    const size_t n = (size_t)s->M * s->N;
    for (size_t i = 0; i < n + GUARD; i++) c[i] = expected[i] = value(4, i);
    const bool adds = add && strstr(s->name, "add");
    for (int i = 0; i < s->M; i++)
        for (int j = 0; j < s->N; j++) {
            real *to = &expected[(size_t)i * s->N + j];
            *to = plain(s, i, j, adds ? *to : strstr(s->name, "bias") ? bias[j] : 0);
        }
    call x = {s, add};
    ga_team_run(team, multiply, &x);
    for (size_t i = 0; i < n + GUARD; i++)
        if (memcmp(&c[i], &expected[i], sizeof *c) != 0) {
            printf("%s: row %zu, column %zu: %.17g, expected %.17g\n", s->name, i / s->N, i % s->N, (double)c[i],
                   (double)expected[i]);
            return 1;
        }
    return 0;
}

int main(int argc, char **argv) {
    ga_err e = {0};
    ga_arena arena = {0};
    ga_team *team;
    const int threads = argc > 1 ? atoi(argv[1]) : 1, shapes = sizeof SHAPES / sizeof *SHAPES;
    int wrong = 0;
#ifdef MATRIX_REGISTERS
    if (ga_matrix_open(&e) < 0) return 3;
#endif
    if (ga_arena_open(&arena, "team", 1 << 16, &e) < 0 || ga_team_open(&team, threads, &arena, &e) < 0) return 2;
    for (size_t i = 0; i < MOST; i++) {
        a[i] = OPERAND(value(1, i));
        b[i] = OPERAND(value(2, i));
        bias[i] = value(3, i);
    }
    for (int i = 0; i < shapes; i++) wrong += check(team, &SHAPES[i], false) + check(team, &SHAPES[i], true);
    printf("%d shapes, %d wrong\n", shapes, wrong);
    ga_team_close(team);
    return wrong > 0;
}
