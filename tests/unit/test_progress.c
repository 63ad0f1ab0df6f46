/* The progress line: its columns at every width, units and times; on a pseudo-terminal between other
 * lines; no line if stderr is a file. */
#define _GNU_SOURCE
#include "scratch.h"

#include "log/log.h"
#include "log/progress.h"

#include <math.h>
#include <sys/ioctl.h>

static const ga_progress_event event = {.cycle = 1204,
                                        .cycles = 10000,
                                        .loss = 4.1184,
                                        .lr = 6e-4,
                                        .grad_norm = 0.71,
                                        .ms = 1000,
                                        .amount = 498112,
                                        .unit = "tok"};

static void columns(void **state) {
    (void)state;
    const ga_progress p = {.shown = true, .first = 204, .begun = 100, .ms = 1000};
    char text[512];
    ga_progress_text(text, sizeof text, 200, &p, &event, 1100); /* 1,000 cycles in 1,000 s */
    assert_has(text, "update  1,204/10,000  [##------------------] 12%  loss 4.118  498k tok/s  "
                     "2h 26m left  lr 0.0006  |g| 0.71  ");
    assert_has(text, "B  (");
    for (int width = 1; width < 200; width++) {
        ga_progress_text(text, sizeof text, width, &p, &event, 1100);
        assert_true(strlen(text) < (size_t)width);
    }
    ga_progress_text(text, sizeof text, 80, &p, &event, 1100);
    assert_string_equal(
        text, "update  1,204/10,000  [#---------] 12%  loss 4.118  498k tok/s  2h 26m left");
    ga_progress_text(text, sizeof text, 30, &p, &event, 1100);
    assert_string_equal(text, "update  1,204/10,000");
}

static void units(void **state) {
    (void)state;
    static const struct {
        double amount, seconds;
        const char *speed, *left;
    } cases[] = {
        {0, 0.4, "  0 tok/s  ", "  0s left"},
        {999.4, 59.9, "  999 tok/s  ", "  59s left"},
        {999.6, 60, "  1k tok/s  ", "  1m left"},
        {51234, 3599, "  51.2k tok/s  ", "  59m left"},
        {1.254e6, 3600, "  1.25M tok/s  ", "  1h 0m left"},
        {2.5e9, 86400 * 2 + 3600 * 4, "  2.5G tok/s  ", "  2d 4h left"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        const ga_progress p = {.shown = true, .first = 0, .begun = 0, .ms = 1000};
        ga_progress_event v = event;
        v.cycle = 1;
        v.cycles = 2;
        v.amount = cases[i].amount;
        v.loss = -NAN;
        ga_progress_text(text, sizeof text, 120, &p, &v, cases[i].seconds);
        assert_has(text, cases[i].speed);
        assert_has(text, cases[i].left);
        assert_has(text, "update  1/2  [##########----------] 50%  loss nan  ");
    }
}

static void one_run(void) {
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    assert_int_equal(ga_log_open(&l, NULL, false, 0, &a, NULL), 0);
    ga_update_event v = {.cycle = 1, .cycles = 2, .rows = 64, .loss = 2, .ms = 1, .rows_per_s = 64000};
    ga_log_update(l, &v);
    ga_say("told");
    v.cycle = 2;
    ga_log_update(l, &v);
    ga_log_end(l, 2, 2, 0, "done");
    ga_log_close(l);
    ga_arena_close(&a);
}

/* Calls one_run with stderr redirected to fd and stdout to a file. */
static void with_stderr(int fd, const char *out, void (*body)(void)) {
    fflush(stdout);
    int saved[2] = {dup(1), dup(2)}, file = open(out, O_RDWR | O_CREAT | O_TRUNC, 0644);
    dup2(file, 1);
    dup2(fd, 2);
    body();
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    close(file);
    close(saved[0]);
    close(saved[1]);
}

/* The output of one_run on a terminal of 60 columns. */
static void on_terminal(const char *kind, const char *out, char *text, size_t size) {
    const struct winsize window = {.ws_row = 25, .ws_col = 60};
    char *before = getenv("TERM") ? strdup(getenv("TERM")) : NULL;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) skip();
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &window), 0);
    setenv("TERM", kind, 1);
    with_stderr(slave, out, one_run);
    close(slave);
    size_t used = 0;
    for (ssize_t n = 1; n > 0; used += (size_t)(n > 0 ? n : 0))
        n = read(master, text + used, size - 1 - used); /* fails at the end */
    text[used] = 0;
    close(master);
    if (before)
        setenv("TERM", before, 1);
    else
        unsetenv("TERM");
    free(before);
}

static void on_a_terminal(void **state) {
    scratch *s = *state;
    char text[4096];
    size_t n;
    on_terminal("xterm", scratch_path(s, "stdout"), text, sizeof text);
    assert_string_equal(text, "\r\033[Kupdate  1/2  [#####-----] 50%  loss 2  64k rows/s  0s left"
                              "\r\033[Ktold\r\n"
                              "\r\033[Kupdate  2/2  [##########] 100%  loss 2  64k rows/s  lr 0"
                              "\r\n");
    char *lines = get_file(scratch_path(s, "stdout"), &n);
    assert_has(lines, "update 1/2 loss 2 lr 0.000e+00 rows/s 64000 skipped 0 t ");
    assert_has(lines, "\nupdate 2/2 ");
    free(lines);
    on_terminal("dumb", scratch_path(s, "stdout"), text, sizeof text);
    assert_string_equal(text, "told\r\n");
}

static void in_a_file(void **state) {
    scratch *s = *state;
    size_t n;
    char stdout_path[1100];
    snprintf(stdout_path, sizeof stdout_path, "%s", scratch_path(s, "out"));
    int fd = open(scratch_path(s, "stderr"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    with_stderr(fd, stdout_path, one_run);
    close(fd);
    char *text = get_file(scratch_path(s, "stderr"), &n);
    assert_string_equal(text, "told\n");
    free(text);
}

int test_progress(void);
int test_progress(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns), cmocka_unit_test(units),
                                       cmocka_unit_test(on_a_terminal),
                                       cmocka_unit_test(in_a_file)};
    return cmocka_run_group_tests_name("progress", tests, scratch_setup, scratch_teardown);
}
