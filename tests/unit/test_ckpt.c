/* Checkpoints: save and load, search, every flipped byte, retention, two runs, kill -9 while
 * saving. */
#include "scratch.h"

#include "ckpt_run.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <zlib.h>

enum { KEEP = 2 };

static void set_values(run *r, int64_t cycle) {
    run_fill(r, cycle);
    run_count(r, cycle);
}

static void run_start(run *r, const char *folder) {
    ga_err e = {0};
    if (run_open(r, folder, KEEP, &e) < 0) fail_msg("%s", e.msg);
    size_t before = (r->arena.used + 63) / 64 * 64;
    if (ga_ckpt_open(&r->ckpt, &r->config, &r->arena, &e) < 0) fail_msg("%s", e.msg);
    assert_true(r->arena.used - before <= ga_ckpt_bytes(&r->config));
}

static void save_cycle(run *r, int64_t cycle) {
    ga_err e = {0};
    char path[GA_PATH_MAX];
    set_values(r, cycle);
    if (ga_ckpt_save(r->ckpt, &r->state, path, &e) < 0) fail_msg("%s", e.msg);
}

static bool there(const char *folder, const char *name) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static const char *folder_of(scratch *s, const char *name) {
    static char folder[512]; /* a copy, since scratch_path is also used for files */
    snprintf(folder, sizeof folder, "%s/%s", s->path, name);
    return folder;
}

static void round_trip(void **state) {
    const char *folder = folder_of(*state, "deep/er/round");
    char path[GA_PATH_MAX];
    run r;
    ga_ckpt_state back;
    ga_err e = {0};
    run_start(&r, folder);
    r.state.epoch = 3;
    r.state.position = 8;
    r.state.skipped = 5;
    r.state.scale = 65536;
    r.state.sums[GA_SAVED_WEIGHT] = 0.1;
    r.state.sums[GA_SAVED_LOSS] = 1.0 / 3;
    set_values(&r, 1000);
    assert_int_equal(ga_ckpt_save(r.ckpt, &r.state, path, &e), 0);
    assert_has(path, "/cycle-000001000");
    double w[N];
    memcpy(w, r.w, sizeof w);
    set_values(&r, 1);
    ga_ckpt_state now = r.state;
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    for (int i = 0; i < 28; i++) assert_true(r.w[i] == w[i]);
    assert_true(r.w[28] != w[28]); /* padding between the layers is not written */
    assert_true(r.m[30] == -1000.0 * 30);
    assert_int_equal(back.cycle, 1000);
    assert_int_equal(back.micro, 4000);
    assert_int_equal(back.epoch, 3);
    assert_int_equal(back.position, 8);
    assert_int_equal(back.skipped, 5);
    assert_true(back.seed == INT64_MAX && back.scale == 65536 && back.sums[GA_SAVED_WEIGHT] == 0.1 &&
                back.sums[GA_SAVED_LOSS] == 1.0 / 3);
    assert_string_equal(back.data[0].path, "digits/\"x\".csv");
    assert_true(back.data[0].checksum == 0xdeadbeef);
    save_cycle(&r, 1000); /* a second save of the cycle replaces the first */
    assert_int_equal(ga_ckpt_find_path(path, path, &e), 0);
    run_end(&r);
}

static void mid_cycle(void **state) {
    const char *folder = folder_of(*state, "mid");
    char path[GA_PATH_MAX];
    run r;
    ga_ckpt_state back;
    ga_err e = {0};
    run_start(&r, folder);
    r.state.r = 3;
    r.state.sums[GA_SAVED_WEIGHT] = 48;
    r.state.sums[GA_SAVED_LOSS] = 0.1 + 0.2;
    save_cycle(&r, 7);
    assert_true(there(folder, "cycle-000000007-r3/gradient-1of1.safetensors"));
    memset(r.g, 0, sizeof r.g);
    ga_ckpt_state now = r.state;
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    assert_true(r.g[3] == 1.0 / 11 && back.r == 3 && back.micro == 31 && back.sums[GA_SAVED_WEIGHT] == 48);
    assert_true(back.sums[GA_SAVED_LOSS] == 0.1 + 0.2);
    now.accumulate = 8;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), GA_INPUT);
    assert_has(e.msg, "inside a cycle, behind 3 of 4 micro-steps of 5 rows on 1 rank; this run has cycles of "
                      "8 micro-steps of 5 rows on 1");
    now.accumulate = 4;
    now.batch = 6;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), GA_INPUT);
    run_end(&r);
}

