/* Collectives and checkpoints with any number of ranks: one if linked with comm_self, several under
 * mpirun if linked with comm_mpi. Expected values are functions of the rank and the number of ranks. */
#include "group.h"

#include "base/bf16.h"
#include "base/f16.h"
#include "files/ckpt.h"
#include "ranks/moments.h"

#include <math.h>

enum { LENGTH = 1000, REQUESTS = 7 };

/* Sum over q of (q + 1) * x. */
static double total(const group *g, double x) {
    return x * g->size * (g->size + 1) / 2;
}

static void sums(void **state) {
    group *g = *state;
    static double d[LENGTH];
    static float f[REQUESTS][LENGTH];
    ga_comm_counts before = ga_comm_counted(g->comm);
    assert_int_equal(ga_comm_local_size(g->comm), g->size); /* the tests run on one host */
    for (int i = 0; i < LENGTH; i++) d[i] = (g->rank + 1) * (double)i;
    assert_int_equal(ga_comm_all_reduce(g->comm, d, LENGTH, GA_F64, NULL), 0);
    for (int i = 0; i < LENGTH; i++) assert_true(d[i] == total(g, i));
    for (int k = 0; k < REQUESTS; k++) { /* all are in flight at once, and waited for in another order */
        for (int i = 0; i < LENGTH; i++) f[k][i] = (float)((g->rank + 1) * (i + k));
        const ga_exchange x = {.kind = GA_ALL_REDUCE, .values = f[k], .n = LENGTH, .type = GA_F32, .wire = GA_F32};
        assert_int_equal(ga_comm_start(g->comm, k, &x, NULL), 0);
    }
    for (int k = REQUESTS - 1; k >= 0; k--) {
        assert_int_equal(ga_comm_wait(g->comm, k, NULL), 0);
        for (int i = 0; i < LENGTH; i++) assert_true(f[k][i] == (float)total(g, i + k));
    }
    assert_int_equal(ga_comm_wait(g->comm, 99, NULL), 0); /* never started */
    double small[4] = {g->rank + 1, 1, g->rank, -g->rank};
    assert_int_equal(ga_comm_small(g->comm, small, 4, 2, NULL), 0);
    assert_true(small[0] == total(g, 1) && small[1] == g->size);
    assert_true(small[2] == g->size - 1 && small[3] == 0);
    int64_t whole = 5;
    assert_int_equal(ga_comm_all_reduce(g->comm, &whole, 1, GA_I64, NULL), 0);
    assert_int_equal(whole, 5 * g->size);
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    ga_comm_counts after = ga_comm_counted(g->comm);
    assert_int_equal(after.collectives - before.collectives, REQUESTS + 2);
    assert_int_equal(after.bytes - before.bytes, LENGTH * 8 + REQUESTS * LENGTH * 4 + 8);
    assert_int_equal(after.small - before.small, 1);
}

/* Values whose sums depend on their order, so that only additions in the order of the ranks give these bits. */
static double part(int rank, int64_t i, bool f32) {
    const double x = sin((double)(i + 1) * (rank + 1)) * (rank % 2 ? 1e4 : 1);
    return f32 ? (float)x : x;
}

static double rounded(double x, ga_dtype wire) {
    return wire == GA_BF16 ? bf16_rounded((float)x) : wire == GA_F16 ? f16_rounded((float)x) : x;
}

/* The sum of all ranks' parts, in this type. */
static double sum_of(const group *g, int64_t i, ga_dtype type, ga_dtype wire) {
    double d = 0;
    float f = 0;
    for (int rank = 0; rank < g->size; rank++) {
        const double x = rounded(part(rank, i, type == GA_F32), wire);
        if (rank == 0) {
            d = x;
            f = (float)x;
        } else {
            d += x;
            f += (float)x;
        }
    }
    return type == GA_F32 ? f : d;
}

static void fill(const group *g, const ga_exchange *x) {
    for (int64_t i = 0; i < x->n; i++) ga_set(x->values, x->type, i, part(g->rank, i, x->type == GA_F32));
}

