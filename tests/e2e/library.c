/* Drives the program "looped" as a library, from loops of its own.
 *   library own CYCLES FOLDER        rows read here, in the order of the file; saves in FOLDER
 *   library next CYCLES FOLDER       the program's own rows
 *   library cycles CYCLES FOLDER     whole cycles
 *   library resumed CYCLES FOLDER    own, but saved, closed and loaded again inside the second cycle
 *   library loaded CYCLES FOLDER     own, but saved and loaded again inside the second cycle
 *   library averages CYCLES FOLDER   own, measuring after each cycle
 *   library grad CYCLES FOLDER       own, with the gradient of the output computed here
 *   library grad-resumed CYCLES FOLDER   the same, but loaded again inside the second cycle
 *   library dropped CYCLES FOLDER    own, behind micro-steps that are discarded and a full cycle that is
 *   library later CYCLES FOLDER      with accumulate { 4, later = { [1] = 3 } }: loaded again inside the second cycle
 *   library carried CYCLES FOLDER    the program's own rows, loaded again inside the cycle that two epochs share
 *   library misuse | handler | whole | dict | measure | ranks | scaled | short | lost      print "ok"
 * Exit 0, or 1 with what was wrong. */
#include "looped.h"

#include "looped_checks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, WIDTH = 4, CLASSES = 3, ROWS = 90, ACCUMULATE = LOOPED_ACCUMULATE };

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

/* Micro-batch k of this rank: of an epoch of 30 / world micro-batches in whole cycles. */
static looped_batch batch_at(const looped *m, int64_t k) {
    const int64_t world = looped_world(m), per_epoch = ROWS / BATCH / world / ACCUMULATE * ACCUMULATE;
    const int64_t row = (k % per_epoch * world + looped_rank(m)) * BATCH;
    return (looped_batch){input[row], target + row, BATCH};
}

static int own(looped *m, int64_t from, int64_t to, ga_err *e) {
    for (int64_t k = from; k < to; k++) {
        const looped_batch b = batch_at(m, k);
        GA_TRY(looped_backward(m, &b, e));
        const int done = looped_step(m, e);
        if (done < 0) return done;
        if ((done > 0) != ((k + 1) % ACCUMULATE == 0))
            return ga_fail(e, GA_BUG, "step gives %d after micro-step %lld", done, (long long)k);
    }
    return 0;
}

static int next(looped *m, int64_t cycles, ga_err *e) {
    looped_batch b;
    while (looped_count(m)->cycle < cycles) {
        const int code = looped_next(m, &b, e);
        if (code < 0) return code;
        if (code > 0) GA_TRY(looped_backward(m, &b, e));
        const int done = code > 0 ? looped_step(m, e) : looped_flush(m, e);
        if (done < 0) return done;
    }
    return 0;
}

/* The gradient of the mean of cross-entropies, from the output that predict gives. */
static int by_grad(looped *m, int64_t from, int64_t to, ga_err *e) {
    for (int64_t k = from; k < to; k++) {
        looped_batch b = batch_at(m, k);
        float y[BATCH * CLASSES], d[BATCH * CLASSES];
        GA_TRY(looped_forward_step(m, &b, y, e));
        for (int i = 0; i < BATCH; i++) {
            double sum = 0;
            for (int c = 0; c < CLASSES; c++) sum += exp(y[i * CLASSES + c]);
            for (int c = 0; c < CLASSES; c++)
                d[i * CLASSES + c] = (float)((exp(y[i * CLASSES + c]) / sum - (c == b.target[i])) /
                                             (BATCH * ACCUMULATE * looped_world(m)));
        }
        b.target = NULL;
        GA_TRY(looped_backward_by_grad(m, &b, d, e));
        const int done = looped_step(m, e);
        if (done < 0) return done;
    }
    return 0;
}

