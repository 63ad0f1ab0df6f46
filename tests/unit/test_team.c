/* The team: tiles over many calls without a barrier, barriers, failure, threads 1..8, more threads than cores, workers
 * that come late, workers on one core. */
#define _GNU_SOURCE
#include "scratch.h"

#include "base/team.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>

enum { CALLS = 500, TILES_MAX = 13, ROUNDS = 40 };

typedef struct {
    _Atomic int claimed[CALLS][TILES_MAX];
    long value[2][64];
    bool broken;
    int fail_in_round;
} shared;

static int tiles_of(int call) {
    return call % (TILES_MAX + 1); /* 0 tiles are allowed */
}

/* No barrier between the calls; worker 1 is delayed by more calls than the 64 slots. */
static void claim_all(ga_worker *w, void *arg) {
    shared *s = arg;
    for (int call = 0; call < CALLS; call++) {
        if (w->index == 1 && call == 3) usleep(2000);
        for (ga_tiles it = ga_tiles_begin(w, tiles_of(call)); ga_tile_next(&it);)
            atomic_fetch_add(&s->claimed[call][it.index], 1);
    }
}

static void tiles(void **state) {
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        ga_arena a = open_arena(ga_team_bytes(threads));
        ga_team *t;
        shared *s = calloc(1, sizeof *s);
        assert_int_equal(ga_team_open(&t, threads, &a, NULL), 0);
        assert_int_equal(ga_team_threads(t), threads);
        for (int run = 0; run < 3; run++) assert_int_equal(ga_team_run(t, claim_all, s), 0);
        for (int call = 0; call < CALLS; call++)
            for (int i = 0; i < TILES_MAX; i++)
                assert_int_equal(s->claimed[call][i], i < tiles_of(call) ? 3 : 0);
        ga_team_close(t);
        ga_arena_close(&a);
        free(s);
    }
}

enum { MANY = 20000 };

/* For each of many tiles how often it was claimed, and by whom. */
typedef struct {
    _Atomic int claimed[MANY];
    int by[MANY];
} many;

static void claim_many(ga_worker *w, void *arg) {
    many *s = arg;
    for (ga_tiles it = ga_tiles_begin(w, MANY); ga_tile_next(&it);) {
        atomic_fetch_add(&s->claimed[it.index], 1);
        s->by[it.index] = w->index;
    }
}

/* Neighbours among many tiles belong to one worker: 20000 / (64 * threads) of them, 64 at most; the last are fewer. */
static void many_tiles(void **state) {
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        ga_arena a = open_arena(ga_team_bytes(threads));
        ga_team *t;
        many *s = calloc(1, sizeof *s);
        assert_int_equal(ga_team_open(&t, threads, &a, NULL), 0);
        assert_int_equal(ga_team_run(t, claim_many, s), 0);
        const int share = MANY / (64 * threads), run = share < 64 ? share : 64;
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(s->claimed[i], 1);
            assert_int_equal(s->by[i], s->by[i / run * run]);
        }
        ga_team_close(t);
        ga_arena_close(&a);
        free(s);
    }
}

/* Each round reads values that every worker wrote in the round before: plain memory, ordered by
 * barriers. */
static void rotate(ga_worker *w, void *arg) {
    shared *s = arg;
    for (int round = 1; round <= ROUNDS; round++) {
        long sum = 0;
        for (int i = 0; i < 16; i++) sum += s->value[(round - 1) % 2][i];
        for (ga_tiles it = ga_tiles_begin(w, 16); ga_tile_next(&it);)
            s->value[round % 2][it.index] = (sum + it.index) % 1000003;
        ga_barrier(w);
        if (s->fail_in_round == round && w->index == 0) ga_team_fail(w, GA_ENVIRONMENT);
        ga_barrier(w);
        if (ga_team_status(w) < 0) return; /* all workers, after the same barrier */
    }
}

static void barriers(void **state) {
    (void)state;
    long expect[16];
    for (int threads = 1; threads <= 8; threads++) {
        ga_arena a = open_arena(ga_team_bytes(threads));
        ga_team *t;
        shared *s = calloc(1, sizeof *s);
        assert_int_equal(ga_team_open(&t, threads, &a, NULL), 0);
        assert_int_equal(ga_team_run(t, rotate, s), 0);
        if (threads == 1) memcpy(expect, s->value[ROUNDS % 2], sizeof expect);
        assert_memory_equal(expect, s->value[ROUNDS % 2], sizeof expect);
        s->fail_in_round = 7;
        assert_int_equal(ga_team_run(t, rotate, s), GA_ENVIRONMENT);
        s->fail_in_round = 0;
        assert_int_equal(ga_team_run(t, rotate, s), 0); /* usable after a failure */
        ga_team_close(t);
        ga_arena_close(&a);
        free(s);
    }
}

enum { LATE_ROUNDS = 200 };

typedef struct {
    _Atomic int rounds;  /* those that worker 0 has behind it */
    _Atomic bool passed; /* it had many of them behind it before worker 1 came to the first one */
    int64_t sums[LATE_ROUNDS + 1][8];
} late;

/* Each tile of a round reads all tiles of the round before. Worker 1 begins when the others are far ahead. */
static void come_late(ga_worker *w, void *arg) {
    late *s = arg;
    for (int ms = 0; w->index == 1 && !s->passed && ms < 2000; ms++) {
        if (s->rounds >= LATE_ROUNDS / 2) s->passed = true;
        else usleep(1000);
    }
    for (int round = 1; round <= LATE_ROUNDS; round++) {
        for (ga_tiles it = ga_tiles_begin(w, 8); ga_tile_next(&it);) {
            int64_t sum = it.index;
            for (int i = 0; i < 8; i++) sum += s->sums[round - 1][i];
            s->sums[round][it.index] = sum % 1000003;
        }
        ga_barrier(w);
        if (w->index == 0) s->rounds = round;
    }
}

