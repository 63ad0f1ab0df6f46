/* Checkpoints and dumps of arrays that are divided over the ranks in many ways, against files of whole arrays that one
 * rank writes. With one rank if linked with comm_self, with several under mpirun if linked with comm_mpi. */
#include "divided.h"

#include "files/ckpt.h"
#include "files/folder.h"
#include "files/shards.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

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

/* The path of the folder of rank 0, as the other ranks find it: that folder, nothing, another one. */
enum { SEEN, MISSING, OTHER, SIGHTS };

/* A run that saves the parts. */
typedef struct {
    char folder[192];
    ga_ckpt_file files[2];
    ga_ckpt_config config;
    ga_ckpt_state state;
    ga_arena arena;
    ga_ckpt *ckpt;
} saver;

static void saver_make(saver *v, group *g, state *s, int sight) {
    *v = (saver){.files = {{"optimizer.safetensors", s->mine, ARRAYS}, {"model.safetensors", &s->model, 1}},
                 .state = {.cycle = 1, .update = 1, .micro = 4, .batch = 1, .accumulate = 4, .scale = 1}};
    snprintf(v->folder, sizeof v->folder, g->rank > 0 && sight != SEEN ? "%s/rank%d" : "%s", g->folder, g->rank);
    if (sight == OTHER) mkdir(v->folder, 0777);
    v->config = (ga_ckpt_config){.folder = v->folder, .keep = 9, .files = v->files, .file_count = 2, .comm = g->comm,
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

/* Rank 0 alone has the checkpoint: the other folders are empty. The path is that of rank 0. */
static void assert_only_on_rank_0(const group *g, const saver *v, const char *path, int sight) {
    char found[GA_PATH_MAX];
    if (g->rank == 0) assert_int_equal(ga_ckpt_find_path(path, found, NULL), 0); /* its checksums are right */
    if (g->rank == 0 || sight == SEEN) return;
    assert_int_equal(access(v->folder, F_OK), sight == OTHER ? 0 : -1);
    assert_true(rmdir(v->folder) == 0 || sight == MISSING);
}

/* Leaves a damaged copy of the checkpoint where the other ranks look for it. */
static void copy_damaged(const group *g, const saver *v, const char *path) {
    char command[3 * GA_PATH_MAX];
    snprintf(command, sizeof command, "mkdir -p %s && cp -a %s/cycle-* %s && printf x | dd of=%s bs=1 seek=9000 "
             "conv=notrunc 2> /dev/null", v->folder, g->folder, v->folder, optimizer_of(path));
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    if (g->rank > 0) assert_int_equal(system(command), 0);
}

/* Saved in one division: the file of whole arrays; loaded in another, and whole. */
static void save_and_load(group *g, int cut, int sight) {
    static state s, back;
    char path[GA_PATH_MAX];
    saver v;
    group_folder(g);
    fill(&s, (uint64_t)cut);
    divide(&s, g, cut);
    put_parts(&s, true);
    saver_make(&v, g, &s, sight);
    saver_open(&v);
    saver_save(&v, path);
    const char *expected = reference(g, &s);
    if (g->rank == 0) assert_same_file(optimizer_of(path), expected);
    assert_only_on_rank_0(g, &v, path, sight);
    if (sight == OTHER) copy_damaged(g, &v, path);

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

static void saves_and_loads(void **group_state) {
    for (int cut = 0; cut < CUTS; cut++)
        for (int sight = 0; sight < SIGHTS; sight++) save_and_load(*group_state, cut, sight);
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
    if (ga_safetensors_load(path, NULL, s.mine, ARRAYS, NULL, 0, &e) < 0) fail_msg("%s", e.msg);
    assert_parts(&s, ARRAYS);
    put_parts(&s, false);
    s.mine[1].dtype = GA_F32;
    assert_int_equal(ga_safetensors_load(path, NULL, s.mine, ARRAYS, NULL, 0, &e), GA_INPUT);
    assert_has(e.msg, "'a.v' is F64, which F32 would round");
    assert_int_equal(ga_safetensors_load(path, NULL, s.mine, 1, NULL, 0, &e), GA_INPUT);
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

/* One rank fails: all do, and nothing is left; then they save. Where the others do not see the folder, rank 0 finds the
 * failures of all. */
static void fail_together(group *g, int sight) {
    static state s;
    const int last = g->size - 1, teller = sight == SEEN ? last : 0;
    const bool tells = g->rank == teller;
    ga_err e = {0};
    saver v;
    char path[GA_PATH_MAX], who[64];
    group_folder(g);
    fill(&s, 6);
    divide(&s, g, 1); /* all belongs to the last rank */
    put_parts(&s, true);
    saver_make(&v, g, &s, sight);
    saver_open(&v);
    saver_save(&v, NULL);
    v.state.cycle = v.state.update = 2;
    v.state.micro = 8;

    if (g->rank == last) ga_set(s.memory[2], GA_BF16, s.pieces[s.shard.count - 1].at, HUGE_VAL);
    assert_int_equal(ga_ckpt_save(v.ckpt, &v.state, NULL, &e), GA_NONFINITE);
    snprintf(who, sizeof who, "rank %d failed with code 4", teller);
    assert_has(e.msg, tells ? "optimizer.safetensors: z.r holds a value that is not finite: not saved" : who);
    assert_nothing_left(g);

    put_parts(&s, true);
    assert_int_equal(save_on_full_disk(&v, tells, &e), GA_ENVIRONMENT);
    snprintf(who, sizeof who, "rank %d failed with code 3", teller);
    assert_has(e.msg, tells ? "optimizer.safetensors: writing failed: File too large" : who);
    assert_nothing_left(g);

    assert_int_equal(ga_ckpt_find_newest(g->folder, path, &e), 0);
    assert_has(path, "cycle-000000001");
    assert_int_equal(ga_comm_barrier(g->comm, NULL), 0);
    saver_save(&v, path);
    assert_has(path, "cycle-000000002");
    const char *expected = reference(g, &s);
    if (g->rank == 0) assert_same_file(optimizer_of(path), expected);
    saver_end(&v);
    group_folder_remove(g);
}

static void fails_together(void **group_state) {
    for (int sight = 0; sight < SIGHTS; sight++) fail_together(*group_state, sight);
}

/* The checksum of the gradients of all ranks in a checkpoint. */
static uint32_t gradients_of(const group *g, const char *checkpoint) {
    char path[GA_PATH_MAX + GA_CKPT_NAME], name[GA_CKPT_NAME];
    uint32_t sum = 0;
    for (int rank = 0; rank < g->size; rank++) {
        ga_data_file f;
        ga_err e;
        snprintf(path, sizeof path, "%s/%s", checkpoint, ga_ckpt_gradient_name(rank, g->size, name));
        if (ga_data_file_read(path, name, &f, &e) < 0) fail_msg("%s", e.msg);
        sum = sum * 31 + f.checksum;
    }
    return sum;
}

/* A run inside a cycle. */
static void inside_a_cycle(saver *v, group *g, state *s, int sight, const ga_array *gradient) {
    saver_make(v, g, s, sight);
    v->config.gradient = gradient;
    v->config.gradient_count = 2;
    v->state.r = 2;
    v->state.sums[GA_SAVED_LOSS] = g->rank + 0.25;
    saver_open(v);
}

/* Parts of gradients inside a cycle: their sum over the ranks stays, in any division. Returns their checksum. */
static uint32_t save_gradients(group *g, int sight) {
    static state s, back;
    char path[GA_PATH_MAX];
    saver v;
    group_folder(g);
    fill(&s, 8);
    divide(&s, g, 2);
    put_parts(&s, true);
    inside_a_cycle(&v, g, &s, sight, s.mine);
    saver_save(&v, path);
    assert_only_on_rank_0(g, &v, path, sight);
    const uint32_t sum = g->rank == 0 ? gradients_of(g, path) : 0;
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
    return sum;
}

/* Whole gradients inside a cycle, of each rank its own: their bits stay. Returns their checksum. */
static uint32_t save_whole_gradients(group *g, int sight) {
    static state s, own, back;
    char path[GA_PATH_MAX];
    saver v;
    group_folder(g);
    fill(&s, 8);
    divide(&s, g, 2);
    put_parts(&s, true);
    fill(&own, 20 + (uint64_t)g->rank);
    ga_set(own.values[0], GA_F32, 0, -0.0);
    inside_a_cycle(&v, g, &s, sight, own.whole);
    saver_save(&v, path);
    assert_only_on_rank_0(g, &v, path, sight);
    const uint32_t sum = g->rank == 0 ? gradients_of(g, path) : 0;
    fill(&back, 9);
    v.config.gradient = back.whole;
    assert_true(saver_load(&v, path).sums[GA_SAVED_LOSS] == g->rank + 0.25);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < FLAT; i++)
            assert_true(is_padding(i) || whole_value(&back, k, i) == whole_value(&own, k, i));
    assert_true(signbit(whole_value(&back, 0, 0)));
    saver_end(&v);
    group_folder_remove(g);
    return sum;
}

static void gradients(void **group_state) {
    const uint32_t parts = save_gradients(*group_state, SEEN), whole = save_whole_gradients(*group_state, SEEN);
    for (int sight = MISSING; sight < SIGHTS; sight++) {
        assert_int_equal(save_gradients(*group_state, sight), parts);
        assert_int_equal(save_whole_gradients(*group_state, sight), whole);
    }
}

/* All ranks refuse what rank 0 refuses to load: a file that is missing, and one that does not fit. */
static void refuses_together(void **group_state) {
    static state s;
    group *g = *group_state;
    ga_err e;
    ga_ckpt_state back;
    saver v;
    char path[GA_PATH_MAX];
    group_folder(g);
    fill(&s, 4);
    divide(&s, g, 2);
    put_parts(&s, true);
    saver_make(&v, g, &s, MISSING);
    saver_open(&v);
    saver_save(&v, path);
    s.mine[1].suffix = ".w";
    assert_int_equal(ga_ckpt_load(path, &v.config, &v.state, &back, &e), GA_INPUT);
    assert_has(e.msg, "optimizer.safetensors: does not fit the model, nothing loaded: 'a.w' is missing");
    if (g->rank == 0) assert_int_equal(unlink(optimizer_of(path)), 0);
    assert_int_equal(ga_ckpt_load(path, &v.config, &v.state, &back, &e), GA_INPUT);
    assert_has(e.msg, g->rank == 0 ? "optimizer.safetensors: cannot be opened" : "rank 0 failed with code 1");
    assert_int_equal(ga_ckpt_load("/nowhere", &v.config, &v.state, &back, &e), GA_INPUT);
    saver_end(&v);
    group_folder_remove(g);
}

/* Leftovers of a killed run go: a folder, and the file by which ranks look for the folder. */
static void removes_leftovers(void **group_state) {
    static state s;
    group *g = *group_state;
    saver v;
    char path[256];
    group_folder(g);
    fill(&s, 4);
    divide(&s, g, 2);
    saver_make(&v, g, &s, SEEN);
    snprintf(path, sizeof path, "%s/.tmp-seen-1", g->folder);
    if (g->rank == 0) put_file(path, "1", 1);
    saver_open(&v);
    assert_nothing_left(g);
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
    saver_make(&v, g, &s, SEEN);
    assert_int_equal(ga_ckpt_open(&v.ckpt, &v.config, &v.arena, &e), GA_BUG);
    assert_has(e.msg, "a.m and so on: the ranks hold 5037 elements together, the array has 5038");
    ga_arena_close(&v.arena);
    group_folder_remove(g);
}

int test_shards(void);
int test_shards(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(saves_and_loads), cmocka_unit_test(converts_and_refuses),
                                       cmocka_unit_test(collects), cmocka_unit_test(fails_together),
                                       cmocka_unit_test(gradients), cmocka_unit_test(refuses_together),
                                       cmocka_unit_test(removes_leftovers), cmocka_unit_test(refuses_holes)};
    return cmocka_run_group_tests_name("shards", tests, open_group, close_group);
}
