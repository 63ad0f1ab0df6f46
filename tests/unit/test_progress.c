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

/* The output of body() on a terminal of 60 columns, in an environment without UTF-8. */
static void on_terminal(const char *kind, const char *out, char *text, size_t size, void (*body)(void)) {
    const struct winsize window = {.ws_row = 25, .ws_col = 60};
    char *before = getenv("TERM") ? strdup(getenv("TERM")) : NULL;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) || unlockpt(master)) skip();
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &window), 0);
    setenv("TERM", kind, 1);
    setenv("LC_ALL", "C", 1);
    with_stderr(slave, out, body);
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
    on_terminal("xterm", scratch_path(s, "stdout"), text, sizeof text, one_run);
    assert_string_equal(text, "\r\033[Kupdate  1/2  [#####-----] 50%  loss 2  64k rows/s  0s left"
                              "\r\033[Ktold\r\n"
                              "\r\033[Kupdate  2/2  [##########] 100%  loss 2  64k rows/s  lr 0"
                              "\r\n");
    char *lines = get_file(scratch_path(s, "stdout"), &n);
    assert_has(lines, "update 1/2 loss 2 lr 0.000e+00 rows/s 64000 skipped 0 t ");
    assert_has(lines, "\nupdate 2/2 ");
    free(lines);
    on_terminal("dumb", scratch_path(s, "stdout"), text, sizeof text, one_run);
    assert_string_equal(text, "told\r\n");
}

/* Rows of the curve from the top in which column x of signs is no space; x from 0. */
static unsigned rows_at(const char *text, int x) {
    unsigned rows = 0;
    for (int row = 0; row < GA_CURVE_ROWS; row++) {
        const char *end = strchr(text, '\n');
        assert_non_null(end);
        assert_int_equal(text[9], '|');
        if (end - text > 10 + x && text[10 + x] != ' ') rows |= 1u << row;
        text = end + 1;
    }
    assert_int_equal(*text, 0);
    return rows;
}

static void curve(void **state) {
    (void)state;
    static ga_curve c;
    char text[GA_CURVE_TEXT];
    ga_curve_text(text, &c, 80, false);
    assert_string_equal(text, "");
    ga_curve_add(&c, NAN);
    ga_curve_text(text, &c, 80, false);
    assert_string_equal(text, "");
    c = (ga_curve){0};
    for (int i = 0; i < 8; i++) ga_curve_add(&c, 8 - i);
    ga_curve_text(text, &c, 75, false); /* 64 signs of two dots: a value at each 18th dot */
    assert_has(text, "        8|*");
    assert_has(text, "        1|  ");
    assert_int_equal(rows_at(text, 0) & 1, 1);
    assert_int_equal(rows_at(text, 63), 1u << (GA_CURVE_ROWS - 1));
    ga_curve_text(text, &c, 75, true);
    assert_has(text, "        8|\xe2\xa0"); /* U+2800 and above */
    ga_curve_text(text, &c, 15, false);
    assert_string_equal(text, "");
    for (int columns = 16; columns < 300; columns++) {
        ga_curve_text(text, &c, columns, false);
        for (const char *at = text; *at; at = strchr(at, '\n') + 1)
            assert_true(strcspn(at, "\n") < (size_t)columns);
    }
}

/* A long run: no peak is lost, and a stretch that is not finite stays a gap. */
static void long_curve(void **state) {
    (void)state;
    static ga_curve c;
    char text[GA_CURVE_TEXT];
    c = (ga_curve){0};
    for (int i = 0; i < 100000; i++) ga_curve_add(&c, i == 70123 ? 9 : i >= 20000 && i < 40000 ? NAN : 1);
    assert_true(c.count <= GA_CURVE_BINS);
    int64_t values = 0;
    for (int i = 0; i < c.count; i++) values += i + 1 < c.count ? c.each : c.inside;
    assert_int_equal(values, 100000);
    ga_curve_text(text, &c, 111, false); /* 100 signs */
    assert_has(text, "        9|");
    unsigned peaks = 0, gaps = 0;
    for (int x = 0; x < 100; x++) {
        peaks += rows_at(text, x) & 1;
        gaps += rows_at(text, x) == 0;
    }
    assert_in_range(peaks, 1, 2);
    assert_in_range(gaps, 18, 22);
}

static void one_plot(void) {
    ga_arena a = open_arena(ga_log_bytes());
    ga_log *l;
    assert_int_equal(ga_log_open(&l, NULL, false, 0, &a, NULL), 0);
    ga_log_plot(l);
    ga_update_event v = {.cycle = 1, .cycles = 2, .rows = 64, .loss = 2, .ms = 1, .rows_per_s = 64000};
    ga_log_update(l, &v);
    ga_say("told");
    v.cycle = 2;
    v.loss = 1;
    ga_log_update(l, &v);
    ga_log_end(l, 2, 2, 0, "done");
    ga_log_close(l);
    ga_arena_close(&a);
}

static void plotted(void **state) {
    scratch *s = *state;
    char text[8192];
    on_terminal("xterm", scratch_path(s, "stdout"), text, sizeof text, one_plot);
    assert_has(text, "\r\033[K        2|*\r\n");
    assert_has(text, "        2|\r\nupdate  1/2  [#####-----] 50%  loss 2  64k rows/s  0s left\r\033[K\033[A\033[K\033[A\033[K"
                     "\033[A\033[K\033[A\033[K\033[A\033[K\033[A\033[K\033[A\033[K\033[A\033[Ktold\r\n\r\033[K        2|*");
    assert_has(text, "        1|");
    on_terminal("dumb", scratch_path(s, "stdout"), text, sizeof text, one_plot);
    assert_string_equal(text, "--plot: standard error is no terminal that moves its cursor: no curve is drawn\r\ntold\r\n");
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
                                       cmocka_unit_test(on_a_terminal), cmocka_unit_test(curve),
                                       cmocka_unit_test(long_curve), cmocka_unit_test(plotted),
                                       cmocka_unit_test(in_a_file)};
    return cmocka_run_group_tests_name("progress", tests, scratch_setup, scratch_teardown);
}
