// half: elements of 16 bits in memory, as runtime/base/bf16.h and f16.h have them. Kernels compute with floats.

//@ bf16()

/* The upper half of a float. */
typedef struct bf16 {
    unsigned short bits;
} bf16;

GA_DEVICE float bf16_widen(bf16 h) {
    return __uint_as_float((ga_uint32)h.bits << 16);
}

/* The nearest bf16, ties to even; a NaN stays a NaN. */
GA_DEVICE bf16 bf16_narrow(float x) {
    const ga_uint32 bits = __float_as_uint(x), nearest = bits + 0x7fff + (bits >> 16 & 1);
    const ga_uint32 out = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : nearest;
    return {(unsigned short)(out >> 16)};
}

GA_DEVICE float bf16_rounded(float x) {
    return bf16_widen(bf16_narrow(x));
}

//@ f16()

/* 5 bits of exponent, 10 of fraction. */
typedef struct f16 {
    unsigned short bits;
} f16;

GA_DEVICE float f16_widen(f16 h) {
    const ga_uint32 size = (ga_uint32)(h.bits & 0x7fff) << 13;
    const ga_uint32 small = __float_as_uint(__uint_as_float(size + 0x38800000) - 0x1p-14f);
    const ga_uint32 other = size + (size >= 0x0f800000 ? 0x70000000u : 0x38000000u);
    return __uint_as_float((size < 0x00800000 ? small : other) | (ga_uint32)(h.bits & 0x8000) << 16);
}

/* The nearest f16, ties to even; infinity from 65520 on; a NaN stays a NaN. Below 2^-14, adding 0.5 rounds to
 * multiples of 2^-24. */
GA_DEVICE f16 f16_narrow(float x) {
    const ga_uint32 bits = __float_as_uint(x), size = bits & 0x7fffffff;
    const ga_uint32 small = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000;
    const ga_uint32 normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    ga_uint32 out = size < 0x38800000 ? small : normal;
    out = size >= 0x477ff000 ? 0x7c00 : out;
    out = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : out;
    return {(unsigned short)(out | (bits >> 16 & 0x8000))};
}

GA_DEVICE float f16_rounded(float x) {
    return f16_widen(f16_narrow(x));
}
