/* Drives the program "strategy" in the order in which Lightning's Trainer calls ColossalAIStrategy.
 *   strategy fit FOLDER        setup, validation before training, epochs of training steps with a validation behind each,
 *                              test, the parameters on rank 0, a checkpoint, teardown
 *   strategy restore FOLDER    setup, the checkpoint loaded behind it, test, one more epoch
 *   strategy test FOLDER       setup and test alone, without a fit
 * Rank 0 prints a line for each measurement: its name, rows, loss and accuracy. ROWS_FILE: the rows that are measured.
 * Exit 0, or 1 with the message. */
#include "strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, WIDTH = 6, ROWS = 80, EPOCHS = 4 };

static float input[ROWS][WIDTH];
static int32_t target[ROWS];

static void read_rows(const char *path) {
    FILE *f = fopen(path, "r");
    for (int i = 0; f && i < ROWS; i++) {
        for (int k = 0; k < WIDTH; k++)
            if (fscanf(f, "%f,", &input[i][k]) != 1) exit(2);
        if (fscanf(f, "%d", &target[i]) != 1) exit(2);
    }
    if (!f) exit(2);
    fclose(f);
}

/* Each rank measures its share of the rows; the sums go to all ranks, where the strategy gives them to rank 0 alone. */
static int measure(strategy *m, const char *name, ga_err *e) {
    double sums[3] = {0};
    for (int k = strategy_rank(m); k < ROWS / BATCH; k += strategy_world(m)) {
        const strategy_batch b = {input[k * BATCH], target + k * BATCH, BATCH};
        strategy_metrics v;
        GA_TRY(strategy_validation_step(m, &b, &v, e));
        sums[0] += (double)v.rows;
        sums[1] += v.loss_sum;
        sums[2] += (double)v.correct;
    }
    GA_TRY(strategy_reduce(m, sums, 3, GA_F64, GA_SUM, -1, e));
    if (strategy_rank(m) == 0) printf("%s %g %.9g %.9g\n", name, sums[0], sums[1] / sums[0], sums[2] / sums[0]);
    return 0;
}

/* Training steps to the end of an epoch; the optimizer steps where the cycle is full. */
static int epoch(strategy *m, ga_err *e) {
    strategy_batch b;
    int code;
    while ((code = strategy_next(m, &b, e)) > 0) {
        GA_TRY(strategy_backward(m, &b, e));
        const bool full = strategy_should_step(m);
        const int done = strategy_step(m, e);
        if (done < 0) return done;
        if ((done > 0) != full) return ga_fail(e, GA_BUG, "step gives %d, should_step %d", done, full);
    }
    return code < 0 ? code : strategy_flush(m, e);
}

typedef struct kept {
    int tensors;
    int64_t elements;
} kept;

static int keep(void *context, const ga_tensor *t) {
    kept *k = context;
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->shape[d];
    k->tensors++;
    k->elements += n;
    return 0;
}

static int fit(strategy *m, const char *folder, ga_err *e) {
    GA_TRY(measure(m, "before", e));
    for (int i = 0; i < EPOCHS; i++) {
        GA_TRY(epoch(m, e));
        GA_TRY(measure(m, "epoch", e));
    }
    GA_TRY(measure(m, "test", e));
    kept k = {0};
    GA_TRY(strategy_state_dict(m, true, keep, &k, e));
    const double mine[2] = {k.tensors, (double)k.elements};
    double all[32];
    GA_TRY(strategy_all_gather(m, mine, all, 2, GA_F64, e));
    for (int r = 0; r < strategy_world(m) && strategy_rank(m) == 0; r++)
        printf("rank %d keeps %g tensors, %g elements\n", r, all[2 * r], all[2 * r + 1]);
    return strategy_save(m, folder, e);
}

static int restore(strategy *m, const char *folder, ga_err *e) {
    GA_TRY(measure(m, "fresh", e));
    GA_TRY(strategy_load(m, folder, e));
    GA_TRY(measure(m, "test", e));
    GA_TRY(epoch(m, e));
    return measure(m, "epoch", e);
}

int main(int argc, char **argv) {
    ga_err e = {0};
    strategy *m = NULL;
    if (argc != 3) return 2;
    read_rows(getenv("ROWS_FILE"));
    const strategy_options o = {.checkpoint = argv[2], .threads = 1};
    int code = strategy_open(&m, &o, &e);
    if (code >= 0 && strcmp(argv[1], "fit") == 0) code = fit(m, argv[2], &e);
    if (code >= 0 && strcmp(argv[1], "restore") == 0) code = restore(m, "latest", &e);
    if (code >= 0 && strcmp(argv[1], "test") == 0) code = measure(m, "test", &e);
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    strategy_close(m);
    return code < 0;
}