/* Replaces text in a manifest and corrects its checksum. */
static void change_manifest(const char *checkpoint, const char *from, const char *to) {
    enum { LAST = 23 };
    char path[1200], out[8192];
    size_t n;
    snprintf(path, sizeof path, "%s/manifest.json", checkpoint);
    char *text = get_file(path, &n), *at = strstr(text, from);
    assert_non_null(at);
    text[n - LAST] = 0;
    int used = snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    unsigned crc = (unsigned)crc32(crc32(0, NULL, 0), (const unsigned char *)out, (unsigned)used);
    used += snprintf(out + used, sizeof out - (size_t)used, "\"checksum\":\"%08x\"}\n", crc);
    put_file(path, out, (size_t)used);
    free(text);
}

static void write_gradient(run *r, const char *checkpoint, int rank, int world) {
    char path[1200], name[64];
    ga_note notes[GA_SAVED_SUMS];
    for (int i = 0; i < GA_SAVED_SUMS; i++) {
        notes[i].key = ga_saved_sum_names[i];
        snprintf(notes[i].value, sizeof notes[i].value, "%.17g", 0.1 * (rank + 1) * (i + 1));
    }
    run_fill(r, 10 * (rank + 1));
    snprintf(path, sizeof path, "%s/%s", checkpoint, ga_ckpt_gradient_name(rank, world, name));
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_int_equal(ga_safetensors_write(fd, path, &r->gradient, 1, notes, GA_SAVED_SUMS, true, NULL, NULL), 0);
    close(fd);
}

/* 2 of 4 micro-steps on three ranks become 6 of 12 on one rank. */
static void other_ranks(void **state) {
    const char *folder = folder_of(*state, "ranks");
    char path[GA_PATH_MAX];
    run r;
    ga_ckpt_state back;
    ga_err e = {0};
    run_start(&r, folder);
    r.state.r = 2;
    r.state.position = 14;
    save_cycle(&r, 3);
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    change_manifest(path, "\"world\":1", "\"world\":3");
    for (int rank = 0; rank < 3; rank++) write_gradient(&r, path, rank, 3);
    memset(r.g, 0, sizeof r.g);
    ga_ckpt_state now = r.state;
    now.accumulate = 12;
    if (ga_ckpt_load(path, &r.config, &now, &back, &e) < 0) fail_msg("%s", e.msg);
    assert_true(back.r == 6 && back.position == 42 && back.cycle == 3 && back.micro == 14);
    for (int i = 0; i < 20; i++) assert_true(r.g[i] == 1.0 / (11 + i) + 1.0 / (21 + i) + 1.0 / (31 + i));
    for (int i = 0; i < GA_SAVED_SUMS; i++)
        assert_true(back.sums[i] == 0.1 * (i + 1) + 0.2 * (i + 1) + 0.1 * 3 * (i + 1));
    assert_int_equal(ga_ckpt_load(path, &r.config, &r.state, &back, &e), GA_INPUT);
    assert_has(e.msg, "behind 2 of 4 micro-steps of 5 rows on 3 ranks; this run has cycles of 4 micro-steps");
    run_end(&r);
}

static void other_formats(void **state) {
    const char *folder = folder_of(*state, "format");
    char path[GA_PATH_MAX];
    run r;
    ga_err e = {0};
    run_start(&r, folder);
    save_cycle(&r, 2);
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    change_manifest(path, "\"format\":1", "\"format\":7");
    assert_int_equal(ga_ckpt_find_path(path, path, &e), GA_INPUT);
    assert_has(e.msg, "manifest.json: format 7 found, 1 expected: written by another version (1.0)");
    change_manifest(path, "\"format\":7", "\"format\":1");
    static const char *const cycles[] = {"\"cycle\":2", "\"cycle\":-2", "\"cycle\":9007199254740993"};
    for (int i = 1; i < 3; i++) {
        change_manifest(path, cycles[i - 1], cycles[i]);
        assert_int_equal(ga_ckpt_find_path(path, path, &e), GA_INPUT);
        assert_has(e.msg, "a field is missing or out of range");
    }
    change_manifest(path, cycles[2], cycles[0]);
    change_manifest(path, "\"r\":0", "\"r\":4611686018427387904"); /* 0 as an int */
    assert_int_equal(ga_ckpt_find_path(path, path, &e), GA_INPUT);
    run_end(&r);
}

