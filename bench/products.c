/* products.c: times of the products of a linear layer with a weight W, by the kernels of an emitted program and by the
 * libraries that are there, in turns:
 *
 *   forward      Y = X W^T        (rows, in) and (out, in) give (rows, out)
 *   by_input     dX = dY W        (rows, out) and (out, in) give (rows, in)
 *   by_weight    dW = dY^T X      (rows, out) and (rows, in) give (out, in)
 *
 * Compiled in the folder of the program, whose kernels.c it includes. Macros: LAYER_ROWS, LAYER_IN, LAYER_OUT; FORWARD,
 * BY_INPUT and BY_WEIGHT, kernels of the program; PACK, the one that turns W into the (in, out) that FORWARD reads, if
 * the program has it: in training it runs once per update, and its time has a line of its own; OPENBLAS and ONEDNN,
 * libraries that are there; MATRIX, if the kernels use matrix registers.
 *
 * A turn has a burst of calls of each side of each product, behind an unmeasured call and a pause in which the threads
 * of the side before fall asleep. Each line of the output is "PRODUCT SIDE LEAST MEDIAN CALLS", in seconds of a call.
 *
 *   products THREADS SECONDS      3 turns at least */
#define _GNU_SOURCE
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef OPENBLAS
#include <cblas.h>
#endif
#ifdef ONEDNN
#include <dnnl.h>
extern void omp_set_num_threads(int);
#endif

#include "kernels.c"

enum { M = LAYER_ROWS, IN = LAYER_IN, OUT = LAYER_OUT };
enum { LEAST_TURNS = 3, MOST_CALLS = 100000, BURST_CALLS = 1000, THREADS_BYTES = 1 << 20 };
static const double BURST = 0.02, PAUSE = 0.06; /* seconds */
static const double CLOSE = 1e-4;               /* most difference of two sides, of the greatest number */

static real *x, *weight, *read_forward, *d_y, *y, *d_x, *d_weight;
static ga_team *team;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* -- the sides: each runs a product `calls` times and writes down the seconds of each ------------ */

typedef struct burst {
    int product, calls;
    double *seconds;
} burst;

enum { DOES_FORWARD, DOES_BY_INPUT, DOES_BY_WEIGHT, DOES_PACK, PRODUCTS };

/* The barrier before a kernel keeps the other workers from it until worker 0 has read the clock. */
static void emitted_calls(ga_worker *w, void *argument) {
    const burst *b = argument;
    for (int i = 0; i < b->calls; i++) {
        const double from = now();
        ga_barrier(w);
        switch (b->product) {
        case DOES_FORWARD: FORWARD(w, y, x, read_forward); break;
        case DOES_BY_INPUT: BY_INPUT(w, d_x, d_y, weight); break;
        case DOES_BY_WEIGHT: BY_WEIGHT(w, d_weight, d_y, x, false); break;
#ifdef PACK
        default: PACK(w, read_forward, weight); break;
#endif
        }
        ga_barrier(w);
        if (w->index == 0) b->seconds[i] = now() - from;
    }
}

static void emitted(const burst *b) { ga_team_run(team, emitted_calls, (void *)b); }

#ifdef OPENBLAS
static void openblas(const burst *b) {
    for (int i = 0; i < b->calls; i++) {
        const double from = now();
        switch (b->product) {
        case DOES_FORWARD:
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, M, OUT, IN, 1, x, IN, weight, IN, 0, y, OUT);
            break;
        case DOES_BY_INPUT:
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, M, IN, OUT, 1, d_y, OUT, weight, IN, 0, d_x, IN);
            break;
        default:
            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, OUT, IN, M, 1, d_y, OUT, x, IN, 0, d_weight, IN);
            break;
        }
        b->seconds[i] = now() - from;
    }
}
#endif

#ifdef ONEDNN
static void onednn(const burst *b) {
    for (int i = 0; i < b->calls; i++) {
        const double from = now();
        dnnl_status_t status;
        switch (b->product) {
        case DOES_FORWARD:
            status = dnnl_sgemm('N', 'T', M, OUT, IN, 1, x, IN, weight, IN, 0, y, OUT);
            break;
        case DOES_BY_INPUT:
            status = dnnl_sgemm('N', 'N', M, IN, OUT, 1, d_y, OUT, weight, IN, 0, d_x, IN);
            break;
        default:
            status = dnnl_sgemm('T', 'N', OUT, IN, M, 1, d_y, OUT, x, IN, 0, d_weight, IN);
            break;
        }
        if (status != dnnl_success) {
            fprintf(stderr, "products: dnnl_sgemm: status %d\n", (int)status);
            exit(3);
        }
        b->seconds[i] = now() - from;
    }
}
#endif

static const struct side {
    const char *name;
    void (*run)(const burst *);
} SIDES[] = {
    {"gagen", emitted},
#ifdef OPENBLAS
    {"OpenBLAS", openblas},
#endif
#ifdef ONEDNN
    {"oneDNN", onednn},
#endif
};
enum { SIDE_COUNT = sizeof SIDES / sizeof *SIDES };

static const char *const NAMES[PRODUCTS] = {"forward", "by_input", "by_weight", "pack"};

/* -- values -------------------------------------------------------------------------------------- */

