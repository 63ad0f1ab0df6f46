/* cublaslt.c: the time that cuBLASLt takes for products, as a yardstick of `make bench-gpu`: opened by dlopen, linked
 * by nothing. Reads lines
 *
 *   NAME ROWS COLUMNS TERMS A_TURNED B_TURNED TYPE RESULT      TYPE, RESULT: f32, bf16, f16
 *
 * of products C = A x B of matrices by rows; a turned A is (terms, rows) in memory, a turned B (columns, terms). Prints
 * NAME and the microseconds of the shortest of a few bursts, or NAME and - where it has no way to compute it.
 * exit: 0, 1 wrong lines, 3 no device or no cuBLASLt */
#include "device/device_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, WORKSPACE_LIMIT = 1, COMPUTE_F32 = 68, WAYS = 8 }; /* of cublasLt.h */
enum { BURST = 10, BURSTS = 3, WORKSPACE = 64 << 20 };

typedef struct way { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} way;

#define LT_FUNCTIONS(F)                                                                                              \
    F(cublasLtCreate, (void **handle))                                                                               \
    F(cublasLtMatmulDescCreate, (void **product, int compute, int scale))                                            \
    F(cublasLtMatmulDescDestroy, (void *product))                                                                    \
    F(cublasLtMatmulDescSetAttribute, (void *product, int name, const void *value, size_t bytes))                    \
    F(cublasLtMatrixLayoutCreate, (void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride))        \
    F(cublasLtMatrixLayoutDestroy, (void *layout))                                                                   \
    F(cublasLtMatmulPreferenceCreate, (void **preference))                                                           \
    F(cublasLtMatmulPreferenceSetAttribute, (void *preference, int name, const void *value, size_t bytes))           \
    F(cublasLtMatmulAlgoGetHeuristic, (void *handle, void *product, void *a, void *b, void *c, void *d,              \
                                       void *preference, int most, way *ways, int *found))                           \
    F(cublasLtMatmul, (void *handle, void *product, const void *alpha, const void *a, void *a_layout, const void *b, \
                       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,     \
                       const void *algorithm, void *workspace, size_t bytes, void *stream))
#define POINTER(name, arguments) int (*name) arguments;
#define NAME(name, arguments) #name,

typedef struct bench {
    struct { LT_FUNCTIONS(POINTER) } lt;
    ga_device *device;
    ga_cuda_stream stream;
    ga_event from, to;
    ga_address workspace;
    void *handle, *preference;
} bench;

typedef struct product {
    char name[256], type[8], result[8];
    int rows, columns, terms, a_turned, b_turned;
} product;

static int open_bench(bench *b, ga_err *e) {
    static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    static const char *const names[] = {LT_FUNCTIONS(NAME)};
    const size_t limit = WORKSPACE;
    void *library;
    GA_TRY(ga_library_open(&library, files, names, (int)(sizeof names / sizeof *names), (void (**)(void)) & b->lt,
                           "install cuBLAS of the CUDA toolkit, or put its folder in LD_LIBRARY_PATH", e));
    GA_TRY(ga_device_open(&b->device, -1, e));
    GA_TRY(ga_device_stream(b->device, &b->stream, e));
    GA_TRY(ga_device_event(b->device, &b->from, e));
    GA_TRY(ga_device_event(b->device, &b->to, e));
    GA_TRY(ga_device_arena(b->device, WORKSPACE, &b->workspace, e));
    if (b->lt.cublasLtCreate(&b->handle) || b->lt.cublasLtMatmulPreferenceCreate(&b->preference) ||
        b->lt.cublasLtMatmulPreferenceSetAttribute(b->preference, WORKSPACE_LIMIT, &limit, sizeof limit))
        return ga_fail(e, GA_ENVIRONMENT, "cuBLASLt cannot be started");
    return 0;
}

static int type_of(const char *name) {
    return strcmp(name, "bf16") == 0 ? 14 : strcmp(name, "f16") == 0 ? 2 : 0; /* cudaDataType */
}

static size_t bytes_of(const char *type, int rows, int columns) {
    return (size_t)rows * (size_t)columns * (type_of(type) ? 2 : 4);
}

/* The layouts of a product for cuBLASLt, which has matrices by columns: C by rows is its transpose by columns, so it
 * computes B^T x A^T. */
typedef struct layouts {
    void *product, *first, *second, *result;
} layouts;