/* One exchange of each kind over these cuts; lengths below, at and above what a wire holds. */
static void exchange(group *g, int64_t n, const int64_t *cuts, ga_dtype type, ga_dtype wire) {
    static double values[9000], shard[9000];
    ga_exchange x = {.kind = GA_ALL_REDUCE, .values = values, .n = n, .cuts = cuts, .type = type, .wire = wire};
    const int64_t from = ga_cut(&x, g->rank, g->size), to = ga_cut(&x, g->rank + 1, g->size);
    fill(g, &x);
    assert_int_equal(ga_comm_start(g->comm, 3, &x, NULL), 0);
    assert_int_equal(ga_comm_wait(g->comm, 3, NULL), 0);
    for (int64_t i = 0; i < n; i++) assert_true(ga_get(values, type, i) == sum_of(g, i, type, wire));

    fill(g, &x);
    x.kind = GA_REDUCE_SCATTER;
    assert_int_equal(ga_comm_start(g->comm, 3, &x, NULL), 0);
    assert_int_equal(ga_comm_wait(g->comm, 3, NULL), 0);
    for (int64_t i = from; i < to; i++) assert_true(ga_get(values, type, i) == sum_of(g, i, type, wire));

    for (int add = 0; add < 2; add++) {
        fill(g, &x);
        x.shard = shard;
        x.add = add;
        assert_int_equal(ga_comm_start(g->comm, 3, &x, NULL), 0);
        assert_int_equal(ga_comm_wait(g->comm, 3, NULL), 0);
        for (int64_t i = from; i < to; i++) {
            const double once = sum_of(g, i, type, wire);
            const double expected = !add ? once : type == GA_F32 ? (float)once + (float)once : 2 * once;
            assert_true(ga_get(shard, type, i - from) == expected);
        }
    }

    for (int64_t i = 0; i < n; i++) ga_set(values, type, i, i >= from && i < to ? part(0, i, type == GA_F32) : -1);
    x = (ga_exchange){.kind = GA_ALL_GATHER, .values = values, .n = n, .cuts = cuts, .type = type, .wire = type};
    assert_int_equal(ga_comm_start(g->comm, 3, &x, NULL), 0);
    assert_int_equal(ga_comm_wait(g->comm, 3, NULL), 0);
    for (int64_t i = 0; i < n; i++) assert_true(ga_get(values, type, i) == part(0, i, type == GA_F32));
}

static void exchanges(void **state) {
    group *g = *state;
    static const int64_t lengths[] = {0, 1, 16, 777, 1024, 9000};
    static const ga_dtype types[][2] = {{GA_F32, GA_F32}, {GA_F64, GA_F64}, {GA_F32, GA_BF16}, {GA_F32, GA_F16}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++)
            exchange(g, lengths[i], NULL, types[k][0], types[k][1]);
    int64_t cuts[65] = {0}; /* of unequal length, the first empty */
    for (int i = 2; i < g->size; i++) cuts[i] = cuts[i - 1] + 100 * i;
    cuts[g->size] = 9000;
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) exchange(g, 9000, cuts, types[k][0], types[k][1]);
    ga_err e = {0};
    float one = 1;
    const ga_exchange wrong = {.kind = GA_ALL_REDUCE, .values = &one, .n = 1, .type = GA_F64, .wire = GA_BF16};
    assert_int_equal(ga_comm_start(g->comm, 3, &wrong, &e), GA_BUG);
    assert_has(e.msg, "all-reduce of F64 as BF16");
    assert_int_equal(ga_comm_start(g->comm, 256, &wrong, &e), GA_BUG);
    assert_has(e.msg, "request 256: not in 0..255");
}

enum { CHANNELS = 3, VALUES = 5 };

/* Value i of channel c on a rank; ranks have different averages. */
static double value(int rank, int i, int c) {
    return 10 * rank + 3 * c + sin(i + 7 * rank + c);
}

/* Rank q has (3 q) mod VALUES values of each channel, rank 0 none: the statistics of all values by their definition. */
static int values_of(int rank) {
    return 3 * rank % VALUES;
}

static double average(int ranks, int c, int power, double centre, int *count) {
    double sum = 0;
    *count = 0;
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < values_of(rank); i++, ++*count) sum += pow(value(rank, i, c) - centre, power);
    return sum / *count;
}

/* The numbers that a rank gives: count, averages, variances. */
static void describe(int rank, double *own) {
    own[0] = values_of(rank);
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, squares = 0;
        for (int i = 0; i < own[0]; i++) mean += value(rank, i, c) / own[0];
        for (int i = 0; i < own[0]; i++) squares += pow(value(rank, i, c) - mean, 2) / own[0];
        own[1 + c] = mean;
        own[1 + CHANNELS + c] = squares;
    }
}

static void assert_moments(const double *found, int ranks) {
    for (int c = 0; c < CHANNELS; c++) {
        int count;
        const double mean = average(ranks, c, 1, 0, &count), variance = average(ranks, c, 2, mean, &count);
        assert_int_equal(found[0], count);
        assert_true(fabs(found[1 + c] - mean) < 1e-13 * fabs(mean));
        assert_true(fabs(found[1 + CHANNELS + c] - variance) < 1e-13 * variance);
    }
}

