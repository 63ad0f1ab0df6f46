/* The log: every event is one JSON object, non-finite numbers are strings, and a lost output does not
 * stop training. */
#include "scratch.h"

#include "log/log.h"
#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>

static const ga_update_event update = {.fields = GA_HAS_GRAD_NORM,
                                       .cycle = 12,
                                       .cycles = 100,
                                       .update = 11,
                                       .micro = 48,
                                       .epoch = 1,
                                       .rows = 64,
                                       .loss = 0.1,
                                       .lr = 1e-3,
                                       .grad_norm = INFINITY,
                                       .skipped = 1,
                                       .weight = 64,
                                       .ms = 1.25,
                                       .rows_per_s = 51200};

/* Runs body with stdout redirected to fd. */
static void with_stdout(int fd, void (*body)(ga_log *), ga_log *l) {
    fflush(stdout);
    int saved = dup(1);
    dup2(fd, 1);
    body(l);
    dup2(saved, 1);
    close(saved);
}

static void all_events(ga_log *l) {
    ga_log_start(l, &(ga_start_event){.program = "mlp\"\n\xff\xc3\xa9",
                                      .version = "1",
                                      .spec_sha256 = "ab",
                                      .target = "c",
                                      .profile = "generic",
                                      .ranks = 1,
                                      .threads = 2,
                                      .parameters = 10,
                                      .planned_bytes = 4096,
                                      .seed = 7});
    ga_log_update(l, &update);
    ga_eval_event eval = {.cycle = 12,
                          .rows = 360,
                          .split = "eval",
                          .metrics = {{.name = "loss", .value = NAN},
                                      {.name = "accuracy", .value = 0.975, .share = true},
                                      {.name = "f1", .value = 0.5, .hidden = true}}};
    ga_log_eval(l, &eval);
    assert_true(ga_eval_value(&eval, "f1") == 0.5 && isnan(ga_eval_value(&eval, "mae")));
    ga_log_checkpoint(l, 12, "out/c/cycle-000000012", 3.5);
    float w[3] = {1, 0.1f, -2};
    ga_log_watch(l, 3, "fc1.weight", w, GA_F32, 3);
    ga_log_end(l, 12, 11, 1, "done");
}

static json_t *line_of(char **at) {
    json_error_t error;
    char *end = strchr(*at, '\n');
    assert_non_null(end);
    *end = 0;
    json_t *o = json_loads(*at, JSON_REJECT_DUPLICATES, &error);
    if (!o) fail_msg("%s: %s", error.text, *at);
    *at = end + 1;
    return o;
}

static double number(const json_t *o, const char *name) {
    assert_true(json_is_number(json_object_get(o, name)));
    return json_number_value(json_object_get(o, name));
}

