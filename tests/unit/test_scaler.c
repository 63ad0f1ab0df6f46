/* The loss scale over cycles with and without an overflow: the observed sequence of Colossal-AI's scaler, torch's
 * sequence computed by torch._amp_update_scale_ (2.x, interval 3), and the limits. */
#include "scratch.h"

#include "loop/scaler.h"

#include <math.h>

typedef struct run {
    ga_scaler c;
    double scale;
    int64_t growth, hysteresis;
} run;

static run start(int64_t hysteresis, double scale) {
    return (run){{.growth_factor = 2, .backoff_factor = .5, .min_scale = 1, .max_scale = 4294967296.0,
                  .growth_interval = 3, .hysteresis = hysteresis}, scale, 0, 0};
}

/* events: 'O' an overflow, '.' none; the list has the scale expected after each. */
static void expect(run *r, const char *events, const double *scales) {
    for (int i = 0; events[i]; i++) {
        ga_scaler_take(&r->c, events[i] == 'O', &r->scale, &r->growth, &r->hysteresis);
        if (r->scale != scales[i]) fail_msg("event %d of %s: %g, expected %g", i, events, r->scale, scales[i]);
    }
}

static void colossal(void **state) {
    (void)state;
    run r = start(2, 65536);
    expect(&r, "O.OO...OO", (double[]){65536, 65536, 32768, 16384, 16384, 16384, 32768, 32768, 16384});
    assert_int_equal(r.growth, 0);
    assert_int_equal(r.hysteresis, 2);
}

static void torch(void **state) {
    (void)state;
    run r = start(1, 65536);
    r.c.min_scale = 0;
    r.c.max_scale = INFINITY;
    expect(&r, "O.OO...OO..O.....", (double[]){32768, 32768, 16384, 8192, 8192, 8192, 16384, 8192, 4096, 4096, 4096,
                                               2048, 2048, 2048, 4096, 4096, 4096});
    assert_int_equal(r.growth, 2);
}

static void hysteresis(void **state) {
    (void)state;
    run none = start(0, 64), one = start(1, 64), three = start(3, 64);
    expect(&none, "OO.O", (double[]){32, 16, 16, 8});
    expect(&one, "OO.O", (double[]){32, 16, 16, 8});
    expect(&three, "O.O.OO...OOO", (double[]){64, 64, 64, 64, 32, 16, 16, 16, 32, 32, 32, 16});
}

static void limits(void **state) {
    (void)state;
    run r = start(1, 4);
    expect(&r, "OOOO", (double[]){2, 1, 1, 1});
    r.c.max_scale = 3;
    expect(&r, "......", (double[]){1, 1, 2, 2, 2, 3});
    r.c.min_scale = 0.8;
    expect(&r, "OOO", (double[]){1.5, 0.8, 0.8});
}

static void without_limits(void **state) {
    (void)state;
    run r = start(1, 2);
    r.c.min_scale = 0;
    expect(&r, "OO", (double[]){1, 0.5});
    r.c.max_scale = INFINITY;
    r.c.growth_interval = 1;
    r.scale = 0x1p1022;
    expect(&r, "..O", (double[]){0x1p1023, 0x1p1023, 0x1p1022}); /* the scale stays finite */
}

int test_scaler(void);
int test_scaler(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colossal),
        cmocka_unit_test(torch),
        cmocka_unit_test(hysteresis),
        cmocka_unit_test(limits),
        cmocka_unit_test(without_limits),
    };
    return cmocka_run_group_tests_name("scaler", tests, NULL, NULL);
}
