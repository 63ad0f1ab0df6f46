/* main.c: runs every test of the project through cmocka, from the repository root.
 * usage: run [-jN] [PATTERN]
 *   PATTERN               only tests whose name contains PATTERN (* and ? as in a shell), and those
 *                         of the C group of that name; a PATTERN that fits none is a failure
 *   -jN                   N processes share the work (1)
 * A C group is a function `int test_NAME(void)` in tests/unit/test_NAME.c that runs one cmocka
 * group and returns its failures; groups.h is made by the Makefile from the names of these files. A
 * Lua test is an entry of the array that tests/lua/test_NAME.lua returns (lua_tests.c). */
#include "lua_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GROUP(name) int test_##name(void);
#include "groups.h"
#undef GROUP

static const char *wanted = "";  /* the word of the command line */
static const char *filter = "*"; /* of the names of tests */
static bool matched;             /* a test of the group that ran last fits it */

typedef struct {
    const char *name; /* as ga_workers_took has it */
    int (*run)(void);
} c_group;

/* Whether name fits a pattern of * (any characters), ? (one) and others that stand for themselves. */
static bool fits(const char *name, const char *pattern) {
    if (*pattern == '*') return fits(name, pattern + 1) || (*name && fits(name + 1, pattern));
    if (!*name || !*pattern) return *name == *pattern;
    return (*pattern == '?' || *pattern == *name) && fits(name + 1, pattern + 1);
}

/* The linker puts this in the place of cmocka's function (-Wl,--wrap): a group in which no test fits
 * the filter is left out. */
int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    const bool whole = strcmp(group, wanted) == 0;
    size_t here = 0;
    for (size_t i = 0; i < n; i++) here += whole || fits(tests[i].name, filter);
    matched = here > 0;
    if (!matched) return 0;
    cmocka_set_test_filter(whole ? NULL : filter);
    return __real__cmocka_run_group_tests(group, tests, n, setup, teardown);
}

static int run_c_group(const void *what) {
    const c_group *group = what;
    const ga_time begin = ga_workers_now();
    const int failures = group->run();
    if (matched) ga_workers_took(group->name, begin);
    return failures;
}

static bool fits_filter(const char *name) { return fits(name, filter); }

/* Every C group, and the Lua tests that fit. */
static ga_tasks all_tasks(void) {
#define GROUP(name) { "unit/test_" #name, test_##name },
    static const c_group groups[] = {
#include "groups.h"
    };
#undef GROUP
    ga_tasks list = { .count = sizeof groups / sizeof *groups };
    list.tasks = calloc(list.count, sizeof *list.tasks);
    if (!list.tasks) abort();
    for (size_t i = 0; i < list.count; i++)
        list.tasks[i] = (ga_task){ run_c_group, &groups[i], ga_workers_expected(groups[i].name, 1) };
    ga_lua_tasks(&list, fits_filter);
    return list;
}

int main(int argc, char **argv) {
    char pattern[256];
    int count = 1;
    if (access("gen/host/host.h", R_OK) != 0) {
        fprintf(stderr, "%s: run it from the repository root\n", argv[0]);
        return 2;
    }
    if (argc > 1 && sscanf(argv[1], "-j%d", &count) == 1) argv++, argc--;
    if (count < 1 || count > 64) {
        fprintf(stderr, "-j%d: expected 1..64\n", count);
        return 2;
    }
    if (argc > 1) {
        snprintf(pattern, sizeof pattern, strpbrk(argv[1], "*?") ? "%s" : "*%s*", argv[1]);
        filter = pattern;
        wanted = argv[1];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    ga_workers_open(GA_TEST_BUILD "/tests/seconds");
    ga_tasks list = all_tasks();
    const int failed = ga_workers_run(&list, count);
    if (ga_workers_report() == 0) {
        fprintf(stderr, "no test has a name that fits '%s'\n", filter);
        return 1;
    }
    if (failed > 0) fprintf(stderr, "%d group%s of tests failed\n", failed, failed > 1 ? "s" : "");
    return failed > 0;
}
