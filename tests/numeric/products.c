/* products.c: the products in `products.h` against simple loops, bit by bit: blocking must not change
 * the order or the rounding of a sum. Built in a folder with math.c, products.h and
 * table.h, which test_products.lua writes. usage: products THREADS */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "real.h"
#include "runtime/base/rng.h"
#include "runtime/base/team.h"

#include "math.c"

#include "products.h"

typedef void product(ga_worker *w, real *c, const real *a, const real *b, const real *bias, bool add);

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

static real a[MOST], b[MOST], bias[MOST], c[MOST + GUARD], expected[MOST + GUARD];

static real value(uint64_t stream, uint64_t i) { return (real)(2 * ga_uniform(ga_rng(1, stream, i)) - 1); }

static real plain(const shape *s, int i, int j, real sum) {
    for (int k = 0; k < s->K; k++) {
        const real x = a[i * s->a_row + k * s->a_column], y = b[k * s->b_row + j * s->b_column];
        sum = PLAIN_FMA(x, y, sum);
    }
    return sum;
}

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
    if (ga_arena_open(&arena, "team", 1 << 16, &e) < 0 || ga_team_open(&team, threads, &arena, &e) < 0) return 2;
    for (size_t i = 0; i < MOST; i++) {
        a[i] = value(1, i);
        b[i] = value(2, i);
        bias[i] = value(3, i);
    }
    for (int i = 0; i < shapes; i++) wrong += check(team, &SHAPES[i], false) + check(team, &SHAPES[i], true);
    printf("%d shapes, %d wrong\n", shapes, wrong);
    ga_team_close(team);
    return wrong > 0;
}
