/* The command line: values, the table of refusals, data paths; the stop flag. */
#include "scratch.h"

#include "log/options.h"
#include "loop/stop.h"

#include <signal.h>

static int parse(ga_options *o, ga_err *e, const char *text) {
    static char line[256];
    char *argv[16] = {"train"};
    int argc = 1;
    snprintf(line, sizeof line, "%s", text);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
    return ga_options_parse(o, argc, argv, e);
}

static void values(void **state) {
    (void)state;
    ga_options o;
    ga_err e;
    assert_int_equal(parse(&o, &e, ""), 0);
    assert_true(o.seed == -1 && o.cycles == 0 && !o.data && !o.quiet && o.threads == 0);
    assert_int_equal(
        parse(&o, &e,
              "--cycles 10 --data d --checkpoint=c --resume latest --stop-micro 7 --log l"),
        0);
    assert_int_equal(o.cycles, 10);
    assert_string_equal(o.data, "d");
    assert_string_equal(o.checkpoint, "c");
    assert_string_equal(o.resume, "latest");
    assert_true(o.stop_micro == 7 && !o.eval && !o.help);
    assert_int_equal(parse(&o, &e, "--eval --resume latest --checkpoint c --seed 3 --save-init s"), 0);
    assert_true(o.eval && o.seed == 3);
    assert_int_equal(
        parse(&o, &e, "--watch fc1.weight:6 --threads 4 --seed 9223372036854775807 --quiet"), 0);
    assert_int_equal(o.watch_length, 10);
    assert_int_equal(o.watch_count, 6);
    assert_int_equal(o.threads, 4);
    assert_true(o.seed == INT64_MAX && o.quiet);
    assert_int_equal(parse(&o, &e, "--watch w --dump d --save-init s --stop-micro 7 -h"), 0);
    assert_int_equal(o.watch_count, 1);
    assert_int_equal(o.stop_micro, 7);
    assert_true(o.help);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } table[] = {
        {"--cycle 3", "--cycle: unknown option, did you mean --cycles?"},
        {"--chekpoint x", "did you mean --checkpoint?"},
        {"--qqqq", "--qqqq: unknown option; --help lists all"},
        {"--cycles 1e30",
         "--cycles: '1e30' found, a whole number from 1 to 9223372036854775807 expected"},
        {"--cycles 0", "--cycles: '0' found"},
        {"--cycles -1", "--cycles: '-1' found"},
        {"--cycles 9223372036854775808", "--cycles: '9223372036854775808' found"},
        {"--threads 0", "--threads: '0' found, a whole number from 1 to 1024 expected"},
        {"--threads 1025", "--threads"},
        {"--threads 4x", "--threads: '4x' found"},
        {"--cycles", "--cycles: no value, N expected"},
        {"--cycles --quiet", "--cycles: no value"},
        {"--data=", "--data: empty value, DIR expected"},
        {"--quiet --quiet", "--quiet: given twice"},
        {"--quiet=1", "--quiet: takes no value"},
        {"--watch :3", "--watch: ':3' found"},
        {"--watch w:0", "PARAM or PARAM:N with N from 1 to 1000000"},
        {"--overfit 0", "--overfit: '0' found, a whole number from 1 to"},
        {"--plot --quiet", "--plot: given beside --quiet, which shows no progress"},
        {"--sample 3 --plot", "--plot: given beside --sample, which does not train"},
        {"--predict a", "--predict: given without --out, expected both"},
        {"--out a.npy", "--out: given without --predict, expected both"},
        {"--save-weights w --eval", "--save-weights: given beside --eval, one of the two expected"},
        {"--overfit 2 --eval", "--overfit: given beside --eval, which does not train"},
        {"--overfit 2 --resume latest", "--overfit: given beside --resume, but a run of a few micro-batches has no"},
        {"--checkpoint c --overfit 2", "--overfit: given beside --checkpoint, but"},
        {"--init i --resume latest", "--init: given beside --resume, which has parameters of its own"},
        {"--eval --cycles 3", "--cycles: given beside --eval, which does not train"},
        {"--predict a --out b.npy --seed 3", "--seed: given beside --predict, which draws nothing"},
        {"--save-weights w --profile", "--profile: given beside --save-weights, which runs no kernel"},
        {"--offline sm_90a --threads 2", "--threads: given beside --offline, which only compiles kernels"},
        {"more", "'more': not an option"},
        {"--", "'--': not an option"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_options o;
        ga_err e = {0};
        assert_int_equal(parse(&o, &e, table[i].line), GA_INPUT);
        assert_has(e.msg, table[i].says);
    }
}

static void data_path(void **state) {
    scratch *s = *state;
    char out[600], option[300], program[300], folder[600];
    ga_err e;
    snprintf(option, sizeof option, "%s/option", s->path);
    snprintf(program, sizeof program, "%s/program", s->path);
    snprintf(folder, sizeof folder, "%s/data", program);
    assert_int_equal(mkdir(option, 0755) | mkdir(program, 0755) | mkdir(folder, 0755), 0);
    put_file(scratch_path(s, "program/data/x.csv"), "1", 1);
    unsetenv("GAGEN_DATA");
    assert_int_equal(ga_data_path(out, sizeof out, NULL, program, "x.csv", &e), 0);
    assert_string_equal(out, s->file);
    setenv("GAGEN_DATA", s->path, 1);
    put_file(scratch_path(s, "x.csv"), "1", 1);
    assert_int_equal(ga_data_path(out, sizeof out, NULL, program, "x.csv", &e), 0);
    assert_string_equal(out, s->file);
    /* with --data no other folder is searched */
    assert_int_equal(ga_data_path(out, sizeof out, option, program, "x.csv", &e), GA_INPUT);
    assert_has(e.msg, "/option: has no file x.csv");
    put_file(scratch_path(s, "option/x.csv"), "1", 1);
    assert_int_equal(ga_data_path(out, sizeof out, option, program, "x.csv", &e), 0);
    assert_string_equal(out, s->file);
    assert_int_equal(ga_data_path(out, sizeof out, NULL, program, "none.csv", &e), GA_INPUT);
    assert_has(e.msg, "none.csv: data file not found under GAGEN_DATA (");
    assert_int_equal(ga_data_path(out, 10, option, program, "x.csv", &e), GA_INPUT);
    assert_int_equal(ga_program_folder(out, sizeof out, &e), 0);
    assert_true(out[0] == '/');
}

static void stop(void **state) {
    (void)state;
    int status;
    assert_int_equal(ga_stop_open(NULL), 0);
    assert_int_equal(ga_stop_requested(), 0);
    raise(SIGPIPE); /* ignored */
    raise(SIGUSR1);
    assert_int_equal(ga_stop_requested(), SIGUSR1);
    raise(SIGTERM);
    assert_int_equal(ga_stop_requested(), SIGTERM);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGINT);
        if (ga_stop_requested() != SIGINT) _exit(1);
        raise(SIGINT);
        _exit(2); /* not reached */
    }
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE};
    for (int i = 0; i < 5; i++) signal(numbers[i], SIG_DFL);
}

int test_options(void);
int test_options(void) {
    char *folder = getenv("GAGEN_DATA"), *kept = folder ? strdup(folder) : NULL;
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(refusals),
                                       cmocka_unit_test(data_path), cmocka_unit_test(stop)};
    int failed = cmocka_run_group_tests_name("options", tests, scratch_setup, scratch_teardown);
    if (kept)
        setenv("GAGEN_DATA", kept, 1);
    else
        unsetenv("GAGEN_DATA");
    free(kept);
    return failed;
}
