/* Checkpoints and dumps of arrays that are divided over the ranks in many ways, against files of whole arrays that one
 * rank writes. With one rank if linked with comm_self, with several under mpirun if linked with comm_mpi. */
#include "group.h"

#include "base/rng.h"
#include "files/ckpt.h"
#include "files/folder.h"
#include "files/shards.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { FLAT = 5056, ARRAYS = 3, PIECES = 256, ROOM = 2 * FLAT, CUTS = 6, GUARD = -7 };

/* Odd sizes, a region, a scalar, padding, and a tensor that does not travel at once. */
static const ga_param params[] = {{"a", 0, 1, 2, {3, 5}, 0, 0, 15},
                                  {"h.%d.b", 0, 3, 1, {7}, 16, 8, 7},
                                  {"s", 0, 1, 0, {0}, 40, 0, 1},
                                  {"z", 0, 1, 2, {3, 1667}, 48, 0, 5001}};
enum { PARAMS = sizeof params / sizeof *params };

typedef struct {
    double values[ARRAYS][FLAT], memory[ARRAYS][ROOM], weights[FLAT];
    ga_piece pieces[PIECES];
    ga_shard shard;
    ga_array whole[ARRAYS], mine[ARRAYS], model;
} state;

static double random_value(uint64_t seed, int array, int64_t i) {
    return ga_uniform(ga_rng(seed, (uint64_t)array, (uint64_t)i)) - 0.5;
}

/* The same whole arrays on all ranks. */
static void fill(state *s, uint64_t seed) {
    static const ga_dtype types[ARRAYS] = {GA_F32, GA_F64, GA_BF16};
    static const char *const suffixes[ARRAYS] = {".m", ".v", ".r"};
    for (int k = 0; k < ARRAYS; k++) {
        s->whole[k] = (ga_array){params, PARAMS, suffixes[k], types[k], s->values[k], NULL};
        for (int64_t i = 0; i < FLAT; i++) ga_set(s->values[k], types[k], i, random_value(seed, k, i));
    }
    s->model = (ga_array){params, PARAMS, "", GA_F64, s->weights, NULL};
    for (int64_t i = 0; i < FLAT; i++) s->weights[i] = random_value(seed, ARRAYS, i);
}

/* The owner of the next elements: cut 0 leaves nothing to rank 0, cut 1 nothing to all but the last. */
static int owner(const group *g, int cut, uint64_t random) {
    if (cut == 1) return g->size - 1;
    return cut == 0 && g->size > 1 ? 1 + (int)(random % (uint64_t)(g->size - 1)) : (int)(random % (uint64_t)g->size);
}

/* Divides the flat space, in short pieces where the tensors are small, with gaps between them in memory. */
static void divide(state *s, const group *g, int cut) {
    int64_t at = 0, n;
    s->shard = (ga_shard){s->pieces, 0, ROOM};
    for (int64_t from = 0, i = 0; from < FLAT; from += n, i += 2) {
        const uint64_t random = ga_rng(77, (uint64_t)cut, (uint64_t)i);
        const uint64_t other = ga_rng(77, (uint64_t)cut, (uint64_t)i + 1);
        n = 1 + (int64_t)(random % (from < 48 ? 9 : 3000));
        if (n > FLAT - from) n = FLAT - from;
        if (owner(g, cut, other) != g->rank) continue;
        assert_true(s->shard.count < PIECES);
        s->pieces[s->shard.count++] = (ga_piece){from, n, at};
        at += n + (int64_t)(other / 16 % 3);
    }
    for (int k = 0; k < ARRAYS; k++) {
        s->mine[k] = s->whole[k];
        s->mine[k].base = s->memory[k];
        s->mine[k].shard = &s->shard;
    }
}

static bool is_padding(int64_t i) {
    for (int k = 0; k < PARAMS; k++)
        for (int l = 0; l < params[k].count; l++) {
            const int64_t from = params[k].offset + l * params[k].stride;
            if (i >= from && i < from + params[k].n) return false;
        }
    return true;
}

static double whole_value(const state *s, int array, int64_t i) {
    return ga_get(s->values[array], s->whole[array].dtype, i);
}

