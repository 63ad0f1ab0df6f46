/* plain.h: the instructions for products of bf16 in plain C, for machines without them; included before the text of a
 * program by -include. immintrin.h beside it has those of AVX-512. They follow Intel's manual: denormals are zeros, and
 * rounding is to nearest. Threads that flush denormals, as those of a team do, therefore compute their bits; a NaN may
 * be another NaN.
 *   TDPBF16PS (AMX)          products of bf16 are exact in f32, those of even and of odd k are added up apart over the
 *                            16 pairs of a row, and both are added to the sum
 *   VDPBF16PS (AVX512-BF16)  the product of odd k is added to the sum, then that of even k, each with one rounding */
#ifndef GA_MATRIX_PLAIN_H
#define GA_MATRIX_PLAIN_H
#define _GNU_SOURCE /* as files of the runtime begin, which are too late behind this one */

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

typedef uint32_t plain_pairs __attribute__((vector_size(64), may_alias));

static inline float plain_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void plain_multiply(plain_register *sums, const plain_register *a, const plain_register *b) {
    for (int r = 0; r < 16; r++) {
        __m512 sum, even = {0}, odd = {0};
        memcpy(&sum, sums->row[r], sizeof sum);
        for (int pair = 0; pair < 16; pair++) {
            uint32_t x;
            plain_pairs y;
            memcpy(&x, a->row[r] + 4 * pair, sizeof x);
            memcpy(&y, b->row[pair], sizeof y);
            even += plain_float(x << 16) * (__m512)(y << 16);
            odd += plain_float(x & 0xffff0000) * (__m512)(y & 0xffff0000u);
        }
        sum += even + odd;
        memcpy(sums->row[r], &sum, sizeof sum);
    }
}

static inline __m512 plain_dot(__m512 sums, plain_pairs a, plain_pairs b) {
    sums = _mm512_fmadd_ps((__m512)(a & 0xffff0000u), (__m512)(b & 0xffff0000u), sums);
    return _mm512_fmadd_ps((__m512)(a << 16), (__m512)(b << 16), sums);
}

#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps(sums, a, b) plain_dot(sums, (plain_pairs)(a), (plain_pairs)(b))

/* Numbers rounded to bf16, in the lower half of each lane; NaN is quiet. */
static inline plain_pairs plain_rounded(plain_pairs x) {
    const plain_pairs size = x & 0x7fffffff, nan = (plain_pairs)(size > 0x7f800000);
    const plain_pairs denormal = (plain_pairs)(size < 0x800000), other = x + 0x7fff + (x >> 16 & 1);
    return ((nan & (x | 0x400000)) | (denormal & x & 0x80000000) | (~nan & ~denormal & other)) >> 16;
}

/* 16 numbers of low, then 16 of high, rounded to bf16. */
static inline __m512i plain_narrow(plain_pairs high, plain_pairs low) {
    typedef uint16_t row __attribute__((vector_size(32)));
    const row to[2] = {__builtin_convertvector(plain_rounded(low), row),
                       __builtin_convertvector(plain_rounded(high), row)};
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

/* Neither the processor nor the system need be asked for them. The runtime may define the function once more. */
#define __builtin_cpu_supports(name) 1
#define ga_matrix_open ga_matrix_open_plain
struct ga_err;
extern inline __attribute__((gnu_inline, always_inline)) int ga_matrix_open_plain(struct ga_err *e) {
    (void)e;
    return 0;
}

#endif