static void events(void **state) {
    scratch *s = *state;
    char json[1100], *text, *at;
    size_t n;
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    snprintf(json, sizeof json, "%s", scratch_path(s, "log.jsonl"));
    assert_int_equal(ga_log_open(&l, json, false, 0, &a, NULL), 0);
    int fd = open(scratch_path(s, "stdout"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    int talk = open(scratch_path(s, "stderr"), O_RDWR | O_CREAT | O_TRUNC, 0644), saved = dup(2);
    dup2(talk, 2);
    with_stdout(fd, all_events, l);
    dup2(saved, 2);
    close(saved);
    close(talk);
    close(fd);
    ga_log_close(l);
    text = at = get_file(json, &n);
    json_t *o = line_of(&at);
    assert_string_equal(json_string_value(json_object_get(o, "program")),
                        "mlp\"\n\xef\xbf\xbd\xc3\xa9");
    assert_null(json_object_get(o, "resumed_from"));
    json_decref(o);
    o = line_of(&at);
    assert_string_equal(json_string_value(json_object_get(o, "event")), "update");
    assert_true(number(o, "cycle") == 12 && number(o, "loss") == 0.1 && number(o, "skipped") == 1);
    assert_string_equal(json_string_value(json_object_get(o, "grad_norm")), "inf");
    assert_null(json_object_get(o, "momentum"));
    json_decref(o);
    o = line_of(&at);
    assert_string_equal(json_string_value(json_object_get(o, "loss")), "nan");
    assert_true(number(o, "accuracy") == 0.975);
    json_decref(o);
    json_decref(line_of(&at));
    o = line_of(&at);
    assert_string_equal(json_string_value(json_object_get(o, "reason")), "done");
    assert_true(number(o, "peak_rss_bytes") > 1e6);
    json_decref(o);
    assert_int_equal(*at, 0);
    free(text);
    text = get_file(scratch_path(s, "stdout"), &n);
    assert_has(text, "update 12/100 loss 0.1 lr 1.000e-03 gnorm inf rows/s 51200 skipped 1 t ");
    assert_has(text, "eval 12 loss nan accuracy 0.9750 rows 360\n");
    assert_has(text, "iteration 3, first 3 elements of fc1.weight: 1, 0.100000001, -2\n");
    assert_has(text, "end done cycle 12 update 11 skipped 1 mem ");
    free(text);
    text = get_file(scratch_path(s, "stderr"), &n);
    assert_string_equal(text, "checkpoint 12 out/c/cycle-000000012 4 ms\n");
    free(text);
    ga_arena_close(&a);
}

static void quiet_and_ranks(void **state) {
    scratch *s = *state;
    struct stat st;
    ga_arena a = open_arena(2 * ga_log_bytes());
    ga_log *quiet, *second;
    assert_int_equal(ga_log_open(&quiet, NULL, true, 0, &a, NULL), 0);
    assert_int_equal(ga_log_open(&second, scratch_path(s, "rank1"), false, 1, &a, NULL), 0);
    int fd = open(scratch_path(s, "silent"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    with_stdout(fd, all_events, second);
    fstat(fd, &st);
    assert_int_equal(st.st_size, 0);
    with_stdout(fd, all_events, quiet);
    close(fd);
    size_t n;
    char *text = get_file(scratch_path(s, "silent"), &n);
    assert_true(strncmp(text, "iteration 3", 11) == 0 &&
                strchr(text, '\n')[1] == 0); /* --watch prints also when quiet */
    free(text);
    assert_int_not_equal(access(scratch_path(s, "rank1"), F_OK), 0);
    ga_err e;
    assert_int_equal(ga_log_open(&quiet, "/nowhere/x", true, 0, &a, &e), GA_INPUT);
    ga_log_close(second);
    ga_arena_close(&a);
}

static void many_updates(ga_log *l) {
    for (int i = 0; i < 5; i++) ga_log_update(l, &update);
}

static void lost_outputs(void **state) {
    scratch *s = *state;
    int pipes[2];
    size_t n;
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    assert_int_equal(ga_log_open(&l, "/dev/full", false, 0, &a, NULL), 0);
    assert_int_equal(pipe(pipes), 0);
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    int saved = dup(2), fd = open(scratch_path(s, "stderr"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    with_stdout(pipes[1], many_updates, l);
    dup2(saved, 2);
    close(saved);
    close(fd);
    close(pipes[1]);
    signal(SIGPIPE, SIG_DFL);
    char *text = get_file(scratch_path(s, "stderr"), &n);
    assert_string_equal(
        text, "log: /dev/full: a line was lost (No space left on device); training goes on\n"
              "log: stdout: a line was lost (Broken pipe); training goes on\n");
    free(text);
    ga_log_close(l);
    ga_arena_close(&a);
}

/* A file with something else in it stays as it is; a log with a line that was never finished goes on in a new line. */
static void old_files(void **state) {
    scratch *s = *state;
    ga_arena a = open_arena(4 * ga_log_bytes());
    ga_log *l;
    ga_err e;
    size_t n;
    static const char TORN[] = "{\"event\":\"start\"}\n{\"event\":\"upd";
    put_file(scratch_path(s, "spec.lua"), "batch (4)\n", 10);
    assert_int_equal(ga_log_open(&l, s->file, true, 0, &a, &e), GA_INPUT);
    assert_has(e.msg, "spec.lua: is there already and no log of a training program, expected a new file, or one that "
               "begins with {\"event\":\"");
    char *text = get_file(s->file, &n);
    assert_string_equal(text, "batch (4)\n");
    free(text);
    put_file(scratch_path(s, "empty"), "", 0);
    assert_int_equal(ga_log_open(&l, s->file, true, 0, &a, &e), 0);
    ga_log_close(l);
    put_file(scratch_path(s, "torn"), TORN, strlen(TORN));
    assert_int_equal(ga_log_open(&l, s->file, true, 0, &a, &e), 0);
    ga_log_update(l, &update);
    ga_log_close(l);
    text = get_file(s->file, &n);
    assert_has(text, "upd\n{\"event\":\"update\"");
    free(text);
    ga_arena_close(&a);
}

static int lines_in(const char *path) {
    size_t n;
    int lines = 0;
    char *text = get_file(path, &n);
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    free(text);
    return lines;
}

/* A log that is removed is there again with the next line, and all lines before it; without its folder this is said
 * once. */
static void removed_file(void **state) {
    scratch *s = *state;
    char folder[600], path[700];
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    ga_err e;
    size_t n;
    snprintf(folder, sizeof folder, "%s/run", s->path);
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    assert_int_equal(mkdir(folder, 0755), 0);
    int saved = dup(2), fd = open(scratch_path(s, "said"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    assert_int_equal(ga_log_open(&l, path, true, 0, &a, NULL), 0);
    many_updates(l);
    unlink(path);
    many_updates(l);
    const int again = lines_in(path), whole = ga_log_whole(l, &e);
    unlink(path);
    rmdir(folder);
    many_updates(l);
    dup2(saved, 2);
    close(saved);
    close(fd);
    assert_int_equal(again, 10);
    assert_int_equal(whole, 0);
    assert_int_equal(ga_log_whole(l, &e), GA_ENVIRONMENT);
    assert_has(e.msg, "log.jsonl: it could not be written whole");
    char *text = get_file(scratch_path(s, "said"), &n);
    assert_has(text, "log.jsonl: was removed and is written again\n");
    char *second = strstr(text, "log.jsonl: was removed and cannot be written again (No such file or directory)");
    assert_non_null(second);
    assert_null(strchr(strchr(second, '\n') + 1, '\n'));
    free(text);
    ga_log_close(l);
    ga_arena_close(&a);
}

/* Nobody can give standard output the name of the file that it is. */
static void removed_stdout(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "printed");
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    ga_err e;
    struct stat st;
    fflush(stdout);
    int saved = dup(1), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    unlink(path);
    const int opened = ga_log_open(&l, NULL, false, 0, &a, NULL);
    many_updates(l);
    dup2(saved, 1);
    close(saved);
    assert_int_equal(opened, 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > 100);
    assert_int_not_equal(access("stdout", F_OK), 0);
    assert_int_equal(ga_log_whole(l, &e), 0);
    close(fd);
    ga_log_close(l);
    ga_arena_close(&a);
}

static void watch_many(ga_log *l) {
    static double values[5000];
    ga_log_watch(l, 0, "w", values, GA_F64, 5000);
}

static void long_watch(void **state) {
    scratch *s = *state;
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    size_t n;
    assert_int_equal(ga_log_open(&l, NULL, false, 0, &a, NULL), 0);
    int fd = open(scratch_path(s, "watch"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    with_stdout(fd, watch_many, l);
    close(fd);
    char *text = get_file(scratch_path(s, "watch"), &n);
    assert_int_equal(n, strlen("iteration 0, first 5000 elements of w:") + 2 + 4999 * 3 + 1);
    free(text);
    ga_arena_close(&a);
}

static void text_never_overflows(void **state) {
    (void)state;
    char buffer[10];
    ga_text t = {.base = buffer, .size = sizeof buffer};
    ga_text_add(&t, "%s", "123456");
    ga_text_add(&t, "%s", "78901");
    assert_true(t.full && t.used == 6);
    assert_string_equal(buffer, "123456");
}

int test_log(void);
int test_log(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(events), cmocka_unit_test(quiet_and_ranks),
                                       cmocka_unit_test(lost_outputs), cmocka_unit_test(old_files),
                                       cmocka_unit_test(removed_file), cmocka_unit_test(removed_stdout),
                                       cmocka_unit_test(long_watch),
                                       cmocka_unit_test(text_never_overflows)};
    return cmocka_run_group_tests_name("log", tests, scratch_setup, scratch_teardown);
}
