/* Random numbers: values that an independent program computed from the definition in rng.h; permutations
 * are bijective. */
#include "scratch.h"

#include "base/rng.h"

#include <math.h>

static void fixed_values(void **state) {
    (void)state;
    assert_true(ga_rng_stream("epoch") == 0xfc9697d1196e6ba6u);
    assert_true(ga_rng(1, ga_rng_stream("fc1.weight"), 0) == 0x461ad7aaf9125a23u);
    assert_true(ga_rng(0, 0, 0) == 0x568a9b0b1a2c05ecu);
    assert_true(ga_rng(UINT64_MAX, UINT64_MAX, UINT64_MAX) == 0x8db4c6095b35a8aeu);
    assert_true(ga_uniform(0) == 0 && ga_uniform(UINT64_MAX) < 1);
    static const uint64_t ten[] = {6, 2, 7, 1, 9, 0, 5, 8, 4, 3};
    static const uint64_t digits[] = {1685, 1720, 1753, 995};
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(ga_permute(1, ga_rng_stream("epoch"), 10, i), ten[i]);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(ga_permute(7, ga_rng_stream("split"), 1797, i), digits[i]);
}

/* Keys of rows and their first numbers. */
static void fixed_draws(void **state) {
    (void)state;
    static const struct {
        uint64_t seed;
        const char *name;
        uint64_t iteration, cycle, row, key;
        double first;
    } draws[] = {
        {1, "dropout", 0, 0, 0, 0x1e42f7bb6f9bee03u, 0.29794767797387745},
        {1, "dropout", 0, 0, 1, 0xd179ab8ec5342665u, 0.85573332246220624},
        {1, "dropout", 0, 1, 0, 0xc9aade1b4c8150ffu, 0.51034761407832452},
        {1, "dropout", 1, 0, 0, 0xe893f95db5573e3du, 0.25201350776025144},
        {2, "dropout", 0, 0, 0, 0xca918e94486820fau, 0.27658522202524594},
        {1, "h.attn", 11, 123456789, 4095, 0x7991dc339f1316ceu, 0.39674733817058594},
        {UINT64_MAX, "", 0, 0, 0, 0x744dd83f0e562e81u, 0.13984838051108228},
        {42, "augment", 0, 19559, 1099511627779, 0xed5c0ef91f89a738u, 0.80558567566540551},
    };
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        uint64_t key = ga_draw_key(draws[i].seed, ga_rng_stream(draws[i].name), draws[i].iteration,
                                   draws[i].cycle, draws[i].row);
        assert_true(key == draws[i].key);
        assert_true(ga_uniform(ga_rng_at(key, 0)) == draws[i].first);
    }
}

static void bijective(void **state) {
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 100, 1797, 4096, 4097, 60000};
    unsigned char *seen = malloc(60000);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            memset(seen, 0, sizes[k]);
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t x = ga_permute(seed, 9, sizes[k], i);
                assert_true(x < sizes[k]);
                assert_false(seen[x]++);
            }
        }
    free(seen);
    uint64_t far = ga_permute(3, 4, UINT64_MAX, 12345); /* ends for the largest n too */
    assert_true(far < UINT64_MAX);
}

/* An element goes to every place about equally often: chi-square over 2,000 permutations of 8, 49
 * degrees of freedom. */
static void even(void **state) {
    (void)state;
    int count[8][8] = {{0}};
    double chi = 0;
    for (uint64_t seed = 0; seed < 2000; seed++)
        for (uint64_t i = 0; i < 8; i++) count[i][ga_permute(seed, 1, 8, i)]++;
    for (int i = 0; i < 64; i++) {
        double d = count[i / 8][i % 8] - 250.0;
        chi += d * d / 250;
    }
    if (chi > 100) fail_msg("chi-square %g", chi); /* p < 1e-5 */
}

static void initial_values(void **state) {
    (void)state;
    static const double uniform[] = {-0.05653822916950238, -0.008589076614894192,
                                     -0.01439978297998834};
    static const double normal[] = {-0.01562852627216505, 0.0036967420636422146,
                                    -0.011210710910863038};
    double d[3], *many = malloc(sizeof(double) * 20000), sum = 0, squares = 0;
    float f[3];
    ga_init_uniform(d, GA_F64, 3, 1, "fc1.weight", -0.125, 0.125);
    ga_init_uniform(f, GA_F32, 3, 1, "fc1.weight", -0.125, 0.125);
    for (int i = 0; i < 3; i++) assert_true(d[i] == uniform[i] && f[i] == (float)d[i]);
    ga_init_normal(d, GA_F64, 3, 1, "fc1.weight", 0.02);
    ga_init_normal(f, GA_F32, 3, 1, "fc1.weight", 0.02);
    for (int i = 0; i < 3; i++) assert_true(fabs(d[i] - normal[i]) < 1e-16 && f[i] == (float)d[i]);
    ga_init_normal(many, GA_F64, 20000, 5, "x", 2);
    for (int i = 0; i < 20000; i++) {
        sum += many[i];
        squares += many[i] * many[i];
    }
    assert_true(fabs(sum / 20000) < 0.06 && fabs(sqrt(squares / 20000) - 2) < 0.04);
    ga_init_value(f, GA_F32, 3, 0.5);
    assert_true(f[0] == 0.5f && f[2] == 0.5f);
    free(many);
}

/* A large array, whose elements threads share, has those that calls for few elements draw. */
static void shared_draws(void **state) {
    (void)state;
    enum { COUNT = (1 << 20) + 1777, PIECE = 12345, FIRST = 13 };
    float *whole = malloc(sizeof(float) * COUNT), *pieces = malloc(sizeof(float) * COUNT);
    assert_true(whole && pieces);
    for (int normal = 0; normal < 2; normal++) {
        for (int at = 0; at < COUNT; at += PIECE) {
            const int n = COUNT - at < PIECE ? COUNT - at : PIECE;
            if (normal)
                ga_init_normal_run(pieces + at, GA_F32, FIRST + at, n, 3, "x", 0.5);
            else
                ga_init_uniform_run(pieces + at, GA_F32, FIRST + at, n, 3, "x", -1, 2);
        }
        if (normal)
            ga_init_normal_run(whole, GA_F32, FIRST, COUNT, 3, "x", 0.5);
        else
            ga_init_uniform_run(whole, GA_F32, FIRST, COUNT, 3, "x", -1, 2);
        assert_memory_equal(whole, pieces, sizeof(float) * COUNT);
    }
    free(whole);
    free(pieces);
}

int test_rng(void);
int test_rng(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fixed_values), cmocka_unit_test(fixed_draws),
                                       cmocka_unit_test(bijective), cmocka_unit_test(even),
                                       cmocka_unit_test(initial_values), cmocka_unit_test(shared_draws)};
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