static int open_again(looped **m, const looped_options *o, ga_err *e) {
    GA_TRY(looped_save(*m, NULL, e));
    looped_close(*m);
    looped_options again = *o;
    again.resume = "latest";
    return looped_open(m, &again, e);
}

/* An epoch has 30 micro-steps: it ends behind the cycle that ends with the 32nd. */
static int carried(looped **m, const looped_options *o, int64_t cycles, ga_err *e) {
    looped_batch b;
    int ends = 0;
    while (looped_count(*m)->cycle < cycles) {
        const int code = looped_next(*m, &b, e);
        if (code < 0) return code;
        const int64_t micro = looped_count(*m)->micro;
        if (code == 0 && (micro != 32 || ends++))
            return ga_fail(e, GA_BUG, "next: the epoch ends behind micro-step %lld", (long long)micro);
        if (code == 0) continue;
        GA_TRY(looped_backward(*m, &b, e));
        const int done = looped_step(*m, e);
        if (done < 0) return done;
        if (micro >= 28 && micro < 31) GA_TRY(open_again(m, o, e));
    }
    return ends ? 0 : ga_fail(e, GA_BUG, "next: no end of the epoch");
}

/* A load that is refused, here for its seed, changes no parameter. */
static int refused(const char *folder, ga_err *e) {
    looped *m;
    float before[BATCH * CLASSES], behind[BATCH * CLASSES];
    ga_err why = {0};
    GA_TRY(looped_open(&m, &(looped_options){.checkpoint = folder, .seed = 9}, e));
    const looped_batch b = batch_at(m, 0);
    GA_TRY(looped_predict_step(m, &b, before, e));
    if (looped_load(m, "latest", &why) != GA_INPUT || !strstr(why.msg, "this run has 9"))
        return ga_fail(e, GA_BUG, "a checkpoint of another seed is loaded");
    GA_TRY(looped_predict_step(m, &b, behind, e));
    looped_close(m);
    return memcmp(before, behind, sizeof before) ? ga_fail(e, GA_BUG, "a load that is refused changes parameters") : 0;
}

static int loaded(looped *m, int64_t to, const char *folder, ga_err *e) {
    GA_TRY(own(m, 0, ACCUMULATE + 2, e));
    GA_TRY(looped_save(m, folder, e));
    GA_TRY(refused(folder, e));
    GA_TRY(own(m, ACCUMULATE + 2, 2 * ACCUMULATE + 1, e)); /* lost again */
    GA_TRY(looped_load(m, "latest", e));
    return own(m, ACCUMULATE + 2, to, e);
}

static int resumed(looped **m, const looped_options *o, int64_t cycles, const char *folder, ga_err *e) {
    GA_TRY(loaded(*m, ACCUMULATE + 3, folder, e));
    GA_TRY(open_again(m, o, e));
    return own(*m, ACCUMULATE + 3, cycles * ACCUMULATE, e);
}

static int dropped(looped *m, int64_t cycles, ga_err *e) {
    for (int count = 1; count <= ACCUMULATE; count += ACCUMULATE - 1) {
        for (int k = 0; k < count; k++) {
            const looped_batch b = batch_at(m, 7 + k);
            GA_TRY(looped_backward(m, &b, e));
        }
        looped_discard(m);
    }
    return own(m, 0, cycles * ACCUMULATE, e);
}

static int by_grad_resumed(looped **m, const looped_options *o, int64_t cycles, ga_err *e) {
    GA_TRY(by_grad(*m, 0, ACCUMULATE + 2, e));
    GA_TRY(open_again(m, o, e));
    const looped_batch b = batch_at(*m, 0);
    if (looped_backward(*m, &b, e) != GA_INPUT || !strstr(e->msg, "not by both"))
        return ga_fail(e, GA_BUG, "the kind of the cycle is lost");
    return by_grad(*m, ACCUMULATE + 2, cycles * ACCUMULATE, e);
}

