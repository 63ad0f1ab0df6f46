/* main.c: runs every test of the project through cmocka, from the repository root.
 * usage: run [PATTERN]    only tests whose name contains PATTERN (* and ? as in a shell)
 * A C group is a function `int test_NAME(void)` in tests/unit/test_NAME.c that runs one cmocka
 * group and returns its failures; groups.h is made by the Makefile from the names of these files. A
 * Lua test is an entry of the array that tests/lua/test_NAME.lua returns (lua_tests.c). */
#include "lua_tests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GROUP(name) int test_##name(void);
#include "groups.h"
#undef GROUP

int main(int argc, char **argv) {
    char filter[256];
    int failures = 0;
    if (access("gen/host/host.h", R_OK) != 0) {
        fprintf(stderr, "%s: run it from the repository root\n", argv[0]);
        return 2;
    }
    if (argc > 1) {
        snprintf(filter, sizeof filter, strpbrk(argv[1], "*?") ? "%s" : "*%s*", argv[1]);
        cmocka_set_test_filter(filter);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
#define GROUP(name) failures += test_##name() != 0;
#include "groups.h"
#undef GROUP
    int lua = ga_lua_tests();
    if (failures > 0) fprintf(stderr, "%d C group%s failed\n", failures, failures > 1 ? "s" : "");
    return failures > 0 || lua != 0;
}
