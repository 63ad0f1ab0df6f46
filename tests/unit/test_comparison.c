/* The same work in two children: verdicts by type at their edges, places, equal inputs of later calls, crashes; the
 * process that asks keeps its memory. */
#include "scratch.h"

#include "log/comparison.h"

#include <math.h>
#include <signal.h>

static const ga_param MATRIX = {"h.%d.w", 4, 2, 2, {3, 4}, 0, 12, 12}, TRIPLE = {"b", 0, 1, 1, {3}, 0, 3, 3};

typedef struct {
    ga_arena *arena;
    ga_dtype type;
    double values[3], changed[3]; /* of `b`, by the kernels in use and by the edited ones */
} one_call;

static void see(ga_comparison *c, const char *kernel, const ga_param *tensor, int l, ga_dtype type, void *values) {
    ga_compare_call(c, kernel);
    ga_compare_see(c, &(ga_compared){kernel, "spec.lua:1", tensor, l, "", type, values});
}

static int call_once(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    (void)e;
    const one_call *x = arg;
    const double *values = edited ? x->changed : x->values;
    char *base = x->arena->base;
    for (int i = 0; i < 3; i++) {
        if (x->type == GA_I32) ((int32_t *)base)[i] = (int32_t)values[i];
        else if (x->type == GA_F16) ((_Float16 *)base)[i] = (_Float16)values[i];
        else ga_set(base, x->type, i, values[i]);
    }
    see(c, "k", &TRIPLE, 0, x->type, base);
    return 0;
}

typedef int work(void *arg, ga_comparison *c, bool edited, ga_err *e);

static ga_found compare(ga_arena *arena, work *run, void *arg, ga_dtype real) {
    ga_found found;
    ga_err e;
    const ga_comparing job = {.run = run, .arg = arg, .arenas = arena, .arena_count = 1, .real = real};
    if (ga_compare(&found, &job, &e) < 0) fail_msg("%s", e.msg);
    return found;
}

static void verdicts_of_types(void **state) {
    (void)state;
    ga_arena arena = open_arena(4096);
    static const struct {
        ga_dtype type, real;
        double values[3], changed; /* of element 1 */
        ga_verdict verdict;
    } table[] = {
        {GA_F32, GA_F32, {-4, 1, 2}, 1, GA_EQUAL},
        {GA_F32, GA_F32, {-4, 1, 2}, 1 + 0x1p-14, GA_ROUNDED}, /* 2^-16 of 4 */
        {GA_F32, GA_F32, {-4, 1, 2}, 1 + 0x1.01p-14, GA_DIFFERS},
        {GA_F32, GA_F32, {-1, 0.25, 1}, 0.25 + 0x1p-15, GA_DIFFERS},
        {GA_F32, GA_F32, {INFINITY, 1, 1}, 1 + 0x1p-15, GA_DIFFERS}, /* what is not finite is no magnitude */
        {GA_F32, GA_F32, {1, NAN, 1}, NAN, GA_EQUAL},
        {GA_F32, GA_F32, {1, 1, 1}, NAN, GA_DIFFERS},
        {GA_F32, GA_F32, {1, NAN, 1}, 1, GA_DIFFERS},
        {GA_F32, GA_F32, {1, INFINITY, 1}, -INFINITY, GA_DIFFERS},
        {GA_F32, GA_F32, {1, 0.0, 1}, -0.0, GA_EQUAL},
        {GA_F64, GA_F64, {4, 1, 2}, 1 + 0x1p-38, GA_ROUNDED},
        {GA_F64, GA_F64, {4, 1, 2}, 1 + 0x1.01p-38, GA_DIFFERS},
        {GA_F64, GA_F32, {4, 1, 2}, 1 + 0x1p-14, GA_ROUNDED}, /* a sum in double of an f32 program */
        {GA_BF16, GA_F32, {1, 1, 1}, 1 + 0x1p-7, GA_ROUNDED},
        {GA_BF16, GA_F32, {1, 1, 1}, 1 + 0x1p-6, GA_DIFFERS},
        {GA_F16, GA_F32, {1, 1, 1}, 1 + 0x1p-10, GA_ROUNDED},
        {GA_F16, GA_F32, {1, 1, 1}, 1 + 0x1p-9, GA_DIFFERS},
        {GA_I32, GA_F32, {1000000, 7, 1}, 8, GA_DIFFERS},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        one_call x = {.arena = &arena, .type = table[i].type};
        memcpy(x.values, table[i].values, sizeof x.values);
        memcpy(x.changed, table[i].values, sizeof x.changed);
        x.changed[1] = table[i].changed;
        memset(arena.base, 77, 64);
        const ga_found f = compare(&arena, call_once, &x, table[i].real);
        if (f.verdict != table[i].verdict) fail_msg("row %zu: verdict %d", i, f.verdict);
        if (f.verdict != GA_EQUAL) assert_int_equal(f.element, 1);
        for (int k = 0; k < 64; k++) assert_int_equal(arena.base[k], 77);
    }
    ga_arena_close(&arena);
}

