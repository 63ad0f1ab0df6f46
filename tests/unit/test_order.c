/* Numbers, permutations, splits, row orders and initial values against tests/reference/order.txt,
 * which tests/reference/order.py computed from the definitions in rng.h and data.h.
 * A line has a kind, its arguments and the expected values. */
#include "rows.h"
#include "scratch.h"

#include "data/data.h"
#include "base/rng.h"

#include <inttypes.h>
#include <math.h>

enum { ROWS_MAX = 4096, NAME = 64 };

static void take_name(FILE *f, char *name) {
    assert_int_equal(fscanf(f, "%63s", name), 1);
    if (strcmp(name, "-") == 0) *name = 0; /* the empty name */
}

static int64_t take(FILE *f) {
    int64_t value;
    assert_int_equal(fscanf(f, "%" SCNd64, &value), 1);
    return value;
}

static uint64_t take_unsigned(FILE *f, bool hex) {
    uint64_t value;
    assert_int_equal(hex ? fscanf(f, "%" SCNx64, &value) : fscanf(f, "%" SCNu64, &value), 1);
    return value;
}

static double take_double(FILE *f) {
    double value;
    assert_int_equal(fscanf(f, "%lf", &value), 1);
    return value;
}

/* stream NAME VALUE */
static void check_stream(FILE *f) {
    char name[NAME];
    take_name(f, name);
    assert_true(ga_rng_stream(name) == take_unsigned(f, true));
}

/* number SEED STREAM INDEX VALUE */
static void check_number(FILE *f) {
    char name[NAME];
    const uint64_t seed = take_unsigned(f, false);
    take_name(f, name);
    const uint64_t index = take_unsigned(f, false);
    assert_true(ga_rng(seed, ga_rng_stream(name), index) == take_unsigned(f, true));
}

/* permute SEED STREAM ADDED N value... */
static void check_permute(FILE *f) {
    char name[NAME];
    const uint64_t seed = take_unsigned(f, false);
    take_name(f, name);
    const uint64_t stream = ga_rng_stream(name) + take_unsigned(f, false);
    const uint64_t n = take_unsigned(f, false);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(ga_permute(seed, stream, n, i), take_unsigned(f, false));
}

/* split ROWS FOLD OF EVAL_ROWS SEED training|evaluation COUNT row... */
static void check_split(FILE *f) {
    char side[NAME];
    ga_split s = {.rows = take(f)};
    s.fold = (int)take(f);
    s.of = (int)take(f);
    s.eval_rows = take(f);
    s.seed = take_unsigned(f, false);
    take_name(f, side);
    const bool eval = strcmp(side, "evaluation") == 0;
    const int64_t count = take(f);
    assert_int_equal(ga_split_count(&s, eval), count);
    for (int64_t i = 0; i < count; i++) assert_int_equal(ga_split_row(&s, eval, i), take(f));
}

/* Puts the rows of one rank's loader, from `epoch` on, at their places in the order of the global
 * batch. */
static void collect(const ga_loader_config *c, int64_t epoch, int64_t count, int32_t *rows) {
    ga_err e;
    ga_arena a = open_arena(ga_loader_bytes(c));
    ga_loader *l;
    const int count_of_cycle = c->accumulate[0].count;
    const int64_t cycle = c->batch * c->world * count_of_cycle;
    assert_int_equal(ga_loader_open(&l, c, &a, &e), 0);
    assert_int_equal(ga_loader_seek(l, (ga_place){.epoch = epoch}, &e), 0);
    for (int64_t first = 0; first < count; first += cycle) {
        assert_int_equal(ga_loader_cycle(l, &e), count_of_cycle);
        for (int k = 0; k < count_of_cycle; k++)
            memcpy(rows + first + (k * c->world + c->rank) * c->batch, ga_loader_field(l, k, 1),
                   (size_t)c->batch * sizeof *rows);
        ga_loader_release(l, count_of_cycle);
    }
    ga_loader_close(l);
    ga_arena_close(&a);
}

/* order ROWS FOLD OF SPLIT_SEED SEED SHUFFLE BATCH ACCUMULATE WORLD EPOCH COUNT row...:
 * whole epochs from EPOCH on; a row's target is its number. */
static void check_order(FILE *f) {
    int32_t rows[ROWS_MAX];
    ga_accumulate accumulate = {0};
    const ga_source source = numbered_rows(take(f));
    ga_loader_config c = {.data = {&source, {.rows = source.rows}},
                          .accumulate = &accumulate, .accumulates = 1};
    c.data.split.fold = (int)take(f);
    c.data.split.of = (int)take(f);
    c.data.split.seed = take_unsigned(f, false);
    c.seed = take_unsigned(f, false);
    c.shuffle = take(f) != 0;
    c.batch = take(f);
    accumulate.count = (int)take(f);
    c.world = (int)take(f);
    const int64_t epoch = take(f), count = take(f);
    assert_true(c.data.split.rows <= ROWS_MAX && count <= ROWS_MAX);
    for (c.rank = 0; c.rank < c.world; c.rank++) collect(&c, epoch, count, rows);
    for (int64_t i = 0; i < count; i++) assert_int_equal(rows[i], take(f));
}

/* uniform SEED NAME LOW HIGH COUNT value...  or  normal SEED NAME SD COUNT value... */
static void check_initial(FILE *f, bool uniform) {
    char name[NAME];
    double values[64];
    const uint64_t seed = take_unsigned(f, false);
    take_name(f, name);
    const double first = take_double(f), second = uniform ? take_double(f) : 0;
    const int64_t count = take(f);
    assert_true(count <= 64);
    if (uniform) ga_init_uniform(values, GA_F64, count, seed, name, first, second);
    else ga_init_normal(values, GA_F64, count, seed, name, first);
    for (int64_t i = 0; i < count; i++) {
        const double expected = take_double(f), bound = uniform ? 0 : 4e-16 * fabs(expected);
        assert_true(fabs(values[i] - expected) <= bound); /* log and cos may differ in one bit */
    }
}

static void as_computed_elsewhere(void **state) {
    (void)state;
    FILE *f = fopen("tests/reference/order.txt", "r");
    assert_non_null(f);
    char kind[NAME];
    int lines = 0;
    for (; fscanf(f, "%63s", kind) == 1; lines++) {
        if (strcmp(kind, "stream") == 0) check_stream(f);
        else if (strcmp(kind, "number") == 0) check_number(f);
        else if (strcmp(kind, "permute") == 0) check_permute(f);
        else if (strcmp(kind, "split") == 0) check_split(f);
        else if (strcmp(kind, "order") == 0) check_order(f);
        else if (strcmp(kind, "uniform") == 0) check_initial(f, true);
        else if (strcmp(kind, "normal") == 0) check_initial(f, false);
        else fail_msg("order.txt: unknown kind '%s'", kind);
    }
    fclose(f);
    assert_int_equal(lines, 39);
}

int test_order(void);
int test_order(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_computed_elsewhere)};
    return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