static void resume_table(void **state) {
    const char *folder = folder_of(*state, "table");
    char path[GA_PATH_MAX];
    run r;
    ga_ckpt_state back, now;
    ga_err e = {0};
    run_start(&r, folder);
    r.state.position = 8;
    save_cycle(&r, 2);
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    now = r.state;
    now.data[0].bytes = 124;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), GA_INPUT);
    assert_has(e.msg, "has 124 bytes, checksum deadbeef; the checkpoint was made with 123 bytes");
    now = r.state;
    const ga_accumulate by_three[] = {{0, 4}, {2, 3}};
    const ga_epochs thirds = {100, by_three, 2, GA_DROP};
    /* accepted at a boundary; the position is rounded down to a whole cycle of 3 */
    r.config.epochs = &thirds;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    assert_int_equal(back.position, 6);
    /* where no row is left out it stays: a carried or flushed tail, or cycles of as many rows */
    const ga_epochs carried = {100, by_three, 2, GA_CARRY}, flushed = {100, by_three, 2, GA_FLUSH};
    r.config.epochs = &carried;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    assert_int_equal(back.position, 8);
    r.config.epochs = &flushed;
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    assert_int_equal(back.position, 8);
    r.config.epochs = NULL;
    now.batch = 3; /* 8 * 5 rows hold 13 micro-batches of 3 */
    assert_int_equal(ga_ckpt_load(path, &r.config, &now, &back, &e), 0);
    assert_int_equal(back.position, 12);
    ga_param other[2] = {params[0], params[1]};
    other[0].shape[0] = 5;
    other[0].shape[1] = 4;
    r.moment.params = other;
    double before = r.w[0] = 99;
    assert_int_equal(ga_ckpt_load(path, &r.config, &r.state, &back, &e), GA_INPUT);
    assert_has(e.msg, "'a.weight.m' has shape (4, 5), (5, 4) expected");
    assert_true(r.w[0] == before); /* the valid file was not loaded either */
    assert_int_equal(ga_ckpt_find_newest("/nowhere", path, &e), GA_INPUT);
    assert_int_equal(ga_ckpt_find_path("/nowhere/x", path, &e), GA_INPUT);
    run_end(&r);
}

