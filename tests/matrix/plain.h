/* plain.h: the instructions for products of bf16 in plain C, for machines without them; included before the text of a
 * program by -include. They follow Intel's manual: denormals are zeros, and rounding is to nearest. Threads that flush
 * denormals, as those of a team do, therefore compute their bits; a NaN may be another NaN.
 *   TDPBF16PS (AMX)          products of bf16 are exact in f32, those of even and of odd k are added up apart over the 16
 *                            pairs of a row, and both are added to the sum
 *   VDPBF16PS (AVX512-BF16)  the product of odd k is added to the sum, then that of even k, each with one rounding */
#ifndef GA_MATRIX_PLAIN_H
#define GA_MATRIX_PLAIN_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct plain_register {
    uint8_t row[16][64];
} plain_register;

static _Thread_local plain_register plain_registers[8] __attribute__((unused));

static inline void plain_load(plain_register *x, const void *from, size_t stride) {
    for (size_t r = 0; r < 16; r++) memcpy(x->row[r], (const char *)from + r * stride, 64);
}

static inline void plain_store(const plain_register *x, void *to, size_t stride) {
    for (size_t r = 0; r < 16; r++) memcpy((char *)to + r * stride, x->row[r], 64);
}

/* Element i of a row of bf16. */
static inline float plain_bf16(const uint8_t *row, int i) {
    const uint32_t bits = (uint32_t)(row[2 * i] | row[2 * i + 1] << 8) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void plain_multiply(plain_register *sums, const plain_register *a, const plain_register *b) {
    for (int r = 0; r < 16; r++) {
        float row[16], part[16][2] = {{0}};
        memcpy(row, sums->row[r], sizeof row);
        for (int pair = 0; pair < 16; pair++)
            for (int j = 0; j < 16; j++)
                for (int odd = 0; odd < 2; odd++)
                    part[j][odd] += plain_bf16(a->row[r], 2 * pair + odd) * plain_bf16(b->row[pair], 2 * j + odd);
        for (int j = 0; j < 16; j++) row[j] += part[j][0] + part[j][1];
        memcpy(sums->row[r], row, sizeof row);
    }
}

typedef unsigned plain_pairs __attribute__((vector_size(64), may_alias));

static inline __m512 plain_dot(__m512 sums, plain_pairs a, plain_pairs b) {
    sums = _mm512_fmadd_ps((__m512)(a & 0xffff0000u), (__m512)(b & 0xffff0000u), sums);
    return _mm512_fmadd_ps((__m512)(a << 16), (__m512)(b << 16), sums);
}

#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(sums, a, b) plain_dot(sums, (plain_pairs)(a), (plain_pairs)(b))

/* 16 numbers of low, then 16 of high, rounded to bf16; NaN is quiet. */
static inline __m512i plain_narrow(plain_pairs high, plain_pairs low) {
    const plain_pairs from[2] = {low, high};
    uint16_t to[32];
    for (int i = 0; i < 32; i++) {
        const uint32_t x = from[i / 16][i % 16], size = x & 0x7fffffff;
        const uint32_t rounded = size > 0x7f800000 ? x | 0x400000 : size < 0x800000 ? x & 0x80000000
            : x + 0x7fff + (x >> 16 & 1);
        to[i] = (uint16_t)(rounded >> 16);
    }
    __m512i result;
    memcpy(&result, to, sizeof result);
    return result;
}

#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh(high, low) ((__m512bh)plain_narrow((plain_pairs)(high), (plain_pairs)(low)))

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes) (void)(shapes)
#define _tile_release() (void)0
#define _tile_zero(x) memset(&plain_registers[x], 0, sizeof(plain_register))
#define _tile_loadd(x, from, stride) plain_load(&plain_registers[x], from, stride)
#define _tile_stream_loadd(x, from, stride) plain_load(&plain_registers[x], from, stride)
#define _tile_stored(x, to, stride) plain_store(&plain_registers[x], to, stride)
#define _tile_dpbf16ps(c, a, b) plain_multiply(&plain_registers[c], &plain_registers[a], &plain_registers[b])

/* Neither the processor nor the system need be asked for them. */
#define __builtin_cpu_supports(name) 1
#define ga_matrix_open ga_matrix_open_plain
struct ga_err;
__attribute__((weak)) int ga_matrix_open_plain(struct ga_err *e) {
    (void)e;
    return 0;
}

#endif
