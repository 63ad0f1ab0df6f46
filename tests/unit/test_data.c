/* Splits, the order of an epoch over ranks, seeks into a cycle, evaluation batches. */
#include "rows.h"
#include "scratch.h"

#include "data/data.h"
#include "base/rng.h"

enum { ROWS = 103 };

static const ga_source source = {.rows = ROWS,
                                 .fields = 2,
                                 .field = {{"input", GA_F32, ROW_WIDTH}, {"target", GA_I32, 1}},
                                 .decode = decode_row};

/* 82 rows of training: 20 micro-batches of 4 rows on one rank. */
static ga_loader_config config(const ga_accumulate *accumulate, int rank, int world) {
    return (ga_loader_config){
        .data = {&source, {.rows = ROWS, .fold = 2, .of = 5, .seed = 3}},
        .batch = 4,
        .accumulate = accumulate,
        .accumulates = 1,
        .rank = rank,
        .world = world,
        .seed = 11,
        .shuffle = true};
}

static void splits(void **state) {
    (void)state;
    const ga_split table[] = {{.rows = ROWS, .fold = 1, .of = 5, .seed = 1},
                              {.rows = ROWS, .fold = 5, .of = 5, .seed = 1},
                              {.rows = 7, .fold = 2, .of = 2, .seed = 4},
                              {.rows = ROWS, .eval_rows = 20, .seed = 2},
                              {.rows = ROWS, .eval_rows = 20, .at_end = true}};
    for (size_t k = 0; k < 5; k++) {
        const ga_split *s = &table[k];
        int seen[ROWS] = {0};
        for (int eval = 0; eval < 2; eval++)
            for (int64_t i = 0; i < ga_split_count(s, eval); i++) seen[ga_split_row(s, eval, i)]++;
        for (int64_t i = 0; i < s->rows; i++)
            assert_int_equal(seen[i], 1); /* each row is in exactly one split, once */
    }
    assert_int_equal(ga_split_count(&table[0], true), 21);
    assert_int_equal(ga_split_count(&table[1], true), 20);
    assert_int_equal(ga_split_count(&table[3], true), 20);
    assert_int_equal(ga_split_row(&table[4], true, 0), ROWS - 20);
    assert_int_equal(ga_split_row(&table[4], false, 82), 82);
    ga_split none = {.rows = 9};
    assert_int_equal(ga_split_count(&none, false), 9);
    assert_int_equal(ga_split_count(&none, true), 9);
    assert_int_equal(ga_split_row(&none, false, 5), 5);
}

/* Collects the rows of `cycles` cycles in the order of the global batch; returns their number. */
static int collect(int accumulate, int world, int cycles, int32_t *rows) {
    int n = 0;
    for (int rank = 0; rank < world; rank++) {
        const ga_accumulate full = {0, accumulate};
        ga_loader_config c = config(&full, rank, world);
        ga_arena a = open_arena(ga_loader_bytes(&c));
        ga_loader *l;
        assert_int_equal(ga_loader_open(&l, &c, &a, NULL), 0);
        for (int cycle = 0; cycle < cycles; cycle++) {
            assert_int_equal(ga_loader_cycle(l, NULL), accumulate);
            for (int k = 0; k < accumulate; k++)
                for (int b = 0; b < c.batch; b++) {
                    int32_t row = ((const int32_t *)ga_loader_field(l, k, 1))[b];
                    const float *in = ga_loader_field(l, k, 0);
                    assert_true(in[b * ROW_WIDTH + 2] == (float)(row * 10 + 2));
                    rows[((cycle * accumulate + k) * world + rank) * c.batch + b] = row;
                    n++;
                }
            ga_loader_release(l, accumulate);
        }
        ga_loader_close(l);
        ga_arena_close(&a);
    }
    return n;
}

/* The order of an epoch's rows does not depend on accumulation A and ranks W: 82 training rows give 20
 * micro-batches of 4, so 80 rows for every A x W that divides 20. */