static int later(looped **m, const looped_options *o, int64_t cycles, ga_err *e) {
    for (int64_t k = 0; k < ACCUMULATE + 3 * (cycles - 1); k++) {
        const looped_batch b = batch_at(*m, k);
        GA_TRY(looped_backward(*m, &b, e));
        if (k == ACCUMULATE + 1) GA_TRY(open_again(m, o, e));
        const bool full = k >= ACCUMULATE ? (k - ACCUMULATE) % 3 == 2 : k == ACCUMULATE - 1;
        const int done = looped_step(*m, e);
        if (done < 0) return done;
        if ((done > 0) != full) return ga_fail(e, GA_BUG, "step gives %d after micro-step %lld", done, (long long)k);
    }
    return 0;
}

static void misuse(looped *m) {
    ga_err e = {0};
    looped *other = m;
    FAILS(looped_open(&other, &(looped_options){.seed = UINT64_C(1) << 63}, &e),
          "seed: 9223372036854775808, expected at most 2^63 - 1");
    CHECK(other == NULL);
    const looped_batch b = batch_at(m, 0);
    float d[BATCH * CLASSES] = {0};
    looped_close(NULL);
    looped_zero_grad(m);
    CHECK(looped_step(m, &e) == 0 && looped_flush(m, &e) == 0);
    CHECK(looped_accumulation_boundary(m) && !looped_should_step(m));
    for (int k = 0; k < ACCUMULATE; k++) {
        CHECK(looped_step(m, &e) == 0);
        CHECK(looped_backward(m, &b, &e) == 0);
        CHECK(!looped_accumulation_boundary(m));
    }
    CHECK(looped_should_step(m));
    FAILS(looped_backward(m, &b, &e), "4 of 4 micro-steps accumulated: call step");
    FAILS(looped_cycle(m, &e), "4 micro-steps are accumulated");
    FAILS(looped_save(m, ".", &e), "4 of 4 micro-steps accumulated: call step");
    CHECK(looped_count(m)->r == 4 && looped_count(m)->micro == 4);
    CHECK(looped_step(m, &e) == 1 && looped_count(m)->update == 1 && looped_accumulation_boundary(m));
    CHECK(looped_backward(m, &b, &e) == 0);
    FAILS(looped_backward_by_grad(m, &b, d, &e), "not by both");
    looped_discard(m);
    CHECK(looped_count(m)->r == 0 && looped_step(m, &e) == 0);
    const int32_t wrong[BATCH] = {0, 1, CLASSES};
    FAILS(looped_backward(m, &(looped_batch){input[0], wrong, BATCH}, &e), "target: element 2 is 3, expected 0 to 2");
    FAILS(looped_backward(m, &(looped_batch){input[0], NULL, BATCH}, &e), "target is NULL");
    FAILS(looped_backward(m, &(looped_batch){NULL, target, BATCH}, &e), "input is NULL");
    FAILS(looped_backward(m, &(looped_batch){input[0], target, BATCH + 1}, &e), "4 rows, expected 0 to 3");
    FAILS(looped_save(m, NULL, &e), "no folder");
    char inside[1024]; /* a file is no folder */
    snprintf(inside, sizeof inside, "%s/x", getenv("ROWS_FILE"));
    CHECK(looped_save(m, inside, &e) < 0 && strstr(e.msg, inside) != NULL);
    FAILS(looped_load(m, inside, &e), inside);
    FAILS(looped_report(m, 1, &e), "constant");
    looped_batch served;
    CHECK(looped_next(m, &served, &e) == 1 && looped_backward(m, &served, &e) == 0 && looped_backward(m, &b, &e) == 0);
    FAILS(looped_save(m, inside, &e), "save behind looped_step");
    looped_discard(m);
    FAILS(looped_least(m, -1, &e), "least: found -1, expected 0 <= n < 2^53");
    FAILS(looped_least(m, INT64_C(1) << 53, &e), "expected 0 <= n < 2^53");
    FAILS(looped_broadcast(m, d, 4, 1, &e), "rank 1, expected 0 to 0");
    CHECK(looped_lr(m, 0, 1) == 0.01 && looped_lr(m, 7, 1) == 0 && looped_lr(m, 0, 0) == 0);
    CHECK(looped_root_device(m) == -1 && looped_rank(m) == 0 && looped_world(m) == 1);
    CHECK(looped_count(m)->skipped == 0);
    CHECK(own(m, 0, ACCUMULATE, &e) == 0); /* all that did no harm */
}