/* Ranks have different counts, some none. */
static void moments_of_ranks(void **state) {
    group *g = *state;
    enum { NUMBERS = 1 + 2 * CHANNELS, RANKS = 11, MOST = 64 };
    static double all[NUMBERS * MOST];
    for (int ranks = 2; ranks <= RANKS; ranks++) {
        for (int rank = 0; rank < ranks; rank++) describe(rank, all + NUMBERS * rank);
        ga_moments_merge(all, ranks, CHANNELS);
        assert_moments(all, ranks);
    }
    const ga_comm_counts before = ga_comm_counted(g->comm);
    memset(all, 0, sizeof all);
    describe(g->rank, all + NUMBERS * g->rank);
    assert_int_equal(ga_moments_join(g->comm, all, CHANNELS, NULL), 0);
    if (g->size > 1) assert_moments(all, g->size);
    for (int i = 0; i < 4; i++) all[4 * g->rank + i] = part(g->rank, i, false);
    assert_int_equal(ga_moments_add(g->comm, all, 4, NULL), 0);
    for (int i = 0; i < 4; i++) assert_true(all[i] == sum_of(g, i, GA_F64, GA_F64));
    const ga_comm_counts after = ga_comm_counted(g->comm);
    assert_int_equal(after.collectives - before.collectives, 2);
    assert_int_equal(after.bytes - before.bytes, (NUMBERS + 4) * 8);
}

static void agreement(void **state) {
    group *g = *state;
    ga_err e = {0};
    int last = g->size - 1;
    char text[16] = "";
    if (g->rank == 0) strcpy(text, "from rank 0");
    assert_int_equal(ga_comm_broadcast(g->comm, text, sizeof text, 0, NULL), 0);
    assert_string_equal(text, "from rank 0");
    assert_int_equal(ga_comm_agree(g->comm, 0, &e), 0);
    int own = g->rank == last ? ga_fail(&e, GA_ENVIRONMENT, "mine") : 0;
    assert_int_equal(ga_comm_agree(g->comm, own, &e), GA_ENVIRONMENT);
    if (g->rank == last)
        assert_string_equal(e.msg, "mine");
    else
        assert_has(e.msg, "failed with code 3");
    assert_int_equal(ga_comm_handshake(g->comm, 77, &e), 0);
    if (g->size == 1) return;
    assert_int_equal(ga_comm_handshake(g->comm, g->rank == last ? 78 : 77, &e), GA_INPUT);
    char who[64];
    snprintf(who, sizeof who, "rank %d runs another program", last);
    assert_has(e.msg, who);
    const ga_fact facts[] = {{"--cycles", "40"}, {"--seed", g->rank == last ? "9" : "1"}};
    assert_int_equal(ga_comm_same_facts(g->comm, facts, 1, &e), 0);
    assert_int_equal(ga_comm_same_facts(g->comm, facts, 2, &e), GA_INPUT);
    snprintf(who, sizeof who, "rank %d: --seed is 9, rank 0 has 1", last);
    assert_string_equal(e.msg, who);
}

/* A mid-cycle save has one gradient per rank; each rank loads its own. */
static void checkpoint(void **state) {
    group *g = *state;
    static const ga_param params[] = {{"w", 0, 1, 1, {8}, 0, 0, 8}};
    float w[8], gradient[8];
    ga_array model = {params, 1, "", GA_F32, w, NULL, NULL}, partial = {params, 1, "", GA_F32, gradient, NULL, NULL};
    ga_ckpt_file file = {"model.safetensors", &model, 1};
    const char *folder = group_folder(g);
    char path[GA_PATH_MAX];
    ga_err e = {0};
    ga_ckpt *c;
    ga_ckpt_config config = {folder, 1, false, &file, 1, &partial, 1, g->comm, NULL, false, "ranks", false, false};
    ga_ckpt_state s = {.micro = 6,
                       .cycle = 1,
                       .update = 1,
                       .batch = 3,
                       .accumulate = 4,
                       .r = 2,
                       .world = g->size,
                       .scale = 1,
                       .sums = {g->rank + 10, g->rank / 3.0, 6}},
                  back;
    for (int i = 0; i < 8; i++) {
        w[i] = (float)i;
        gradient[i] = (float)(g->rank * 100 + i);
    }
    if (ga_ckpt_open(&c, &config, &g->arena, &e) < 0) fail_msg("%s", e.msg);
    if (ga_ckpt_save(c, &s, path, &e) < 0) fail_msg("%s", e.msg);
    memset(w, 0, sizeof w);
    memset(gradient, 0, sizeof gradient);
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    if (ga_ckpt_load(path, &config, &s, &back, &e) < 0) fail_msg("%s", e.msg);
    assert_true(w[7] == 7 && gradient[7] == (float)(g->rank * 100 + 7));
    for (int i = 0; i < GA_SAVED_SUMS; i++) assert_true(back.sums[i] == s.sums[i]);
    assert_int_equal(back.world, g->size);
    if (g->rank == g->size - 1) gradient[0] = HUGE_VALF; /* a non-finite value on one rank is enough */
    s.cycle = 2;
    int code = ga_ckpt_save(c, &s, path, &e);
    assert_int_equal(code, GA_NONFINITE);
    ga_ckpt_close(c);
    group_folder_remove(g);
}

int test_ranks(void);
int test_ranks(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(exchanges), cmocka_unit_test(moments_of_ranks),
                                       cmocka_unit_test(agreement), cmocka_unit_test(checkpoint)};
    return cmocka_run_group_tests_name("ranks", tests, open_group, close_group);
}
