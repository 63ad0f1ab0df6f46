/* f16.h: IEEE 754 binary16: 5 bits of exponent, 10 of fraction; 6e-8 to 65504. Storage only: arithmetic
 * uses floats. The conversions have no branches, so any compiler vectorizes them. They neither read nor
 * produce a denormal float, so they work where denormals are flushed to zero. */
#ifndef GA_F16_H
#define GA_F16_H

#include <stdint.h>
#include <string.h>

typedef struct f16 {
    uint16_t bits;
} f16;

static inline float f16_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t f16_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Exact, also for denormals: read with the exponent of 2^-14 they are too large by 2^-14. */
static inline float f16_widen(f16 h) {
    const uint32_t size = (uint32_t)(h.bits & 0x7fff) << 13;
    const uint32_t small = f16_bits(f16_float(size + 0x38800000) - 0x1p-14f);
    const uint32_t other = size + (size >= 0x0f800000 ? 0x70000000u : 0x38000000u);
    return f16_float((size < 0x00800000 ? small : other) | (uint32_t)(h.bits & 0x8000) << 16);
}

/* Rounds to nearest, ties to even; infinity from 65520 on; a NaN keeps its sign and the upper bits of its
 * fraction. Below 2^-14 adding 0.5 rounds to multiples of 2^-24. */
static inline f16 f16_narrow(float x) {
    const uint32_t bits = f16_bits(x), size = bits & 0x7fffffff;
    const uint32_t small = f16_bits(f16_float(size) + 0.5f) - 0x3f000000;
    const uint32_t normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13;
    uint32_t out = size < 0x38800000 ? small : normal;
    out = size >= 0x477ff000 ? 0x7c00 : out;
    out = size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : out;
    return (f16){(uint16_t)(out | (bits >> 16 & 0x8000))};
}

/* x rounded to f16, as a float. */
static inline float f16_rounded(float x) {
    return f16_widen(f16_narrow(x));
}

#endif