/* -- handlers, parameters, measures ------------------------------------------------------------ */

/* Facts that a handler has seen: tensors, and the sum of squares of their elements. */
typedef struct seen {
    int tensors;
    double squares;
} seen;

static int doubled(void *context, ga_tensor *g, int n, ga_err *e) {
    seen *s = context;
    (void)e;
    for (int i = 0; i < n; i++) {
        int64_t count = 1;
        for (int d = 0; d < g[i].rank; d++) count *= g[i].shape[d];
        for (int64_t k = 0; k < count; k++) {
            const double value = ga_get(g[i].data, g[i].dtype, k);
            s->squares += value * value;
            ga_set(g[i].data, g[i].dtype, k, 2 * value);
        }
    }
    s->tensors += n;
    return 0;
}

static int refuses(void *context, ga_tensor *g, int n, ga_err *e) {
    (void)context, (void)n;
    return ga_fail(e, GA_INPUT, "no %s today", g[0].name);
}

static void handler(looped *m) {
    ga_err e = {0};
    seen s = {0};
    CHECK(looped_set_gradient_handler(m, doubled, &s) == 0);
    CHECK(own(m, 0, ACCUMULATE, &e) == 0);
    CHECK(s.tensors == 4); /* at the boundary, once: two weights, two biases */
    const double twice = looped_count(m)->grad_norm;
    CHECK(fabs(twice - 2 * sqrt(s.squares)) < 1e-6 * twice); /* the mean gradient, with a scaler too */
    looped_batch some = batch_at(m, 0);
    some.rows = 2; /* of a cycle of 12: divided by them, what a handler sees too */
    s.squares = 0;
    CHECK(looped_backward(m, &some, &e) == 0 && looped_flush(m, &e) == 1);
    CHECK(fabs(looped_count(m)->grad_norm - 2 * sqrt(s.squares)) < 5e-3 * looped_count(m)->grad_norm);
    CHECK(looped_set_gradient_handler(m, NULL, NULL) == 0);
    looped *other;
    CHECK(looped_open(&other, NULL, &e) == 0 && own(other, 0, ACCUMULATE, &e) == 0);
    CHECK(fabs(twice - 2 * looped_count(other)->grad_norm) < 1e-6 * twice);
    CHECK(looped_set_gradient_handler(other, refuses, NULL) == 0);
    FAILS(own(other, 0, ACCUMULATE, &e), "no fc1.weight today");
    looped_close(other);
}

/* Where a rank has only its own part of the gradients. */
static void whole(looped *m) {
    ga_err e = {0};
    seen s = {0};
    CHECK(looped_set_gradient_handler(m, doubled, &s) == GA_INPUT);
    CHECK(looped_set_gradient_handler(m, NULL, NULL) == 0);
    CHECK(own(m, 0, ACCUMULATE, &e) == 0 && s.tensors == 0);
}

static int zero(void *context, ga_tensor *t) {
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    memset(t->data, 0, (size_t)count * sizeof(float));
    *(int64_t *)context += count;
    return 0;
}

static int sum(void *context, const ga_tensor *t) {
    int64_t count = 1;
    for (int d = 0; d < t->rank; d++) count *= t->shape[d];
    for (int64_t i = 0; i < count; i++) *(double *)context += fabs(ga_get(t->data, t->dtype, i));
    return strcmp(t->name, "fc2.bias") == 0 && *(double *)context < 0 ? -1 : 0;
}

