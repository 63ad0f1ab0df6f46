/* bf16.h: the upper half of a float: 8 bits of exponent, 7 of fraction. Storage only: arithmetic uses
 * floats. The conversions are integer arithmetic without branches, so any compiler vectorizes them. */
#ifndef GA_BF16_H
#define GA_BF16_H

#include <stdint.h>
#include <string.h>

typedef struct bf16 {
    uint16_t bits;
} bf16;

/* Exact. */
static inline float bf16_widen(bf16 h) {
    const uint32_t bits = (uint32_t)h.bits << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds to nearest, ties to even; infinity above the largest value; a NaN keeps its sign and the
 * upper bits of its fraction. */
static inline bf16 bf16_narrow(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
    const uint32_t out = x != x ? bits | 0x400000 : nearest;
    return (bf16){(uint16_t)(out >> 16)};
}

/* The bf16 that x is: its lower half is 0. */
static inline bf16 bf16_cut(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bf16){(uint16_t)(bits >> 16)};
}

/* x rounded to bf16, as a float. */
static inline float bf16_rounded(float x) {
    return bf16_widen(bf16_narrow(x));
}

#endif
