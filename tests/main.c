/* main.c: runs every test of the project through cmocka, from the repository root.
 * usage: run [-jN] [PATTERN...]
 *   PATTERN               only tests whose name contains a PATTERN (* and ? as in a shell), and those
 *                         of the C group of that name; no test that fits is a failure
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

static char **wanted; /* the words of the command line, then NULL */
static bool matched;  /* a test of the group that ran last fits one */

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

/* Whether a word of the command line is part of the name, or fits it as a pattern. */
static bool fits_one(const char *name) {
    for (char **word = wanted; *word; word++)
        if (strpbrk(*word, "*?") ? fits(name, *word) : strstr(name, *word) != NULL) return true;
    return !*wanted;
}

/* Whether a word of the command line is the name of a group. */
static bool names_group(const char *group) {
    for (char **word = wanted; *word; word++)
        if (strcmp(group, *word) == 0) return true;
    return false;
}

/* The linker puts this in the place of cmocka's function (-Wl,--wrap): a group in which no test fits
 * the filter is left out. */
int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    struct CMUnitTest *chosen = calloc(n, sizeof *chosen);
    size_t here = 0;
    if (!chosen) abort();
    for (size_t i = 0; i < n; i++)
        if (names_group(group) || fits_one(tests[i].name)) chosen[here++] = tests[i];
    matched = here > 0;
    const int failed = matched ? __real__cmocka_run_group_tests(group, chosen, here, setup, teardown) : 0;
    free(chosen);
    return failed;
}

static int run_c_group(const void *what) {
    const c_group *group = what;
    const ga_time begin = ga_workers_now();
    const int failures = group->run();
    if (matched) ga_workers_took(group->name, begin);
    return failures;
}

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
    ga_lua_tasks(&list, fits_one);
    return list;
}

int main(int argc, char **argv) {
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
    wanted = argv + 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    ga_workers_open(GA_TEST_BUILD "/tests/seconds");
    ga_tasks list = all_tasks();
    const int failed = ga_workers_run(&list, count);
    if (ga_workers_report() == 0) {
        fprintf(stderr, "no test has a name that fits '%s'\n", *wanted ? *wanted : "*");
        return 1;
    }
    if (failed > 0) fprintf(stderr, "%d group%s of tests failed\n", failed, failed > 1 ? "s" : "");
    return failed > 0;
}
