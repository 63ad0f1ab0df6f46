/* exchange.c: see exchange.h. */
#include "ranks/exchange.h"

#include "base/bf16.h"
#include "base/f16.h"

#include <limits.h>

enum { BLOCK = 1024 }; /* elements that are summed at a time */

int64_t ga_cut(const ga_exchange *x, int i, int size) {
    if (x->cuts) return x->cuts[i];
    const int64_t each = x->n / ((int64_t)size * GA_CUT) * GA_CUT;
    return i == size ? x->n : i * each;
}

const char *ga_exchange_name(const ga_exchange *x) {
    static const char *const NAMES[] = {"all-reduce", "reduce-scatter", "all-gather"};
    return NAMES[x->kind];
}

int ga_exchange_check(const ga_exchange *x, int request, ga_err *e) {
    if (request < 0 || request >= GA_COMM_REQUESTS)
        return ga_fail(e, GA_BUG, "request %d: not in 0..%d", request, GA_COMM_REQUESTS - 1);
    const bool half = x->wire == GA_BF16 || x->wire == GA_F16;
    const bool gathered = x->kind == GA_ALL_GATHER && x->type == x->wire;
    if (half ? x->type != GA_F32 && !gathered : x->type != x->wire || (x->type != GA_F32 && x->type != GA_F64))
        return ga_fail(e, GA_BUG, "%s of %s as %s: F32 as F32, BF16 or F16, or F64 as F64 expected, or a gather of 16 "
                       "bits", ga_exchange_name(x), ga_dtype_name(x->type), ga_dtype_name(x->wire));
    if (x->n < 0 || x->n > INT_MAX)
        return ga_fail(e, GA_BUG, "exchange of %lld elements: at most %d expected", (long long)x->n, INT_MAX);
    return GA_OK;
}

int64_t ga_exchange_bytes(const ga_exchange *x) {
    return x->n * (int64_t)ga_dtype_bytes(x->kind == GA_ALL_GATHER ? x->type : x->wire);
}

/* sum[i] += part[from + i], or = where first. */
static void add_floats(float *sum, const void *part, int64_t from, int n, ga_dtype wire, bool first) {
    if (wire == GA_F32) {
        const float *p = (const float *)part + from;
        for (int i = 0; i < n; i++) sum[i] = first ? p[i] : sum[i] + p[i];
    } else if (wire == GA_BF16) {
        const bf16 *p = (const bf16 *)part + from;
        for (int i = 0; i < n; i++) sum[i] = first ? bf16_widen(p[i]) : sum[i] + bf16_widen(p[i]);
    } else {
        const f16 *p = (const f16 *)part + from;
        for (int i = 0; i < n; i++) sum[i] = first ? f16_widen(p[i]) : sum[i] + f16_widen(p[i]);
    }
}

static void add_doubles(double *sum, const double *p, int n, bool first) {
    for (int i = 0; i < n; i++) sum[i] = first ? p[i] : sum[i] + p[i];
}

void ga_exchange_sum(void *out, bool add, const void *const *parts, int count, int64_t n, ga_dtype type,
                     ga_dtype wire) {
    float floats[BLOCK];
    double doubles[BLOCK];
    for (int64_t from = 0; from < n; from += BLOCK) {
        const int m = n - from < BLOCK ? (int)(n - from) : BLOCK;
        for (int k = 0; k < count; k++) {
            if (type == GA_F32) add_floats(floats, parts[k], from, m, wire, k == 0);
            else add_doubles(doubles, (const double *)parts[k] + from, m, k == 0);
        }
        if (type == GA_F32) {
            float *y = (float *)out + from;
            for (int i = 0; i < m; i++) y[i] = add ? y[i] + floats[i] : floats[i];
        } else {
            double *y = (double *)out + from;
            for (int i = 0; i < m; i++) y[i] = add ? y[i] + doubles[i] : doubles[i];
        }
    }
}

void ga_exchange_narrow(void *out, const float *from, int64_t n, ga_dtype wire) {
    if (wire == GA_BF16)
        for (int64_t i = 0; i < n; i++) ((bf16 *)out)[i] = bf16_narrow(from[i]);
    else
        for (int64_t i = 0; i < n; i++) ((f16 *)out)[i] = f16_narrow(from[i]);
}

void ga_exchange_round(float *values, int64_t n, ga_dtype wire) {
    for (int64_t i = 0; i < n; i++)
        values[i] = wire == GA_BF16 ? bf16_rounded(values[i]) : f16_rounded(values[i]);
}