static void ranks_and_accumulation(void **state) {
    (void)state;
    int32_t one[400], two[400], four[400], wide[400];
    assert_int_equal(collect(4, 1, 5, one), 80);
    assert_int_equal(collect(2, 2, 5, two), 80);
    assert_int_equal(collect(1, 4, 5, four), 80);
    assert_int_equal(collect(1, 1, 20, wide), 80);
    assert_memory_equal(one, two, 80 * sizeof *one);
    assert_memory_equal(one, four, 80 * sizeof *one);
    assert_memory_equal(one, wide, 80 * sizeof *one);
    ga_loader_config c = config(NULL, 0, 1);
    for (int j = 0; j < 80; j++) {
        int64_t position = (int64_t)ga_permute(11, ga_rng_stream("epoch"), 82, (uint64_t)j);
        assert_int_equal(one[j], ga_split_row(&c.data.split, false, position));
    }
}

static ga_place at(int64_t epoch, int64_t position, int64_t cycle, int r) {
    return (ga_place){epoch, position, cycle, r};
}

static void epochs_and_seek(void **state) {
    (void)state;
    enum { A = 3 }; /* 20 micro-batches: 6 cycles, 2 micro-batches dropped */
    const ga_accumulate full = {0, A};
    ga_loader_config c = config(&full, 0, 1);
    ga_arena a = open_arena(ga_loader_bytes(&c));
    ga_loader *l;
    int32_t rows[3][18][4];
    assert_int_equal(ga_loader_open(&l, &c, &a, NULL), 0);
    for (int m = 0; m < 3 * 18; m += A) {
        assert_int_equal(ga_loader_place(l).epoch, m / 18);
        assert_int_equal(ga_loader_place(l).position, m % 18);
        assert_int_equal(ga_loader_cycle(l, NULL), A);
        for (int k = 0; k < A; k++) memcpy(rows[m / 18][m % 18 + k], ga_loader_field(l, k, 1), 16);
        ga_loader_release(l, A);
    }
    assert_memory_not_equal(rows[0], rows[1], sizeof rows[0]);
    for (int m = 0; m < 2 * 18; m++) { /* every place, also inside a cycle */
        assert_int_equal(ga_loader_seek(l, at(m / 18, m % 18, m / A, m % A), NULL), 0);
        int count = ga_loader_cycle(l, NULL);
        assert_int_equal(count, A - m % A);
        assert_memory_equal(ga_loader_field(l, 0, 1), rows[m / 18][m % 18], 16);
        ga_loader_release(l, count);
        assert_int_equal(ga_loader_cycle(l, NULL), A);
        int next = m + count;
        assert_memory_equal(ga_loader_field(l, 2, 1), rows[next / 18][next % 18 + 2], 16);
    }
    assert_int_equal(ga_loader_seek(l, at(0, 18, 6, 0), NULL), 0); /* the beginning of the next epoch */
    assert_int_equal(ga_loader_place(l).epoch, 1);
    assert_int_equal(ga_loader_seek(l, at(0, 21, 6, 0), NULL), GA_INPUT);
    ga_loader_close(l); /* with the ring full */
    ga_arena_close(&a);
}

static void too_small(void **state) {
    (void)state;
    const ga_accumulate full = {0, 21};
    ga_loader_config c = config(&full, 0, 1);
    ga_arena a = open_arena(ga_loader_bytes(&c));
    ga_loader *l;
    ga_err e;
    assert_int_equal(ga_loader_open(&l, &c, &a, &e), GA_INPUT);
    assert_has(e.msg, "82 training rows in micro-batches of 4 rows on each of 1 rank: "
                      "an epoch has 20 micro-batches, a cycle needs 21");
    ga_loader_close(NULL);
    ga_arena_close(&a);
}

/* Micro-batch m has the rows of micro-batch m mod N of the first epoch, on each rank its own, also over the tail that
 * each epoch drops: 82 rows give 20 micro-batches on one rank and 10 on two. */
