/* The best value and patience, with values that are not finite. */
#include "scratch.h"

#include "loop/best.h"

#include <math.h>

static void values(void **state) {
    (void)state;
    const ga_best_rule rule = {.metric = "loss", .patience = 3, .min_delta = 0.5};
    static const struct {
        double value;
        int64_t best, bad;
    } table[] = {{NAN, -1, 1}, {INFINITY, -1, 2}, {4, 2, 0},  {3.6, 3, 1},       {3.6, 3, 2},
                 {3.4, 5, 0},  {NAN, 5, 1},       {3, 7, 2},  {-INFINITY, 7, 3}};
    ga_best best = GA_BEST_NONE;
    for (int64_t i = 0; i < (int64_t)(sizeof table / sizeof *table); i++) {
        assert_false(ga_best_exhausted(&rule, &best));
        ga_best_take(&rule, table[i].value, i, &best);
        assert_int_equal(best.cycle, table[i].best);
        assert_int_equal(best.bad, table[i].bad);
    }
    assert_true(ga_best_exhausted(&rule, &best));
    assert_true(best.value == 3 && best.mark == 3.4);
}

static void more(void **state) {
    (void)state;
    const ga_best_rule rule = {.metric = "accuracy", .more = true};
    ga_best best = GA_BEST_NONE;
    static const double values[] = {-0.5, -0.25, -0.25, -1};
    for (int i = 0; i < 4; i++) ga_best_take(&rule, values[i], i, &best);
    assert_true(best.value == -0.25 && best.cycle == 1 && best.bad == 2);
    assert_false(ga_best_exhausted(&rule, &best)); /* no patience: any number */
}

int test_best(void);
int test_best(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(more)};
    return cmocka_run_group_tests_name("best", tests, NULL, NULL);
}
