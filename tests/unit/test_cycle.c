/* Roles and counters, and the table for 10 micro-batches, accumulation 4, 2 epochs, per tail
 * policy. */
#include "scratch.h"

#include "loop/cycle.h"
#include "loop/epochs.h"

typedef struct {
    int updates, used, shortest, roles[4];
} outcome;

static void boundary(ga_cycle *c, outcome *o) {
    if (c->r < o->shortest) o->shortest = c->r;
    assert_int_equal(ga_cycle_commit(c, true, NULL), 0);
}

/* Runs all cycles of two epochs, as a program does. */
static outcome train(ga_tail tail) {
    const ga_accumulate four = {0, 4};
    const ga_epochs epochs = {
        .batches = 10, .accumulate = &four, .accumulates = 1, .tail = tail};
    ga_place place = {0};
    ga_cycle c = {0};
    outcome o = {.shortest = 4};
    while (c.cycle < ga_epochs_cycles(&epochs, 2)) {
        const int a = ga_epochs_cycle(&epochs, &place);
        assert_int_equal(ga_cycle_begin(&c, a, NULL), 0);
        for (int k = 0; k < a; k++) {
            o.roles[ga_cycle_role(&c)]++;
            assert_int_equal(ga_cycle_micro_done(&c, NULL), 0);
            o.used++;
        }
        assert_true(ga_cycle_boundary(&c));
        boundary(&c, &o);
        ga_epochs_advance(&epochs, &place, a);
        assert_true(place.cycle == c.cycle && place.r == 0);
    }
    assert_true(place.epoch == 2 && place.position == 0);
    o.updates = (int)c.update;
    assert_int_equal(c.micro, o.used);
    return o;
}

static void tails(void **state) {
    (void)state;
    static const struct {
        ga_tail tail;
        outcome expect;
    } table[] = {
        {GA_DROP, {4, 16, 4, {0, 4, 8, 4}}},
        {GA_FLUSH, {6, 20, 2, {0, 6, 8, 6}}},
        {GA_CARRY, {5, 20, 4, {0, 5, 10, 5}}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        outcome o = train(table[i].tail);
        assert_memory_equal(&o, &table[i].expect, sizeof o);
    }
}

static void roles(void **state) {
    (void)state;
    ga_cycle c = {.a = 1};
    ga_err e;
    assert_int_equal(ga_cycle_role(&c), GA_ONLY);
    assert_int_equal(ga_cycle_begin(&c, 4, &e), 0);
    static const ga_role expect[] = {GA_FIRST, GA_NEXT, GA_NEXT, GA_LAST};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(ga_cycle_role(&c), expect[k]);
        assert_false(ga_cycle_boundary(&c));
        ga_cycle_micro_done(&c, NULL);
    }
    assert_true(ga_cycle_boundary(&c));
    assert_int_equal(ga_cycle_micro_done(&c, &e), GA_INPUT);
    assert_string_equal(e.msg, "4 of 4 micro-steps accumulated: call step");
    assert_int_equal(c.micro, 4);
    assert_int_equal(ga_cycle_begin(&c, 4, &e), GA_BUG);
    assert_string_equal(e.msg, "cycle 1 of 4 micro-steps, 4 are done");
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
    assert_int_equal(ga_cycle_role(&c), GA_FIRST);
}

int test_cycle(void);
int test_cycle(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tails), cmocka_unit_test(roles),
                                       cmocka_unit_test(skips), cmocka_unit_test(discard)};
    return cmocka_run_group_tests_name("cycle", tests, NULL, NULL);
}
