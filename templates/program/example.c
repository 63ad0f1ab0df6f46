//@ example(header, name, upper, arrays, fills, rows)
$header
#include "$(name).h"

#include <stdio.h>
#include <stdlib.h>

/* A micro-batch of your own. */
static struct {
    $arrays
} own;

/* Put your rows here; these are made up. */
static void fill(int64_t k) {
    $fills
}

static int train($name *m, int64_t cycles, ga_err *e) {
    const $(name)_batch b = {$rows};
    for (int64_t k = 0; k < cycles * $(upper)_ACCUMULATE; k++) {
        fill(k);
        GA_TRY($(name)_backward(m, &b, e));
        const int done = $(name)_step(m, e); /* 0 until the cycle is full */
        if (done < 0) return done;
        const $(name)_counters *c = $(name)_count(m);
        if (done > 0 && $(name)_rank(m) == 0)
            printf("cycle %lld loss %.6g lr %.3g gnorm %.3g%s\n", (long long)c->cycle, c->loss, c->lr,
                   c->grad_norm, done == 2 ? " skipped" : "");
    }
    return 0;
}

/* example [CYCLES [FOLDER]]: trains, and leaves a checkpoint in FOLDER. */
int main(int argc, char **argv) {
    ga_err e = {0};
    $name *m;
    int code = $(name)_open(&m, NULL, &e);
    if (code >= 0) {
        code = train(m, argc > 1 ? atoll(argv[1]) : 5, &e);
        if (code >= 0 && argc > 2) code = $(name)_save(m, argv[2], &e);
        $(name)_close(m);
    }
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    return code < 0 ? -code : 0;
}