/* Redirects stderr to a file while rejected checkpoints are named. */
static int to_file(scratch *s) {
    int saved = dup(2), fd = open(scratch_path(s, "stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    close(fd);
    return saved;
}

static void back_to(int saved) {
    dup2(saved, 2);
    close(saved);
}

static void flip_every_byte(void **state) {
    static const char *const names[] = {"manifest.json", "model.safetensors",
                                        "optimizer.safetensors"};
    const char *folder = folder_of(*state, "flip");
    char path[GA_PATH_MAX], file[1200];
    run r;
    ga_err e;
    run_start(&r, folder);
    save_cycle(&r, 1);
    save_cycle(&r, 2);
    int saved = to_file(*state);
    for (int k = 0; k < 3; k++) {
        size_t n;
        snprintf(file, sizeof file, "%s/cycle-000000002/%s", folder, names[k]);
        char *data = get_file(file, &n);
        for (size_t i = 0; i < n; i++) {
            data[i] ^= (char)(1 << i % 8);
            put_file(file, data, n);
            int code = ga_ckpt_find_newest(folder, path, &e);
            if (code != 0 || !strstr(path, "cycle-000000001"))
                fail_msg("flip of byte %zu of %s not seen", i, file);
            data[i] ^= (char)(1 << i % 8);
        }
        put_file(file, data, n - 1);
        assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
        assert_has(path, "cycle-000000001");
        put_file(file, data, n);
        free(data);
    }
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    assert_has(path, "cycle-000000002");
    back_to(saved);
    size_t n;
    char *text = get_file(scratch_path(*state, "stderr"), &n);
    assert_has(text, "cycle-000000002 rejected: manifest.json: damaged or incomplete");
    assert_has(text, "cycle-000000002 rejected: model.safetensors: bytes 0..");
    free(text);
    run_end(&r);
}

static void retention(void **state) {
    const char *folder = folder_of(*state, "keep");
    char path[GA_PATH_MAX], temporary[1200];
    run r;
    ga_err e;
    run_start(&r, folder);
    for (int64_t cycle = 1; cycle <= 4; cycle++) save_cycle(&r, cycle);
    assert_false(there(folder, "cycle-000000002"));
    assert_true(there(folder, "cycle-000000003") && there(folder, "cycle-000000004"));
    set_values(&r, 5);
    r.w[2] = NAN; /* the save is refused and deletes no older checkpoint */
    assert_int_equal(ga_ckpt_save(r.ckpt, &r.state, path, &e), GA_NONFINITE);
    assert_true(there(folder, "cycle-000000003") && !there(folder, "cycle-000000005"));
    run_end(&r);
    snprintf(temporary, sizeof temporary, "%s/.tmp-000000009-dead", folder);
    assert_int_equal(mkdir(temporary, 0777), 0);
    run_start(&r, folder);
    assert_false(there(folder, ".tmp-000000009-dead"));
    int saved = to_file(*state);
    save_cycle(&r, 2); /* a run that went back: later checkpoints are not deleted */
    back_to(saved);
    assert_true(there(folder, "cycle-000000002") && there(folder, "cycle-000000003") &&
                there(folder, "cycle-000000004"));
    size_t n;
    char *text = get_file(scratch_path(*state, "stderr"), &n);
    assert_has(text, "holds checkpoints later than cycle-000000002");
    free(text);
    run_end(&r);
}

static void copied_folder(void **state) {
    const char *folder = folder_of(*state, "copy");
    char from[1200], to[1200], path[GA_PATH_MAX];
    run r;
    ga_err e;
    run_start(&r, folder);
    save_cycle(&r, 1);
    save_cycle(&r, 2);
    snprintf(from, sizeof from, "%s/cycle-000000001", folder);
    snprintf(to, sizeof to, "%s/cycle-000000009", folder);
    assert_int_equal(rename(from, to), 0); /* the manifest decides, not the name */
    assert_int_equal(ga_ckpt_find_newest(folder, path, &e), 0);
    assert_has(path, "cycle-000000002");
    run_end(&r);
}

static void two_runs(void **state) {
    const char *folder = folder_of(*state, "two");
    run r, other;
    ga_err e;
    char pid[32];
    run_start(&r, folder);
    assert_int_equal(run_open(&other, folder, KEEP, &e), 0);
    assert_int_equal(ga_ckpt_open(&other.ckpt, &other.config, &other.arena, &e), GA_INPUT);
    snprintf(pid, sizeof pid, "pid %ld on host ", (long)getpid());
    assert_has(e.msg, pid);
    run_end(&other);
    run_end(&r);
    run_start(&r, folder); /* the lock is free again */
    run_end(&r);
}

/* With files limited to 300 bytes a save fails and the old checkpoint stays; without the limit the next
 * save works. */
static void no_space(void **state) {
    const char *folder = folder_of(*state, "full");
    struct rlimit whole, tight;
    run r;
    ga_err e;
    char path[GA_PATH_MAX];
    run_start(&r, folder);
    save_cycle(&r, 1);
    set_values(&r, 2);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &whole);
    tight = (struct rlimit){300, whole.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    int code = ga_ckpt_save(r.ckpt, &r.state, path, &e);
    setrlimit(RLIMIT_FSIZE, &whole);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(code, GA_ENVIRONMENT);
    assert_has(e.msg, "model.safetensors: writing failed: File too large");
    assert_true(there(folder, "cycle-000000001") && !there(folder, "cycle-000000002"));
    save_cycle(&r, 2);
    assert_true(there(folder, "cycle-000000002"));
    run_end(&r);
}

/* A child saves without pause and is killed at random times: the last checkpoint that it reported must
 * load. */
static void kill_while_saving(void **state) {
    const char *folder = folder_of(*state, "kill");
    char path[GA_PATH_MAX];
    int64_t last = 0;
    for (int round = 0; round < 25; round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            run r;
            close(pipes[0]);
            run_start(&r, folder);
            for (int64_t cycle = last + 1;; cycle++) {
                save_cycle(&r, cycle);
                if (write(pipes[1], &cycle, sizeof cycle) != sizeof cycle) _exit(1);
            }
        }
        close(pipes[1]);
        int64_t cycle;
        assert_int_equal(read(pipes[0], &cycle, sizeof cycle), sizeof cycle); /* the child is saving */
        nanosleep(&(struct timespec){0, (round * 7919 % 97) * 50000}, NULL);
        kill(child, SIGKILL);
        do last = cycle;
        while (read(pipes[0], &cycle, sizeof cycle) == sizeof cycle);
        close(pipes[0]);
        waitpid(child, NULL, 0);
        run r;
        ga_ckpt_state back;
        ga_err e = {0};
        run_start(&r, folder); /* the killed child's lock is free, its leftovers are removed */
        if (ga_ckpt_find_newest(folder, path, &e) < 0) fail_msg("%s", e.msg);
        ga_ckpt_state now = r.state;
        if (ga_ckpt_load(path, &r.config, &now, &back, &e) < 0) fail_msg("%s", e.msg);
        assert_true(back.cycle == last || back.cycle == last + 1);
        assert_true(r.w[5] == (double)back.cycle + 5 / 64.0 && r.m[3] == -3.0 * (double)back.cycle);
        last = back.cycle;
        run_end(&r);
    }
}

int test_ckpt(void);
int test_ckpt(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),       cmocka_unit_test(mid_cycle),
        cmocka_unit_test(other_ranks),      cmocka_unit_test(other_formats),
        cmocka_unit_test(resume_table),     cmocka_unit_test(flip_every_byte),
        cmocka_unit_test(retention),        cmocka_unit_test(copied_folder),
        cmocka_unit_test(two_runs),         cmocka_unit_test(no_space),
        cmocka_unit_test(kill_while_saving)};
    return cmocka_run_group_tests_name("ckpt", tests, scratch_setup, scratch_teardown);
}