static int stops(void *context, ga_tensor *t) {
    zero(context, t);
    return -1;
}

static void dict(looped *m) {
    ga_err e = {0};
    double before = 0, after = 0;
    int64_t elements = 0;
    float y[BATCH * CLASSES];
    const looped_batch b = batch_at(m, 0);
    CHECK(looped_state_dict(m, true, sum, &before, &e) == 0 && before > 1);
    FAILS(looped_load_state_dict(m, stops, &elements, &e), "stopped here");
    CHECK(looped_state_dict(m, false, sum, &after, &e) == 0 && after == before);
    elements = 0;
    CHECK(looped_load_state_dict(m, zero, &elements, &e) == 0);
    CHECK(elements == 4 * 8 + 8 + 8 * 3 + 3 && looped_output_elements(m) == BATCH * CLASSES);
    CHECK(looped_predict_step(m, &b, y, &e) == 0);
    for (int i = 0; i < BATCH * CLASSES; i++) CHECK(y[i] == 0);
    looped_metrics v;
    CHECK(looped_validation_step(m, &b, &v, &e) == 0);
    CHECK(fabs(v.loss_sum - 3 * log(3)) < 1e-6 && v.weight == 3 && v.rows == 3);
}

/* Evaluating between micro-steps changes nothing; rows that are missing do not count. */
static void measure(looped *m) {
    ga_err e = {0};
    looped_metrics all = {0}, v;
    looped_batch b = batch_at(m, 0);
    for (int64_t k = 0; k < ROWS / BATCH; k++) {
        b = batch_at(m, k);
        CHECK(looped_validation_step(m, &b, &v, &e) == 0);
        all.loss_sum += v.loss_sum;
        all.rows += v.rows;
        all.correct += v.correct;
    }
    CHECK(all.rows == 84 + 6); /* batch_at goes round after 28 */
    looped *other;
    CHECK(looped_open(&other, NULL, &e) == 0);
    for (int64_t k = 0; k < ACCUMULATE; k++) {
        b = batch_at(m, k);
        CHECK(looped_backward(m, &b, &e) == 0 && looped_backward(other, &b, &e) == 0);
        CHECK(looped_validation_step(m, &b, &v, &e) == 0);
    }
    CHECK(looped_step(m, &e) == 1 && looped_step(other, &e) == 1);
    CHECK(looped_count(m)->loss == looped_count(other)->loss);
    CHECK(looped_count(m)->grad_norm == looped_count(other)->grad_norm && looped_count(m)->rows == 12);
    double one = 0, two = 0;
    CHECK(looped_state_dict(m, true, sum, &one, &e) == 0 && looped_state_dict(other, true, sum, &two, &e) == 0);
    CHECK(one == two);
    b = batch_at(m, 0);
    b.rows = 2;
    CHECK(looped_validation_step(m, &b, &v, &e) == 0 && v.rows == 2 && v.weight == 2);
    CHECK(looped_backward(m, &b, &e) == 0 && looped_flush(m, &e) == 1);
    CHECK(looped_count(m)->rows == 2 && looped_count(m)->update == 2);
    looped_close(other);
}