/* Fills the memory of this rank with its part, or with GUARD. */
static void put_parts(state *s, bool values) {
    for (int k = 0; k < ARRAYS; k++) {
        const ga_dtype t = s->mine[k].dtype;
        for (int64_t i = 0; i < ROOM; i++) ga_set(s->memory[k], t, i, GUARD);
        for (int p = 0; p < s->shard.count && values; p++)
            for (int64_t i = 0; i < s->pieces[p].n; i++)
                ga_set(s->memory[k], t, s->pieces[p].at + i, whole_value(s, k, s->pieces[p].from + i));
    }
}

/* All that the pieces name has the values of the whole arrays, except for padding; nothing else is touched. */
static void assert_parts(const state *s, int arrays) {
    static double expected[ROOM];
    for (int k = 0; k < arrays; k++) {
        for (int64_t i = 0; i < ROOM; i++) expected[i] = GUARD;
        for (int p = 0; p < s->shard.count; p++)
            for (int64_t i = 0; i < s->pieces[p].n; i++)
                if (!is_padding(s->pieces[p].from + i))
                    expected[s->pieces[p].at + i] = whole_value(s, k, s->pieces[p].from + i);
        for (int64_t i = 0; i < ROOM; i++) assert_true(ga_get(s->memory[k], s->mine[k].dtype, i) == expected[i]);
    }
}

