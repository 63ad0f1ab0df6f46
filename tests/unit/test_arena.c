/* Arenas: exact size, alignment, zero fill, the refusal of a plan that is too small; a child has none of them. */
#include "scratch.h"

#include <errno.h>
#include <sys/mman.h>

static void bump(void **state) {
    (void)state;
    ga_err e = {0};
    ga_arena a;
    assert_int_equal(ga_arena_open(&a, "small", 8192, &e), 0);
    char *one = ga_take(&a, 10, 64, &e), *two = ga_take(&a, 100, 64, &e);
    assert_ptr_equal(one, a.base);
    assert_ptr_equal(two, a.base + 64);
    assert_int_equal(a.used, 164);
    for (int i = 0; i < 8192; i++) assert_int_equal(a.base[i], 0);
    assert_non_null(ga_take(&a, 8192 - 192, 64, &e));
    assert_null(ga_take(&a, 1, 1, &e));
    assert_int_equal(e.code, GA_BUG);
    assert_has(e.msg, "arena small: plan too small");
    assert_null(ga_take(&a, SIZE_MAX, 64, &e));
    ga_arena_close(&a);
    ga_arena_close(&a);
    ga_arena_close(NULL);
}

/* Whether the kernel was asked for huge pages where this address lies: "hg" among the flags of its mapping. */
static bool asks_for_huge_pages(const char *address) {
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long from, to;
    bool inside = false, asks = false;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = from <= (uintptr_t)address && (uintptr_t)address < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0) asks = strstr(line, " hg") != NULL;
    }
    fclose(f);
    return asks;
}

static void huge_pages(void **state) {
    (void)state;
    ga_err e;
    ga_arena large, small;
    assert_int_equal(ga_arena_open(&large, "large", 8 << 20, &e), 0);
    assert_int_equal(ga_arena_open(&small, "small", 1 << 20, &e), 0);
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) assert_true(asks_for_huge_pages(large.base));
    assert_false(asks_for_huge_pages(small.base));
    for (int i = 0; i < 8 << 20; i += 4096) assert_int_equal(large.base[i], 0);
    ga_arena_close(&large);
    ga_arena_close(&small);
}

static void refused(void **state) {
    (void)state;
    ga_err e = {0};
    ga_arena a;
    assert_int_equal(ga_arena_open(&a, "odd", 100, &e), GA_BUG);
    assert_int_equal(ga_arena_open(&a, "none", 0, &e), 0);
    assert_null(ga_take(&a, 1, 1, &e));
    assert_int_equal(ga_arena_open(&a, "huge", (size_t)1 << 60, &e), GA_ENVIRONMENT);
    assert_has(e.msg, "arena huge");
    ga_arena_close(&a);
}

static void not_in_a_child(void **state) {
    (void)state;
    ga_err e = {0};
    ga_arena a;
    int status;
    assert_int_equal(ga_arena_open(&a, "parent", 8192, &e), 0);
    const pid_t child = fork();
    if (child == 0) _exit(msync(a.base, 8192, MS_ASYNC) == 0 || errno != ENOMEM);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ga_arena_close(&a);
}

static void errors(void **state) {
    (void)state;
    ga_err e;
    assert_int_equal(ga_fail(&e, GA_INPUT, "a\x1b[2J%d", 7), GA_INPUT);
    assert_string_equal(e.msg, "a?[2J7");
    ga_fail(&e, GA_INPUT, "again: %s", e.msg); /* an argument may point into e */
    assert_string_equal(e.msg, "again: a?[2J7");
    assert_int_equal(ga_fail(NULL, GA_BUG, "nobody listens"), GA_BUG);
}

int test_arena(void);
int test_arena(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bump), cmocka_unit_test(huge_pages), cmocka_unit_test(refused),
                                       cmocka_unit_test(not_in_a_child), cmocka_unit_test(errors)};
    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}