static void ranks(looped *m) {
    ga_err e = {0};
    const int rank = looped_rank(m), world = looped_world(m);
    double mine[2] = {rank, -rank}, all[16];
    CHECK(looped_all_gather(m, mine, all, 2, GA_F64, &e) == 0);
    for (int i = 0; i < world; i++) CHECK(all[2 * i] == i && all[2 * i + 1] == -i);
    CHECK(looped_reduce(m, mine, 2, GA_F64, GA_MAX, -1, &e) == 0 && mine[0] == world - 1 && mine[1] == 0);
    mine[0] = rank;
    CHECK(looped_reduce(m, mine, 1, GA_F64, GA_MIN, 0, &e) == 0 && mine[0] == 0);
    float x = (float)rank;
    CHECK(looped_reduce(m, &x, 1, GA_F32, GA_MEAN, -1, &e) == 0 && x == (float)(world - 1) / 2);
    int32_t n = 1;
    CHECK(looped_reduce(m, &n, 1, GA_I32, GA_SUM, -1, &e) == 0 && n == world);
    FAILS(looped_reduce(m, &n, 1, GA_I32, GA_MAX, -1, &e), "I32");
    CHECK(looped_least(m, 7 + looped_rank(m), &e) == 7 && looped_least(m, 9 - looped_rank(m), &e) == 10 - world);
    FAILS(looped_reduce(m, &n, 1, GA_I32, GA_SUM, world, &e), "expected -1 to");
    n = 7 + rank;
    CHECK(looped_broadcast(m, &n, sizeof n, world - 1, &e) == 0 && n == 7 + world - 1);
    const looped_batch b = batch_at(m, 0);
    const int64_t before = looped_count(m)->collectives;
    for (int k = 0; k < 3; k++) CHECK(looped_backward(m, &b, &e) == 0);
    CHECK(looped_count(m)->collectives == before); /* nothing off the boundary */
    CHECK(looped_flush(m, &e) == 1 && looped_count(m)->collectives > before);
    for (int k = 0; k < ACCUMULATE; k++) CHECK(looped_backward(m, &b, &e) == 0);
    looped_discard(m);
    CHECK(own(m, 0, ACCUMULATE, &e) == 0);
}

/* With scaler { initial_scale = 1024, growth_interval = 2 }: the scale of the last cycle is counted, and a gradient
 * of the output that overflows is skipped and lowers it. */
static void scaled(looped *m) {
    ga_err e = {0};
    const looped_batch b = batch_at(m, 0);
    float d[BATCH * CLASSES] = {0};
    CHECK(own(m, 0, 2 * ACCUMULATE, &e) == 0 && looped_count(m)->scale == 1024);
    d[0] = 1e37f; /* what 2048 is too much for, and 1 would not be */
    for (int k = 0; k < ACCUMULATE; k++) CHECK(looped_backward_by_grad(m, &b, d, &e) == 0);
    CHECK(looped_step(m, &e) == 2 && looped_count(m)->scale == 2048 && looped_count(m)->skipped == 1);
    CHECK(own(m, 0, ACCUMULATE, &e) == 0 && looped_count(m)->scale == 1024 && looped_count(m)->update == 3);
}

/* With batchnorm: its statistics are those of all rows, so there must be all of them; not where nothing is trained. */
static void short_batches(looped *m) {
    ga_err e = {0};
    looped_batch b = batch_at(m, 0);
    looped_metrics v;
    b.rows = BATCH - 1;
    FAILS(looped_backward(m, &b, &e), "2 rows, expected 3: batchnorm takes statistics over all of them");
    CHECK(looped_validation_step(m, &b, &v, &e) == 0 && v.rows == BATCH - 1);
}

static int overflow(void *context, ga_tensor *t) {
    (void)context;
    for (int64_t i = 0; strcmp(t->name, "fc2.weight") == 0 && i < t->shape[0] * t->shape[1]; i++)
        ((float *)t->data)[i] = 3e38f;
    return 0;
}

/* With a loss that overflows and on_nonfinite = "stop". */
static void lost(looped *m) {
    ga_err e = {0};
    CHECK(looped_load_state_dict(m, overflow, NULL, &e) == 0);
    for (int i = 0; i < 2; i++) {
        memset(&e, 0, sizeof e);
        CHECK((i ? own(m, 0, ACCUMULATE, &e) : looped_cycle(m, &e)) == GA_NONFINITE);
        CHECK(strstr(e.msg, "elements of the gradient are not finite") != NULL);
    }
    CHECK(looped_count(m)->skipped == 2 && looped_count(m)->update == 0);
}

