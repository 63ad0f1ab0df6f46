// half: elements of 16 bits in memory, as runtime/base/bf16.h and f16.h have them. Kernels compute with floats.

//@ bf16()

/* The upper half of a float. */
typedef struct bf16 {
    unsigned short bits;
} bf16;

GA_DEVICE float bf16_widen(bf16 h) {
    return __uint_as_float((ga_uint32)h.bits << 16);
}

/* The nearest bf16, ties to even; a NaN stays a NaN. The instruction, of sm_80, has a pair. */
GA_DEVICE bf16 bf16_narrow(float x) {
#if __CUDA_ARCH__ >= 800
    ga_uint32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return {(unsigned short)pair};
#else
    const ga_uint32 bits = __float_as_uint(x), nearest = bits + 0x7fff + (bits >> 16 & 1);
    const ga_uint32 out = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : nearest;
    return {(unsigned short)(out >> 16)};
#endif
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
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h.bits));
    return x;
}

/* The nearest f16, ties to even; infinity from 65520 on; a NaN stays a NaN. The instruction, of sm_80, has a pair. Else,
 * below 2^-14, adding 0.5 rounds to multiples of 2^-24. */
GA_DEVICE f16 f16_narrow(float x) {
#if __CUDA_ARCH__ >= 800
    ga_uint32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(0.0f), "f"(x));
    return {(unsigned short)pair};
#else
    const ga_uint32 bits = __float_as_uint(x), size = bits & 0x7fffffff;
    const ga_uint32 small = __float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000;
    const ga_uint32 normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    ga_uint32 out = size < 0x38800000 ? small : normal;
    out = size >= 0x477ff000 ? 0x7c00 : out;
    out = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : out;
    return {(unsigned short)(out | (bits >> 16 & 0x8000))};
#endif
}

GA_DEVICE float f16_rounded(float x) {
    return f16_widen(f16_narrow(x));
}

//@ functions()

/* 2^x; 0 below 2^-126. */
GA_DEVICE float ga_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x within 2^-22 of its size; 0 below 2^-126. */
GA_DEVICE float ga_reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Functions for what is rounded to 16 bits: within 2^-17 of their size. */
GA_DEVICE float ga_exp(float x) {
    return ga_exp2(1.44269504f * x);
}

/* 1 - 2 / (exp(2 |x|) + 1), near 0 the first terms of the series. */
GA_DEVICE float ga_tanh(float x) {
    const float far = fmaf(-2, ga_reciprocal(ga_exp2(2.88539008f * fabsf(x)) + 1), 1), square = x * x;
    const float near = fmaf(x * square, fmaf(square, 0.13333334f, -0.33333334f), x);
    return fabsf(x) < 0.09f ? near : copysignf(far, x);
}

/* 1 - 2^-(|x| p), |x| p being the logarithm of 1 - erf, near 0 the first terms of the series. */
GA_DEVICE float ga_erf(float x) {
    const float to = fabsf(x), near = x * fmaf(x * x, -0.37612638f, 1.1283792f);
    float p = fmaf(to, 0.002995993f, -0.029796824f);
    p = fmaf(to, fmaf(to, fmaf(to, p, 0.14893635f), 0.9183768f), 1.6279081f);
    const float far = 1 - ga_exp2(-to * p);
    return to < 0.09f ? near : copysignf(far, x);
}