static void overfit(void **state) {
    (void)state;
    enum { A = 3, CYCLES = 17 };
    static const struct { int world, n; } table[] = {{1, 1}, {1, 4}, {1, 20}, {2, 2}, {2, 10}};
    const ga_accumulate full = {0, A};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int rank = 0; rank < table[i].world; rank++) {
            const int world = table[i].world, n = table[i].n;
            ga_loader_config c = config(&full, rank, world);
            c.overfit = n;
            ga_arena a = open_arena(ga_loader_bytes(&c));
            ga_loader *l;
            assert_int_equal(ga_loader_open(&l, &c, &a, NULL), 0);
            for (int m = 0; m < A * CYCLES; m += A) {
                assert_int_equal(ga_loader_cycle(l, NULL), A);
                for (int k = 0; k < A; k++) {
                    const ga_micro *micro = ga_loader_micro(l, k);
                    assert_true(micro->cycle == m / A && micro->row == (k * world + rank) * 4);
                    assert_true(micro->before == k);
                    for (int b = 0; b < 4; b++) {
                        const uint64_t j = (uint64_t)(((m + k) % n * world + rank) * 4 + b);
                        const int64_t p = (int64_t)ga_permute(11, ga_rng_stream("epoch"), 82, j);
                        assert_int_equal(((const int32_t *)ga_loader_field(l, k, 1))[b],
                                         ga_split_row(&c.data.split, false, p));
                    }
                }
                ga_loader_release(l, A);
            }
            ga_loader_close(l);
            ga_arena_close(&a);
        }
    ga_loader_config c = config(&full, 0, 2);
    c.overfit = 11;
    ga_arena a = open_arena(ga_loader_bytes(&c));
    ga_loader *l;
    ga_err e;
    assert_int_equal(ga_loader_open(&l, &c, &a, &e), GA_INPUT);
    assert_has(e.msg, "--overfit 11: an epoch has 10 micro-batches on each rank, a number from 1 to 10 expected");
    ga_arena_close(&a);
}

static void evaluation(void **state) {
    (void)state;
    int seen[ROWS] = {0}, total = 0;
    for (int rank = 0; rank < 2; rank++) {
        ga_loader_config c = config(NULL, rank, 2);
        _Alignas(64) char batch[192]; /* 48 bytes of input, 16 of targets, 48 of ga_micro */
        const float *in = (const float *)batch;
        const int32_t *t = (const int32_t *)(batch + 64);
        const ga_micro *micro = (const ga_micro *)(batch + 128);
        assert_int_equal(ga_batch_bytes(&source, 4), sizeof batch);
        assert_int_equal(ga_eval_batches(&c), 3); /* 21 rows, 8 per batch of both ranks */
        for (int64_t k = 0; k < 3; k++) {
            memset(batch, 7, sizeof batch);
            const int64_t n = ga_eval_batch(&c, k, batch);
            assert_true(micro->rows == n && micro->training == 0 && micro->cycle == 0);
            assert_true(micro->row == (2 * k + rank) * 4 && micro->seed == 11);
            total += (int)n;
            for (int64_t b = 0; b < n; b++) {
                seen[t[b]]++;
                assert_true(in[b * ROW_WIDTH] == (float)(t[b] * 10));
            }
            for (int64_t b = n; b < 4; b++) /* missing rows are copies of a true row */
                assert_true(t[b] == t[0] && memcmp(in + b * ROW_WIDTH, in, ROW_WIDTH * sizeof *in) == 0);
        }
        memset(batch, 7, sizeof batch);
        assert_int_equal(ga_eval_batch(&c, 3, batch), 0);
        for (int64_t b = 0; b < 4; b++)
            assert_true(t[b] == t[0] && in[b * ROW_WIDTH] == (float)(t[0] * 10) && t[0] < ROWS);
    }
    assert_int_equal(total, 21);
    for (int i = 0; i < ROWS; i++) assert_true(seen[i] <= 1);
}

int test_data(void);
int test_data(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits),
                                       cmocka_unit_test(ranks_and_accumulation),
                                       cmocka_unit_test(epochs_and_seek),
                                       cmocka_unit_test(too_small), cmocka_unit_test(overfit),
                                       cmocka_unit_test(evaluation)};
    return cmocka_run_group_tests_name("data", tests, NULL, NULL);
}
