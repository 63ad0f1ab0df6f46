/* reduce.c: seconds of all-reduces over the ranks without any computing, as a program does them: 64 MB of floats in
 * buckets of 25 MiB that are all under way. For bench/hosts; rank 0 prints one line for each. */
#include "ranks/comm.h"

#include <stdio.h>
#include <stdlib.h>

enum { FLOATS = 16000000, BUCKET = 25 << 18, BUCKETS = (FLOATS + BUCKET - 1) / BUCKET, TIMES = 6 };

static int reduce(ga_comm *c, float *values, ga_err *e) {
    for (int i = 0; i < BUCKETS; i++) {
        const int64_t left = FLOATS - (int64_t)i * BUCKET;
        const ga_exchange x = {.kind = GA_ALL_REDUCE, .values = values + (size_t)i * BUCKET,
                               .n = left < BUCKET ? left : BUCKET, .type = GA_F32, .wire = GA_F32};
        GA_TRY(ga_comm_start(c, i, &x, e));
    }
    for (int i = 0; i < BUCKETS; i++) GA_TRY(ga_comm_wait(c, i, e));
    return GA_OK;
}

static int run(ga_err *e) {
    ga_arena memory, wires, values;
    ga_comm *c;
    GA_TRY(ga_arena_open(&memory, "memory", 1 << 20, e));
    GA_TRY(ga_arena_open(&wires, "wires", (size_t)GA_WIRES * BUCKET * sizeof(float), e));
    GA_TRY(ga_arena_open(&values, "values", (size_t)FLOATS * sizeof(float), e));
    GA_TRY(ga_comm_open(&c, &memory, &wires, e));
    for (int i = 0; i < TIMES; i++) {
        GA_TRY(ga_comm_barrier(c, e));
        const double from = ga_clock();
        GA_TRY(reduce(c, (float *)values.base, e));
        if (ga_comm_rank(c) == 0 && i > 0) printf("%.4f\n", ga_clock() - from); /* the first one opens connections */
    }
    ga_comm_close(c);
    return GA_OK;
}

int main(void) {
    ga_err e = {0};
    const int code = run(&e);
    if (code < 0) fprintf(stderr, "reduce: %s\n", e.msg);
    return -code;
}