/* Three calls: the second is off by rounding, the third writes ten times what the second wrote. */
static int three_calls(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    (void)e;
    float *x = arg;
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    see(c, "first", &MATRIX, 0, GA_F32, x);
    for (int i = 0; i < 12; i++) x[12 + i] = 1 + x[i] + (edited && i == 6 ? 0x1p-15f : 0);
    see(c, "second", &MATRIX, 1, GA_F32, x + 12);
    for (int i = 0; i < 12; i++) x[i] = 10 * x[12 + i];
    see(c, "third", &MATRIX, 0, GA_F32, x);
    return 0;
}

static void places_and_equal_inputs(void **state) {
    (void)state;
    ga_arena arena = open_arena(4096);
    char place[GA_NAME_MAX + 128];
    const ga_found f = compare(&arena, three_calls, arena.base, GA_F32);
    assert_int_equal(f.verdict, GA_ROUNDED);
    assert_int_equal(f.rounded, 1); /* the third had equal inputs */
    assert_string_equal(f.what.kernel, "second");
    assert_string_equal(ga_found_place(&f, place), "h.5.w[1, 2]");
    assert_true(f.before == 7 && f.after == 7 + 0x1p-15 && f.most == 12 * 0x1p-16);
    ga_arena_close(&arena);
}

static int crash(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    (void)e;
    see(c, "first", &TRIPLE, 0, GA_F32, arg);
    ga_compare_call(c, "second");
    if (!edited) return 0;
    signal(SIGSEGV, SIG_DFL); /* cmocka has a handler */
    raise(SIGSEGV);
    return 0;
}

static int other_calls(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    (void)e;
    see(c, "first", edited ? &TRIPLE : &MATRIX, 0, GA_F32, arg);
    return 0;
}

static int fewer_calls(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    if (edited) see(c, "first", &TRIPLE, 0, GA_F32, arg);
    return ga_fail(e, GA_INPUT, "not reached with the edited kernels");
}

static int no_call(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    (void)arg, (void)c;
    return edited ? ga_fail(e, GA_INPUT, "a reason") : 0;
}

static void ended_children(void **state) {
    (void)state;
    ga_arena arena = open_arena(4096);
    static const struct {
        work *run;
        const char *reason;
    } table[] = {{crash, "Segmentation fault in second"},
                 {other_calls, "the calls of kernels are other ones: was step.c edited too?"},
                 {fewer_calls, "the child with the kernels in use has ended"},
                 {no_call, "a reason"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const ga_found f = compare(&arena, table[i].run, arena.base, GA_F32);
        assert_int_equal(f.verdict, GA_ENDED);
        assert_string_equal(f.reason, table[i].reason);
    }
    ga_arena_close(&arena);
}

int test_comparison(void);
int test_comparison(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts_of_types),
                                       cmocka_unit_test(places_and_equal_inputs), cmocka_unit_test(ended_children)};
    return cmocka_run_group_tests_name("comparison", tests, NULL, NULL);
}
