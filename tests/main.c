/* main.c: runs every test of the project through cmocka, from the repository root.
 * usage: run [-K/N] [PATTERN]
 *   PATTERN               only tests whose name contains PATTERN (* and ? as in a shell), and those
 *                         of the C group of that name; a PATTERN that fits none is a failure
 *   -K/N                  the K-th of N processes that share the work, from 1; the first has the C groups
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
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GROUP(name) int test_##name(void);
#include "groups.h"
#undef GROUP

static const char *wanted = "";  /* the word of the command line */
static const char *filter = "*"; /* of the names of tests */
static size_t matched;           /* how many tests fit it */

/* Whether name fits a pattern of * (any characters), ? (one) and others that stand for themselves. */
static bool fits(const char *name, const char *pattern) {
    if (*pattern == '*') return fits(name, pattern + 1) || (*name && fits(name + 1, pattern));
    if (!*name || !*pattern) return *name == *pattern;
    return (*pattern == '?' || *pattern == *name) && fits(name + 1, pattern + 1);
}

/* The linker puts this in the place of cmocka's function (-Wl,--wrap): a group in which no test fits
 * the filter is left out, and the others are counted. */
int __real__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);
int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown);

int __wrap__cmocka_run_group_tests(const char *group, const struct CMUnitTest *tests, size_t n,
                                   CMFixtureFunction setup, CMFixtureFunction teardown) {
    const bool whole = strcmp(group, wanted) == 0;
    size_t here = 0;
    for (size_t i = 0; i < n; i++) here += whole || fits(tests[i].name, filter);
    matched += here;
    if (here == 0) return 0;
    cmocka_set_test_filter(whole ? NULL : filter);
    return __real__cmocka_run_group_tests(group, tests, n, setup, teardown);
}

int main(int argc, char **argv) {
    char pattern[256];
    int failures = 0, number = 1, count = 1;
    if (access("gen/host/host.h", R_OK) != 0) {
        fprintf(stderr, "%s: run it from the repository root\n", argv[0]);
        return 2;
    }
    if (argc > 1 && sscanf(argv[1], "-%d/%d", &number, &count) == 2) argv++, argc--;
    if (number < 1 || number > count) {
        fprintf(stderr, "part %d of %d: expected 1..%d\n", number, count, count);
        return 2;
    }
    if (argc > 1) {
        snprintf(pattern, sizeof pattern, strpbrk(argv[1], "*?") ? "%s" : "*%s*", argv[1]);
        filter = pattern;
        wanted = argv[1];
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
#define GROUP(name) if (number == 1) failures += test_##name() != 0;
#include "groups.h"
#undef GROUP
    int lua = ga_lua_tests(number, count);
    if (matched == 0 && count == 1) {
        fprintf(stderr, "no test has a name that fits '%s'\n", filter);
        return 1;
    }
    if (failures > 0) fprintf(stderr, "%d C group%s failed\n", failures, failures > 1 ? "s" : "");
    return failures > 0 || lua != 0;
}
