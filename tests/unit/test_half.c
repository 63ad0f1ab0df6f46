/* bf16 and f16 against their definition: every value, and the floats around every rounding boundary. The
 * definition uses no bits: a value is a whole number of units, scaled by ldexp. */
#include "scratch.h"

#include "base/bf16.h"
#include "base/f16.h"

#include <fenv.h>
#include <math.h>

/* A format: the bits of its fraction, and the smallest exponent of a normal number. */
typedef struct format {
    int fraction, least;
    double greatest;
} format;

static const format BF16 = {7, -126, 0x1.fep127}, F16 = {10, -14, 65504};

/* The value with these fields. */
static double value_of(const format *f, unsigned bits) {
    const int exponent = (int)((bits & 0x7fff) >> f->fraction);
    const double fraction = bits & ((1u << f->fraction) - 1), first = 1u << f->fraction;
    double x = ldexp(exponent ? first + fraction : fraction, (exponent ? exponent - 1 : 0) + f->least - f->fraction);
    if (x > f->greatest) x = fraction == 0 ? INFINITY : NAN;
    return bits & 0x8000 ? -x : x;
}

/* x rounded to a whole number of units of its exponent, ties to even. */
static double rounded(const format *f, double x) {
    if (!isfinite(x) || x == 0) return x;
    int exponent;
    frexp(x, &exponent);
    if (--exponent < f->least) exponent = f->least;
    const double y = ldexp(nearbyint(ldexp(x, f->fraction - exponent)), exponent - f->fraction);
    return fabs(y) > f->greatest ? copysign(INFINITY, x) : y;
}

static float bf16_of(unsigned bits) { return bf16_widen((bf16){(uint16_t)bits}); }
static unsigned bf16_bits(float x) { return bf16_narrow(x).bits; }
static float f16_of(unsigned bits) { return f16_widen((f16){(uint16_t)bits}); }
static unsigned f16_out(float x) { return f16_narrow(x).bits; }

static void check_all(const format *f, float (*widen)(unsigned), unsigned (*narrow)(float)) {
    assert_int_equal(fegetround(), FE_TONEAREST);
    for (unsigned bits = 0; bits < 65536; bits++) {
        const double value = value_of(f, bits);
        const float x = widen(bits);
        if (isnan(value)) {
            assert_true(isnan(x) && isnan(widen(narrow(x))));
            assert_int_equal(narrow(x) & 0x8000, bits & 0x8000);
        } else {
            assert_true(x == value && !signbit(x) == !(bits & 0x8000));
            assert_int_equal(narrow(x), bits);
        }
    }
}

static void check_rounding(const format *f, float x, float (*widen)(unsigned), unsigned (*narrow)(float)) {
    const double expected = rounded(f, x);
    const float found = widen(narrow(x));
    if (found != expected || !signbit(found) != !signbit(expected))
        fail_msg("%a: rounded to %a, expected %a", x, found, expected);
}

/* The midpoint between each value and the next one, its neighbouring floats, and random floats between. */
static void check_between(const format *f, float (*widen)(unsigned), unsigned (*narrow)(float)) {
    uint32_t draw = 1;
    for (unsigned bits = 0; bits < 65536; bits++) {
        const float x = widen(bits), next = widen(bits ^ 0x8000);
        if (!isfinite(x)) continue;
        const float above = widen((bits & 0x7fff) + 1 > 0x7fff ? bits : bits + 1);
        const double step = isfinite(above) ? (double)above - x : x - (double)widen(bits - 1);
        const float half = (float)(x + step / 2);
        const float tries[] = {half, nextafterf(half, INFINITY), nextafterf(half, -INFINITY), next,
                               nextafterf(x, INFINITY), nextafterf(x, -INFINITY)};
        for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
            check_rounding(f, tries[i], widen, narrow);
        for (int i = 0; i < 8; i++) {
            draw = draw * 1664525 + 1013904223;
            check_rounding(f, (float)(x + step * (draw / 4294967296.0)), widen, narrow);
        }
    }
}

static void check_floats(const format *f, float (*widen)(unsigned), unsigned (*narrow)(float)) {
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 4093) {
        const uint32_t word = (uint32_t)bits;
        float x;
        memcpy(&x, &word, sizeof x);
        if (isnan(x)) assert_true(isnan(widen(narrow(x))) && narrow(x) >> 15 == word >> 31);
        else check_rounding(f, x, widen, narrow);
    }
}

static void bf16_values(void **state) {
    (void)state;
    check_all(&BF16, bf16_of, bf16_bits);
    check_between(&BF16, bf16_of, bf16_bits);
    check_floats(&BF16, bf16_of, bf16_bits);
    assert_int_equal(bf16_bits(1.0f), 0x3f80);
    assert_int_equal(bf16_bits(0x1.01p0f), 0x3f80);      /* ties to even: down */
    assert_int_equal(bf16_bits(0x1.03p0f), 0x3f82);      /* and up */
    assert_int_equal(bf16_bits(0x1.fffffep127f), 0x7f80); /* above the largest value: infinity */
    assert_true(bf16_rounded(0.1f) == 0x1.9ap-4f);
}

static void f16_values(void **state) {
    (void)state;
    check_all(&F16, f16_of, f16_out);
    check_between(&F16, f16_of, f16_out);
    check_floats(&F16, f16_of, f16_out);
    assert_int_equal(f16_out(1.0f), 0x3c00);
    assert_int_equal(f16_out(65519.996f), 0x7bff);
    assert_int_equal(f16_out(-65520.0f), 0xfc00);
    assert_int_equal(f16_out(0x1p-24f), 1);  /* the smallest value */
    assert_int_equal(f16_out(0x1p-25f), 0);  /* half of it: ties to even */
    assert_int_equal(f16_out(0x1.000002p-25f), 1);
    assert_true(f16_rounded(0.1f) == 0x1.998p-4f);
}

int test_half(void);
int test_half(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bf16_values), cmocka_unit_test(f16_values)};
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