static int describe(const bench *b, const product *p, layouts *l) {
    const int type = type_of(p->type), first_turned = p->b_turned, second_turned = p->a_turned;
    const uint64_t m = (uint64_t)p->columns, n = (uint64_t)p->rows, k = (uint64_t)p->terms;
    return b->lt.cublasLtMatmulDescCreate(&l->product, COMPUTE_F32, 0) ||
           b->lt.cublasLtMatmulDescSetAttribute(l->product, TRANSPOSE_A, &first_turned, sizeof first_turned) ||
           b->lt.cublasLtMatmulDescSetAttribute(l->product, TRANSPOSE_B, &second_turned, sizeof second_turned) ||
           b->lt.cublasLtMatrixLayoutCreate(&l->first, type, first_turned ? k : m, first_turned ? m : k,
                                            (int64_t)(first_turned ? k : m)) ||
           b->lt.cublasLtMatrixLayoutCreate(&l->second, type, second_turned ? n : k, second_turned ? k : n,
                                            (int64_t)(second_turned ? n : k)) ||
           b->lt.cublasLtMatrixLayoutCreate(&l->result, type_of(p->result), m, n, (int64_t)m);
}

static void forget(const bench *b, layouts *l) {
    if (l->product) b->lt.cublasLtMatmulDescDestroy(l->product);
    if (l->first) b->lt.cublasLtMatrixLayoutDestroy(l->first);
    if (l->second) b->lt.cublasLtMatrixLayoutDestroy(l->second);
    if (l->result) b->lt.cublasLtMatrixLayoutDestroy(l->result);
}

/* Milliseconds of a call in a burst of them; below 0: it is refused. */
static int burst(const bench *b, const layouts *l, const way *w, const ga_address *at, float *ms, ga_err *e) {
    const float one = 1, zero = 0;
    *ms = -1;
    GA_TRY(ga_device_record(b->device, b->from, b->stream, e));
    for (int i = 0; i < BURST; i++)
        if (b->lt.cublasLtMatmul(b->handle, l->product, &one, (const void *)(uintptr_t)at[0], l->first,
                                 (const void *)(uintptr_t)at[1], l->second, &zero, (const void *)(uintptr_t)at[2],
                                 l->result, (void *)(uintptr_t)at[2], l->result, w->algorithm,
                                 (void *)(uintptr_t)b->workspace, WORKSPACE, b->stream))
            return 0;
    GA_TRY(ga_device_record(b->device, b->to, b->stream, e));
    GA_TRY(ga_device_elapsed(b->device, b->from, b->to, ms, e));
    *ms /= BURST;
    return 0;
}

/* The shortest burst of all ways that cuBLASLt proposes. */
static int shortest(const bench *b, const layouts *l, const ga_address *at, float *least, ga_err *e) {
    way ways[WAYS] = {0};
    int found = 0;
    *least = -1;
    if (b->lt.cublasLtMatmulAlgoGetHeuristic(b->handle, l->product, l->first, l->second, l->result, l->result,
                                             b->preference, WAYS, ways, &found))
        return 0;
    for (int i = 0; i < found; i++)
        for (int n = 0; n <= BURSTS; n++) { /* the first one warms up */
            float ms;
            GA_TRY(burst(b, l, &ways[i], at, &ms, e));
            if (n > 0 && ms >= 0 && (*least < 0 || ms < *least)) *least = ms;
        }
    return 0;
}

/* Operands of zeros would need less power, and so run faster: all bytes are 0x3c, in each type a number of 0.01 to
 * 1.1. */
static int measure(const bench *b, const product *p, ga_err *e) {
    const size_t bytes[3] = {bytes_of(p->type, p->terms, p->columns), bytes_of(p->type, p->rows, p->terms),
                             bytes_of(p->result, p->rows, p->columns)};
    layouts l = {0};
    ga_address at[3] = {0};
    float ms = -1;
    int code = 0;
    bool fits = true;
    for (int i = 0; i < 3 && code == 0; i++) {
        code = ga_device_borrow(b->device, bytes[i], &at[i], e);
        fits = fits && at[i];
        if (code == 0 && at[i]) code = ga_device_fill(b->device, b->stream, at[i], 0x3c, bytes[i], e);
    }
    if (code == 0 && fits && describe(b, p, &l) == 0) code = shortest(b, &l, at, &ms, e);
    forget(b, &l);
    for (int i = 0; i < 3; i++)
        if (at[i]) ga_device_give_back(b->device, at[i]);
    if (code == 0 && ms >= 0) printf("%s %.3f\n", p->name, 1e3 * (double)ms);
    if (code == 0 && ms < 0) printf("%s -\n", p->name);
    return code;
}

static int measure_all(ga_err *e) {
    bench b = {0};
    product p;
    int got, code = open_bench(&b, e);
    while (code == 0 && (got = scanf("%255s %d %d %d %d %d %7s %7s", p.name, &p.rows, &p.columns, &p.terms, &p.a_turned,
                                     &p.b_turned, p.type, p.result)) != EOF)
        code = got == 8 ? measure(&b, &p, e) : ga_fail(e, GA_INPUT, "wrong line, expected eight words");
    ga_device_close(b.device);
    return code;
}

int main(void) {
    ga_err e = {0};
    const int code = measure_all(&e);
    if (code == 0) return 0;
    fprintf(stderr, "cublaslt: %s\n", e.msg);
    return code == GA_INPUT ? 1 : 3;
}