/* n numbers of -1 to 1 in memory of their own, on huge pages where the system has them. */
static real *numbers(size_t n) {
    static ga_arena arena;
    static uint32_t state = 1;
    ga_err e;
    if (ga_arena_open(&arena, "values", (n * sizeof(real) + 4095) / 4096 * 4096, &e) != GA_OK) {
        fprintf(stderr, "products: not enough memory for %zu numbers\n", n);
        exit(3);
    }
    real *values = (real *)arena.base;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (real)(state >> 8) / (1 << 23) - 1;
    }
    return values;
}

static real *result_of(int product, size_t *n) {
    switch (product) {
    case DOES_FORWARD: *n = (size_t)M * OUT; return y;
    case DOES_BY_INPUT: *n = (size_t)M * IN; return d_x;
    default: *n = (size_t)OUT * IN; return d_weight;
    }
}

/* Ends the program unless all sides have about the same results, which are clear before each. */
static void compare(int product) {
    size_t n;
    double second;
    real *result = result_of(product, &n), *first = malloc(n * sizeof(real));
    if (!first) exit(3);
    for (int s = 0; s < SIDE_COUNT; s++) {
        double gap = 0, greatest = 0;
        memset(result, 0xff, n * sizeof(real)); /* not numbers */
        SIDES[s].run(&(burst){product, 1, &second});
        if (s == 0) memcpy(first, result, n * sizeof(real));
        for (size_t i = 0; i < n; i++) {
            const double here = fabs((double)result[i] - first[i]);
            if (!(here <= gap)) gap = here;
            greatest = fmax(greatest, fabs((double)first[i]));
        }
        if (!(gap <= CLOSE * greatest)) {
            fprintf(stderr, "products: %s: %s is off by %g, expected at most %g\n", NAMES[product], SIDES[s].name, gap,
                    CLOSE * greatest);
            exit(3);
        }
    }
    free(first);
}

/* -- times --------------------------------------------------------------------------------------- */

typedef struct times {
    int count;
    double *seconds;
} times;

static void pause_all(void) {
    nanosleep(&(struct timespec){.tv_nsec = (long)(PAUSE * 1e9)}, NULL);
}

static void measure(int product, const struct side *side, times *t) {
    double first;
    pause_all();
    side->run(&(burst){product, 1, &first});
    int calls = (int)fmax(1, fmin(BURST_CALLS, BURST / first));
    if (calls > MOST_CALLS - t->count) calls = MOST_CALLS - t->count;
    side->run(&(burst){product, calls, t->seconds + t->count});
    t->count += calls;
}

static int ascending(const void *a, const void *b) {
    const double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static void show(int product, const struct side *side, times *t) {
    qsort(t->seconds, (size_t)t->count, sizeof *t->seconds, ascending);
    printf("%s %s %.9g %.9g %d\n", NAMES[product], side->name, t->seconds[0], t->seconds[t->count / 2], t->count);
}

/* The first sides: only an emitted program packs. */
static int sides_of(int product) {
#ifdef PACK
    return product == DOES_PACK ? 1 : SIDE_COUNT;
#else
    return product == DOES_PACK ? 0 : SIDE_COUNT;
#endif
}

static void open_sides(int threads) {
    static ga_arena arena;
    ga_err e;
#ifdef MATRIX
    if (ga_matrix_open(&e) != GA_OK) exit(3);
#endif
    if (ga_arena_open(&arena, "threads", THREADS_BYTES, &e) != GA_OK
        || ga_team_open(&team, threads, &arena, &e) != GA_OK || ga_team_threads(team) != threads) {
        fprintf(stderr, "products: %d threads cannot be started\n", threads);
        exit(3);
    }
#ifdef OPENBLAS
    openblas_set_num_threads(threads);
#endif
#ifdef ONEDNN
    omp_set_num_threads(threads);
#endif
}

int main(int argc, char **argv) {
    static times all[PRODUCTS][SIDE_COUNT];
    const int threads = argc == 3 ? atoi(argv[1]) : 0;
    const double seconds = argc == 3 ? atof(argv[2]) : 0;
    if (threads < 1 || !(seconds > 0)) {
        fprintf(stderr, "usage: products THREADS SECONDS\n");
        return 1;
    }
    open_sides(threads);
    const size_t inputs = (size_t)M * IN, outputs = (size_t)M * OUT;
    const size_t weights = (size_t)IN * OUT;
    x = numbers(inputs), d_x = numbers(inputs), y = numbers(outputs), d_y = numbers(outputs);
    weight = numbers(weights), d_weight = numbers(weights);
#ifdef PACK
    read_forward = numbers(weights);
    emitted(&(burst){DOES_PACK, 1, &(double){0}});
#else
    read_forward = weight;
#endif
    for (int p = 0; p < DOES_PACK; p++) compare(p);
    for (int p = 0; p < PRODUCTS; p++) {
        for (int s = 0; s < sides_of(p); s++)
            if (!(all[p][s].seconds = malloc(MOST_CALLS * sizeof(double)))) return 3;
    }
    const double from = now();
    for (int turn = 0; turn < LEAST_TURNS || now() - from < seconds; turn++) {
        for (int p = 0; p < PRODUCTS; p++) {
            for (int s = 0; s < sides_of(p); s++) measure(p, &SIDES[s], &all[p][s]);
        }
    }
    for (int p = 0; p < PRODUCTS; p++) {
        for (int s = 0; s < sides_of(p); s++) show(p, &SIDES[s], &all[p][s]);
    }
    ga_team_close(team);
    return 0;
}