/* Trains as own, and measures after each cycle: predict and validation go by the averages, forward by the
 * parameters. Prints the loss over the file. */
static int averages(looped *m, int64_t cycles, ga_err *e) {
    float y[BATCH * CLASSES], x[BATCH * CLASSES];
    double loss = 0;
    for (int64_t cycle = 0; cycle < cycles; cycle++) {
        const looped_batch b = batch_at(m, cycle);
        GA_TRY(own(m, cycle * ACCUMULATE, (cycle + 1) * ACCUMULATE - 2, e));
        GA_TRY(looped_predict_step(m, &b, y, e)); /* inside a cycle: its sums and gradients stay */
        GA_TRY(own(m, (cycle + 1) * ACCUMULATE - 2, (cycle + 1) * ACCUMULATE, e));
        GA_TRY(looped_forward_step(m, &b, x, e));
        GA_TRY(looped_predict_step(m, &b, y, e));
        if (memcmp(x, y, sizeof x) == 0) return ga_fail(e, GA_BUG, "predict and forward are the same");
    }
    for (int64_t k = 0; k < ROWS / BATCH; k++) {
        const looped_batch b = {input[k * BATCH], target + k * BATCH, BATCH};
        looped_metrics v;
        GA_TRY(looped_validation_step(m, &b, &v, e));
        loss += v.loss_sum / ROWS;
    }
    printf("loss %.9g\n", loss);
    return 0;
}

static int drive(looped **m, const looped_options *o, const char *what, int64_t cycles, const char *folder,
                 ga_err *e) {
    int code = GA_INPUT;
    if (strcmp(what, "own") == 0) code = own(*m, 0, cycles * ACCUMULATE, e);
    if (strcmp(what, "next") == 0) code = next(*m, cycles, e);
    if (strcmp(what, "averages") == 0) code = averages(*m, cycles, e);
    if (strcmp(what, "grad") == 0) code = by_grad(*m, 0, cycles * ACCUMULATE, e);
    if (strcmp(what, "grad-resumed") == 0) code = by_grad_resumed(m, o, cycles, e);
    if (strcmp(what, "dropped") == 0) code = dropped(*m, cycles, e);
    if (strcmp(what, "later") == 0) code = later(m, o, cycles, e);
    if (strcmp(what, "carried") == 0) code = carried(m, o, cycles, e);
    if (strcmp(what, "loaded") == 0) code = loaded(*m, cycles * ACCUMULATE, folder, e);
    if (strcmp(what, "resumed") == 0) code = resumed(m, o, cycles, folder, e);
    if (strcmp(what, "cycles") == 0)
        for (code = 1; code > 0 && looped_count(*m)->cycle < cycles;) code = looped_cycle(*m, e);
    return code < 0 ? code : looped_save(*m, folder, e);
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(looped *m); } checks[] = {
        {"misuse", misuse}, {"handler", handler}, {"whole", whole}, {"dict", dict}, {"measure", measure},
        {"ranks", ranks}, {"scaled", scaled}, {"short", short_batches}, {"lost", lost}};
    ga_err e = {0};
    looped *m = NULL;
    if (argc < 2) return 2;
    read_rows(getenv("ROWS_FILE"));
    const looped_options o = {.checkpoint = argc > 3 ? argv[3] : NULL, .threads = 2};
    int code = looped_open(&m, &o, &e), found = 0;
    for (size_t i = 0; code >= 0 && i < sizeof checks / sizeof *checks; i++)
        if (strcmp(checks[i].name, argv[1]) == 0) {
            checks[i].run(m);
            found = 1;
        }
    if (code >= 0 && !found && argc > 3) code = drive(&m, &o, argv[1], atoll(argv[2]), argv[3], &e);
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    if (code >= 0 && m && looped_rank(m) == 0) printf("ok\n");
    looped_close(m);
    return code < 0;
}
