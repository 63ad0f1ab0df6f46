/* Collectives and checkpoints with any number of ranks: one if linked with comm_self, several under
 * mpirun if linked with comm_mpi. Expected values are functions of the rank and the number of ranks. */
#include "scratch.h"

#include "files/ckpt.h"

#include <math.h>

enum { LENGTH = 1000, REQUESTS = 5 };

typedef struct {
    ga_arena arena;
    ga_comm *comm;
    int rank, size;
} group;

static void group_open(group *g) {
    ga_err e;
    g->arena = open_arena(1 << 20);
    if (ga_comm_open(&g->comm, &g->arena, &e) < 0) fail_msg("%s", e.msg);
    g->rank = ga_comm_rank(g->comm);
    g->size = ga_comm_size(g->comm);
}

static int open_group(void **state) {
    *state = calloc(1, sizeof(group));
    group_open(*state);
    return 0;
}

static int close_group(void **state) {
    group *g = *state;
    ga_comm_close(g->comm);
    ga_arena_close(&g->arena);
    free(g);
    return 0;
}

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
        assert_int_equal(ga_comm_start(g->comm, k, f[k], LENGTH, GA_F32, NULL), 0);
        assert_int_equal(ga_comm_progress(g->comm, NULL), 0);
    }
    for (int k = REQUESTS - 1; k >= 0; k--) {
        assert_int_equal(ga_comm_wait(g->comm, k, NULL), 0);
        for (int i = 0; i < LENGTH; i++) assert_true(f[k][i] == (float)total(g, i + k));
    }
    assert_int_equal(ga_comm_wait(g->comm, 99, NULL), 0); /* never started */
    double small[2] = {g->rank + 1, 1};
    assert_int_equal(ga_comm_small(g->comm, small, 2, NULL), 0);
    assert_true(small[0] == total(g, 1) && small[1] == g->size);
    int64_t whole = 5;
    assert_int_equal(ga_comm_all_reduce(g->comm, &whole, 1, GA_I64, NULL), 0);
    assert_int_equal(whole, 5 * g->size);
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    ga_comm_counts after = ga_comm_counted(g->comm);
    assert_int_equal(after.collectives - before.collectives, REQUESTS + 2);
    assert_int_equal(after.bytes - before.bytes, LENGTH * 8 + REQUESTS * LENGTH * 4 + 8);
    assert_int_equal(after.small - before.small, 1);
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
}

/* A mid-cycle save has one gradient per rank; each rank loads its own. */
static void checkpoint(void **state) {
    group *g = *state;
    static const ga_param params[] = {{"w", 0, 1, 1, {8}, 0, 0, 8}};
    float w[8], gradient[8];
    ga_array model = {params, 1, "", GA_F32, w}, partial = {params, 1, "", GA_F32, gradient};
    ga_ckpt_file file = {"model.safetensors", &model, 1};
    char folder[64] = "/tmp/gagen-ranks-XXXXXX", path[GA_PATH_MAX];
    ga_err e = {0};
    ga_ckpt *c;
    if (g->rank == 0) assert_non_null(mkdtemp(folder));
    ga_comm_broadcast(g->comm, folder, sizeof folder, 0, NULL);
    ga_ckpt_config config = {folder, 1, false, &file, 1, &partial, 1, g->comm, NULL, false, "ranks", false};
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
    ga_comm_barrier(g->comm, NULL);
    if (g->rank == 0) {
        char command[128];
        snprintf(command, sizeof command, "rm -rf -- %s", folder);
        assert_int_equal(system(command), 0);
    }
}

int test_ranks(void);
int test_ranks(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums), cmocka_unit_test(agreement),
                                       cmocka_unit_test(checkpoint)};
    return cmocka_run_group_tests_name("ranks", tests, open_group, close_group);
}