static void assert_same_file(const char *path, const char *expected) {
    size_t n, m;
    char *a = get_file(path, &n), *b = get_file(expected, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

static const char *optimizer_of(const char *checkpoint) {
    static char path[GA_PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/optimizer.safetensors", checkpoint);
    return path;
}

/* The file of the whole arrays. */
static const char *reference(group *g, state *s) {
    static char path[256];
    ga_err e;
    snprintf(path, sizeof path, "%s/whole.safetensors", g->folder);
    if (g->rank == 0 && ga_safetensors_save(path, s->whole, ARRAYS, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    return path;
}

/* A run that saves the parts. */
typedef struct {
    ga_ckpt_file files[2];
    ga_ckpt_config config;
    ga_ckpt_state state;
    ga_arena arena;
    ga_ckpt *ckpt;
} saver;

static void saver_make(saver *v, group *g, state *s) {
    *v = (saver){.files = {{"optimizer.safetensors", s->mine, ARRAYS}, {"model.safetensors", &s->model, 1}},
                 .state = {.cycle = 1, .update = 1, .micro = 4, .batch = 1, .accumulate = 4, .scale = 1}};
    v->config = (ga_ckpt_config){.folder = g->folder, .keep = 9, .files = v->files, .file_count = 2, .comm = g->comm,
                                 .program = "shards"};
    v->state.world = g->size;
    v->arena = open_arena(1 << 20);
}

static void saver_open(saver *v) {
    ga_err e;
    if (ga_ckpt_open(&v->ckpt, &v->config, &v->arena, &e) < 0) fail_msg("%s", e.msg);
}

static void saver_save(saver *v, char *path) {
    ga_err e;
    const size_t used = v->arena.used;
    if (ga_ckpt_save(v->ckpt, &v->state, path, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(v->arena.used, used);
}

static ga_ckpt_state saver_load(saver *v, const char *path) {
    ga_ckpt_state back;
    ga_err e;
    if (ga_ckpt_load(path, &v->config, &v->state, &back, &e) < 0) fail_msg("%s", e.msg);
    return back;
}

static void saver_end(saver *v) {
    ga_ckpt_close(v->ckpt);
    ga_arena_close(&v->arena);
}

/* Saved in one division: the file of whole arrays; loaded in another, and whole. */
static void saves_and_loads(void **group_state) {
    static state s, back;
    group *g = *group_state;
    char path[GA_PATH_MAX];
    for (int cut = 0; cut < CUTS; cut++) {
        saver v;
        group_folder(g);
        fill(&s, (uint64_t)cut);
        divide(&s, g, cut);
        put_parts(&s, true);
        saver_make(&v, g, &s);
        saver_open(&v);
        saver_save(&v, path);
        assert_same_file(optimizer_of(path), reference(g, &s));
        assert_int_equal(ga_ckpt_find_path(path, path, NULL), 0); /* its checksums are right */

        divide(&s, g, (cut + 1) % CUTS);
        put_parts(&s, false);
        saver_load(&v, path);
        assert_parts(&s, ARRAYS);
        fill(&back, 99);
        v.files[0].arrays = back.whole;
        saver_load(&v, path);
        for (int k = 0; k < ARRAYS; k++)
            for (int64_t i = 0; i < FLAT; i++)
                assert_true(is_padding(i) || whole_value(&back, k, i) == whole_value(&s, k, i));
        saver_end(&v);
        group_folder_remove(g);
    }
}

/* Values that memory of another type gets, and differences of files, as for whole arrays. */
static void converts_and_refuses(void **group_state) {
    static state s;
    group *g = *group_state;
    ga_err e = {0};
    group_folder(g);
    fill(&s, 3);
    const char *path = reference(g, &s);
    divide(&s, g, 4);
    for (int k = 0; k < ARRAYS; k++) s.mine[k].dtype = GA_F64;
    put_parts(&s, false);
    if (ga_safetensors_load(path, s.mine, ARRAYS, NULL, 0, &e) < 0) fail_msg("%s", e.msg);
    assert_parts(&s, ARRAYS);
    put_parts(&s, false);
    s.mine[1].dtype = GA_F32;
    assert_int_equal(ga_safetensors_load(path, s.mine, ARRAYS, NULL, 0, &e), GA_INPUT);
    assert_has(e.msg, "'a.v' is F64, which F32 would round");
    assert_int_equal(ga_safetensors_load(path, s.mine, 1, NULL, 0, &e), GA_INPUT);
    assert_has(e.msg, "'a.v' is not in the model");
    assert_true(ga_get(s.memory[0], GA_F64, 0) == GUARD);
    group_folder_remove(g);
}

static void collects(void **group_state) {
    static state s;
    static double out[FLAT];
    group *g = *group_state;
    ga_err e;
    group_folder(g);
    fill(&s, 5);
    const char *expected = reference(g, &s);
    for (int cut = 0; cut < CUTS; cut++) {
        divide(&s, g, cut);
        put_parts(&s, true);
        for (int k = 0; k < ARRAYS; k++)
            for (int p = 0; p < PARAMS; p++)
                for (int l = 0; l < params[p].count; l++) {
                    assert_int_equal(ga_shard_collect(g->comm, &s.mine[k], &params[p], l, out, &e), 0);
                    for (int64_t i = 0; i < params[p].n && g->rank == 0; i++)
                        assert_true(ga_get(out, s.whole[k].dtype, i) ==
                                    whole_value(&s, k, ga_layout_index(&params[p], l, i)));
                }
        char path[256];
        snprintf(path, sizeof path, "%s/saved-%d", g->folder, cut);
        const ga_array *arrays = cut == CUTS - 1 ? s.whole : s.mine; /* whole ones too */
        if (ga_shard_save(g->comm, path, arrays, ARRAYS, &e) < 0) fail_msg("%s", e.msg);
        assert_same_file(path, expected);
    }
    assert_int_equal(ga_shard_save(g->comm, "/nowhere/x", s.mine, ARRAYS, &e), GA_INPUT);
    assert_has(e.msg, g->rank == 0 ? "/nowhere/x.tmp: cannot be created" : "rank 0 failed with code 1");
    group_folder_remove(g);
}

static int unexpected(void *arg, const char *name) {
    (void)arg;
    return strncmp(name, "cycle-000000002", 15) == 0 || strncmp(name, ".tmp-", 5) == 0 ? GA_BUG : GA_OK;
}

/* Neither a checkpoint nor a leftover is there of a save that failed. */
static void assert_nothing_left(const group *g) {
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    const int folder = open(g->folder, O_RDONLY | O_DIRECTORY);
    assert_true(folder >= 0);
    assert_int_equal(ga_folder_each(folder, unexpected, NULL), 0);
    close(folder);
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
}

static int save_on_full_disk(saver *v, bool full, ga_err *e) {
    struct rlimit whole, tight;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &whole);
    tight = (struct rlimit){70000, whole.rlim_max}; /* the header of rank 0, and some of the values */
    if (full) setrlimit(RLIMIT_FSIZE, &tight);
    const int code = ga_ckpt_save(v->ckpt, &v->state, NULL, e);
    setrlimit(RLIMIT_FSIZE, &whole);
    signal(SIGXFSZ, SIG_DFL);
    return code;
}

/* One rank fails: all do, and nothing is left; then they save. */
static void fails_together(void **group_state) {
    static state s;
    group *g = *group_state;
    const int last = g->size - 1;
    const bool is_last = g->rank == last;
    ga_err e = {0};
    saver v;
    char path[GA_PATH_MAX], who[64];
    group_folder(g);
    fill(&s, 6);
    divide(&s, g, 1); /* all belongs to the last rank */
    put_parts(&s, true);
    saver_make(&v, g, &s);
    saver_open(&v);
    saver_save(&v, NULL);
    v.state.cycle = v.state.update = 2;
    v.state.micro = 8;

    if (is_last) ga_set(s.memory[2], GA_BF16, s.pieces[s.shard.count - 1].at, HUGE_VAL);
    assert_int_equal(ga_ckpt_save(v.ckpt, &v.state, NULL, &e), GA_NONFINITE);
    snprintf(who, sizeof who, "rank %d failed with code 4", last);
    assert_has(e.msg, is_last ? "optimizer.safetensors: z.r holds a value that is not finite: not saved" : who);
    assert_nothing_left(g);

    put_parts(&s, true);
    assert_int_equal(save_on_full_disk(&v, is_last, &e), GA_ENVIRONMENT);
    snprintf(who, sizeof who, "rank %d failed with code 3", last);
    assert_has(e.msg, is_last ? "optimizer.safetensors: writing failed: File too large" : who);
    assert_nothing_left(g);

    assert_int_equal(ga_ckpt_find_newest(g->folder, path, &e), 0);
    assert_has(path, "cycle-000000001");
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    saver_save(&v, path);
    assert_has(path, "cycle-000000002");
    assert_same_file(optimizer_of(path), reference(g, &s));
    saver_end(&v);
    group_folder_remove(g);
}

/* Parts of gradients inside a cycle: their sum over the ranks stays, in any division. */
static void gradients(void **group_state) {
    static state s, back;
    group *g = *group_state;
    char path[GA_PATH_MAX];
    saver v;
    group_folder(g);
    fill(&s, 8);
    divide(&s, g, 2);
    put_parts(&s, true);
    saver_make(&v, g, &s);
    v.config.gradient = s.mine;
    v.config.gradient_count = 2;
    v.state.r = 2;
    v.state.sums[GA_SAVED_LOSS] = g->rank + 0.25;
    saver_open(&v);
    saver_save(&v, path);
    assert_int_equal(ga_ckpt_find_path(path, path, NULL), 0);
    for (int cut = 2; cut < 4; cut++) {
        divide(&s, g, cut);
        put_parts(&s, false);
        assert_true(saver_load(&v, path).sums[GA_SAVED_LOSS] == g->rank + 0.25);
        assert_parts(&s, ARRAYS);
    }
    fill(&back, 9);
    v.config.gradient = back.whole;
    saver_load(&v, path);
    assert_int_equal(ga_comm_all_reduce(g->comm, back.values[0], FLAT, GA_F32, NULL), 0);
    for (int64_t i = 0; i < FLAT; i++) assert_true(is_padding(i) || whole_value(&back, 0, i) == whole_value(&s, 0, i));
    saver_end(&v);
    group_folder_remove(g);
}

static void refuses_holes(void **group_state) {
    static state s;
    group *g = *group_state;
    ga_err e;
    saver v;
    group_folder(g);
    fill(&s, 1);
    divide(&s, g, 1);
    if (s.shard.count > 0) s.pieces[s.shard.count - 1].n -= FLAT - 48 - 5001 + 1; /* the padding and one element */
    saver_make(&v, g, &s);
    assert_int_equal(ga_ckpt_open(&v.ckpt, &v.config, &v.arena, &e), GA_BUG);
    assert_has(e.msg, "a.m and so on: the ranks hold 5037 elements together, the array has 5038");
    ga_arena_close(&v.arena);
    group_folder_remove(g);
}

int test_shards(void);
int test_shards(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(saves_and_loads), cmocka_unit_test(converts_and_refuses),
                                       cmocka_unit_test(collects), cmocka_unit_test(fails_together),
                                       cmocka_unit_test(gradients), cmocka_unit_test(refuses_holes)};
    return cmocka_run_group_tests_name("shards", tests, open_group, close_group);
}