static void late_worker(void **state) {
    (void)state;
    ga_arena a = open_arena(ga_team_bytes(3));
    ga_team *t;
    late *alone = calloc(1, sizeof *alone), *s = calloc(1, sizeof *s);
    assert_int_equal(ga_team_open(&t, 1, &a, NULL), 0);
    assert_int_equal(ga_team_run(t, come_late, alone), 0);
    ga_team_close(t);
    ga_arena_close(&a);
    a = open_arena(ga_team_bytes(3));
    assert_int_equal(ga_team_open(&t, 3, &a, NULL), 0);
    for (int run = 0; run < 3; run++) {
        memset(s, 0, sizeof *s);
        assert_int_equal(ga_team_run(t, come_late, s), 0);
        assert_true(s->passed);
        assert_memory_equal(s->sums, alone->sums, sizeof s->sums);
    }
    ga_team_close(t);
    ga_arena_close(&a);
    free(alone);
    free(s);
}

/* Many more threads than a machine of these tests has cores. */
static void oversubscribed(void **state) {
    (void)state;
    enum { THREADS = 96 };
    ga_arena a = open_arena(ga_team_bytes(THREADS));
    ga_team *t;
    shared *s = calloc(1, sizeof *s), *one = calloc(1, sizeof *one);
    assert_int_equal(ga_team_open(&t, THREADS, &a, NULL), 0);
    for (int run = 0; run < 3; run++) assert_int_equal(ga_team_run(t, rotate, s), 0);
    ga_team_close(t);
    ga_arena_close(&a);
    a = open_arena(ga_team_bytes(1));
    assert_int_equal(ga_team_open(&t, 1, &a, NULL), 0);
    for (int run = 0; run < 3; run++) assert_int_equal(ga_team_run(t, rotate, one), 0);
    assert_memory_equal(one->value, s->value, sizeof s->value);
    ga_team_close(t);
    ga_arena_close(&a);
    free(s);
    free(one);
}

typedef struct {
    cpu_set_t usable;
    bool open[2]; /* all usable cores were open to the worker in the end */
    bool apart;
} crowd;

/* Worker 0 stays on its core, worker 1 begins there; both meet at barriers until they have been apart. */
static void on_one_core(ga_worker *w, void *arg) {
    crowd *c = arg;
    static _Atomic int core;
    cpu_set_t mask;
    if (w->index == 0) core = sched_getcpu();
    ga_barrier(w);
    CPU_ZERO(&mask);
    CPU_SET(core, &mask);
    sched_setaffinity(0, sizeof mask, &mask);
    if (w->index == 1) sched_setaffinity(0, sizeof c->usable, &c->usable);
    for (int round = 0; round < 300; round++) {
        if (w->index == 1 && sched_getcpu() != core) c->apart = true;
        usleep(100);
        ga_barrier(w);
    }
    if (w->index == 0) sched_setaffinity(0, sizeof c->usable, &c->usable);
    sched_getaffinity(0, sizeof mask, &mask);
    c->open[w->index] = CPU_EQUAL(&mask, &c->usable);
}

static void workers_on_one_core(void **state) {
    (void)state;
    crowd c = {.apart = false};
    assert_int_equal(sched_getaffinity(0, sizeof c.usable, &c.usable), 0);
    if (CPU_COUNT(&c.usable) < 2) {
        printf("NOT RUN: workers on one core: one core is usable\n");
        return;
    }
    ga_arena a = open_arena(ga_team_bytes(2));
    ga_team *t;
    assert_int_equal(ga_team_open(&t, 2, &a, NULL), 0);
    assert_int_equal(ga_team_run(t, on_one_core, &c), 0);
    ga_team_close(t);
    ga_arena_close(&a);
    assert_true(c.open[0] && c.open[1]);
    assert_true(c.apart);
}

static void halve(ga_worker *w, void *arg) {
    volatile float tiny = 1.5e-38f;
    ((float *)arg)[w->index] = tiny * 0.5f;
}

static void denormals(void **state) {
    (void)state;
    float result[3] = {1, 1, 1};
    volatile float tiny = 1.5e-38f;
    ga_arena a = open_arena(ga_team_bytes(3));
    ga_team *t;
    assert_int_equal(ga_team_open(&t, 3, &a, NULL), 0);
    ga_team_run(t, halve, result);
    for (int i = 0; i < 3; i++) assert_true(result[i] == 0);
    assert_true(tiny * 0.5f > 0); /* only inside a run */
    ga_team_close(t);
    ga_arena_close(&a);
}

static void refused(void **state) {
    (void)state;
    ga_arena a = open_arena(4096);
    ga_team *t;
    ga_err e;
    assert_int_equal(ga_team_open(&t, 0, &a, &e), GA_INPUT);
    assert_int_equal(ga_team_open(&t, 5000, &a, &e), GA_INPUT);
    assert_int_equal(ga_team_open(&t, 2, &a, &e), GA_BUG); /* arena too small */
    ga_team_close(NULL);
    ga_arena_close(&a);
}

int test_team(void);
int test_team(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles), cmocka_unit_test(many_tiles),
                                       cmocka_unit_test(barriers), cmocka_unit_test(late_worker),
                                       cmocka_unit_test(oversubscribed), cmocka_unit_test(workers_on_one_core),
                                       cmocka_unit_test(denormals), cmocka_unit_test(refused)};
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
