/* Roles and counters, and the table for 10 micro-batches, accumulation 4, 2 epochs, per tail
 * policy. */
#include "scratch.h"

#include "../../runtime/cycle.h"

typedef enum { DROP, FLUSH, CARRY } policy;

typedef struct {
    int updates, used, shortest, roles[4];
} outcome;

static void boundary(ga_cycle *c, outcome *o) {
    if (c->r < o->shortest) o->shortest = c->r;
    assert_int_equal(ga_cycle_commit(c, true, NULL), 0);
}

static outcome train(policy tail) {
    ga_cycle c = {.a = 4};
    outcome o = {.shortest = 4};
    for (int epoch = 0; epoch < 2; epoch++)
        for (int batch = 0; batch < 10; batch++) {
            int total = tail == FLUSH && batch >= 8 ? 2 : 4;
            if (tail == DROP && batch >= 8) continue;
            o.roles[ga_cycle_role(&c, total)]++;
            assert_int_equal(ga_cycle_micro_done(&c, NULL), 0);
            o.used++;
            if (ga_cycle_boundary(&c) || c.r == total) boundary(&c, &o);
        }
    o.updates = (int)c.update;
    assert_int_equal(c.micro, o.used);
    assert_int_equal(c.cycle, c.update + c.skipped);
    return o;
}

static void tails(void **state) {
    (void)state;
    static const struct {
        policy tail;
        outcome expect;
    } table[] = {
        {DROP, {4, 16, 4, {0, 4, 8, 4}}},
        {FLUSH, {6, 20, 2, {0, 6, 8, 6}}},
        {CARRY, {5, 20, 4, {0, 5, 10, 5}}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        outcome o = train(table[i].tail);
        assert_memory_equal(&o, &table[i].expect, sizeof o);
    }
}

static void roles(void **state) {
    (void)state;
    ga_cycle c = {.a = 4};
    assert_int_equal(ga_cycle_role(&c, 1), GA_ONLY);
    static const ga_role expect[] = {GA_FIRST, GA_NEXT, GA_NEXT, GA_LAST};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(ga_cycle_role(&c, 4), expect[k]);
        assert_false(ga_cycle_boundary(&c));
        ga_cycle_micro_done(&c, NULL);
    }
    assert_true(ga_cycle_boundary(&c));
    ga_err e;
    assert_int_equal(ga_cycle_micro_done(&c, &e), GA_INPUT);
    assert_string_equal(e.msg, "4 of 4 micro-steps accumulated: call step");
    assert_int_equal(c.micro, 4);
}

static void skips(void **state) {
    (void)state;
    ga_cycle c = {.a = 1};
    ga_err e;
    for (int k = 1; k <= 120; k++) {
        ga_cycle_micro_done(&c, NULL);
        bool applied = k == 50; /* 49 skips, an update, 50 skips */
        int code = ga_cycle_commit(&c, applied, &e);
        assert_int_equal(code, k == 100 ? GA_NONFINITE : 0);
        if (code < 0) break;
    }
    assert_int_equal(c.cycle, 100);
    assert_int_equal(c.update, 1);
    assert_int_equal(c.skipped, 99);
    assert_has(e.msg, "50 updates in a row");
    assert_int_equal(ga_cycle_commit(&c, true, &e), GA_BUG);
}

static void discard(void **state) {
    (void)state;
    ga_cycle c = {.a = 4};
    ga_cycle_micro_done(&c, NULL);
    ga_cycle_discard(&c);
    assert_int_equal(c.r, 0);
    assert_int_equal(c.micro, 1);
    assert_int_equal(ga_cycle_role(&c, 4), GA_FIRST);
}

int test_cycle(void);
int test_cycle(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tails), cmocka_unit_test(roles),
                                       cmocka_unit_test(skips), cmocka_unit_test(discard)};
    return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
