/* immintrin.h: the intrinsics of AVX-512 that templates use, in plain C, in the place of the compiler's header where
 * the compiler is told to make none of its instructions (tests/lua/marches.lua). They follow Intel's manual bit by bit:
 * a multiply-add is rounded once, an index counts by its lowest bits alone, and elements that a mask leaves out are not
 * read. A processor without FMA takes the C library's multiply-add. */
#ifndef GA_PLAIN_IMMINTRIN_H
#define GA_PLAIN_IMMINTRIN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef short __m512bh __attribute__((vector_size(64), may_alias));

/* Elements of vectors by their bits. */
typedef float plain_floats __attribute__((vector_size(32), may_alias));
typedef double plain_doubles __attribute__((vector_size(32), may_alias));
typedef uint32_t plain_words __attribute__((vector_size(64), may_alias));
typedef uint16_t plain_halves __attribute__((vector_size(64), may_alias));
typedef uint32_t plain_ints __attribute__((vector_size(32), may_alias));
typedef uint16_t plain_row __attribute__((vector_size(32), may_alias));
typedef uint16_t plain_few __attribute__((vector_size(16), may_alias));

#define PLAIN static inline __attribute__((always_inline, unused))

/* a * b + c, rounded once, for the lanes of AVX2; AVX-512 has twice as many. */
#ifdef __FMA__
PLAIN plain_floats plain_fma_floats(plain_floats a, plain_floats b, plain_floats c) {
    return __builtin_ia32_vfmaddps256(a, b, c);
}

PLAIN plain_doubles plain_fma_doubles(plain_doubles a, plain_doubles b, plain_doubles c) {
    return __builtin_ia32_vfmaddpd256(a, b, c);
}
#else
PLAIN plain_floats plain_fma_floats(plain_floats a, plain_floats b, plain_floats c) {
    for (int i = 0; i < 8; i++) c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

PLAIN plain_doubles plain_fma_doubles(plain_doubles a, plain_doubles b, plain_doubles c) {
    for (int i = 0; i < 4; i++) c[i] = fma(a[i], b[i], c[i]);
    return c;
}

#define __builtin_ia32_vfmaddps256(a, b, c) plain_fma_floats(a, b, c)
#define __builtin_ia32_vfmaddpd256(a, b, c) plain_fma_doubles(a, b, c)
#endif

PLAIN __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    plain_floats x[2], y[2], z[2];
    memcpy(x, &a, sizeof a), memcpy(y, &b, sizeof b), memcpy(z, &c, sizeof c);
    z[0] = plain_fma_floats(x[0], y[0], z[0]);
    z[1] = plain_fma_floats(x[1], y[1], z[1]);
    memcpy(&c, z, sizeof c);
    return c;
}

PLAIN __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c) {
    plain_doubles x[2], y[2], z[2];
    memcpy(x, &a, sizeof a), memcpy(y, &b, sizeof b), memcpy(z, &c, sizeof c);
    z[0] = plain_fma_doubles(x[0], y[0], z[0]);
    z[1] = plain_fma_doubles(x[1], y[1], z[1]);
    memcpy(&c, z, sizeof c);
    return c;
}

/* Lanes of a and b: an index has the number of a lane of a, and above its bits one more for b. */
PLAIN __m512i _mm512_permutex2var_epi32(__m512i a, __m512i index, __m512i b) {
    return (__m512i)__builtin_shuffle((plain_words)a, (plain_words)b, (plain_words)index);
}

PLAIN __m512i _mm512_permutexvar_epi16(__m512i index, __m512i x) {
    return (__m512i)__builtin_shuffle((plain_halves)x, (plain_halves)index);
}

/* x in the lanes where the mask has a bit, else 0. */
PLAIN __m512i plain_where(uint32_t mask, plain_halves x) {
    for (int i = 0; i < 32; i++) x[i] = mask >> i & 1 ? x[i] : 0;
    return (__m512i)x;
}

PLAIN __m512i _mm512_maskz_permutexvar_epi16(uint32_t mask, __m512i index, __m512i x) {
    return plain_where(mask, (plain_halves)_mm512_permutexvar_epi16(index, x));
}

PLAIN __m512i _mm512_maskz_permutex2var_epi16(uint32_t mask, __m512i a, __m512i index, __m512i b) {
    return plain_where(mask, __builtin_shuffle((plain_halves)a, (plain_halves)b, (plain_halves)index));
}

PLAIN __m512i _mm512_maskz_permutex2var_epi32(uint16_t mask, __m512i a, __m512i index, __m512i b) {
    plain_words x = (plain_words)_mm512_permutex2var_epi32(a, index, b);
    for (int i = 0; i < 16; i++) x[i] = mask >> i & 1 ? x[i] : 0;
    return (__m512i)x;
}

/* A bit for each negative lane. */
PLAIN uint32_t _mm512_movepi16_mask(__m512i x) {
    uint32_t mask = 0;
    for (int i = 0; i < 32; i++) mask |= (uint32_t)(((plain_halves)x)[i] >> 15) << i;
    return mask;
}

PLAIN uint16_t _mm512_movepi32_mask(__m512i x) {
    const plain_words bits = (plain_words)x >> 31;
    unsigned mask = 0;
    for (int i = 0; i < 16; i++) mask |= bits[i] << i;
    return (uint16_t)mask;
}

/* Elements from x on where the mask has a bit, else 0. */
PLAIN void plain_load_where(void *to, uint32_t mask, const void *x, size_t count, size_t bytes) {
    for (size_t i = 0; i < count; i++)
        if (mask >> i & 1) memcpy((char *)to + i * bytes, (const char *)x + i * bytes, bytes);
}

PLAIN __m512i _mm512_maskz_loadu_epi16(uint32_t mask, const void *x) {
    __m512i to = {0};
    plain_load_where(&to, mask, x, 32, 2);
    return to;
}

PLAIN __m256i _mm256_maskz_loadu_epi16(uint16_t mask, const void *x) {
    __m256i to = {0};
    plain_load_where(&to, mask, x, 16, 2);
    return to;
}

PLAIN __m512i _mm512_maskz_loadu_epi32(uint16_t mask, const void *x) {
    __m512i to = {0};
    plain_load_where(&to, mask, x, 16, 4);
    return to;
}

PLAIN __m256i _mm256_maskz_loadu_epi32(uint8_t mask, const void *x) {
    __m256i to = {0};
    plain_load_where(&to, mask, x, 8, 4);
    return to;
}

/* Stores the elements where the mask has a bit. */
PLAIN void _mm512_mask_storeu_epi16(void *to, uint32_t mask, __m512i x) { plain_load_where(to, mask, &x, 32, 2); }
PLAIN void _mm256_mask_storeu_epi16(void *to, uint16_t mask, __m256i x) { plain_load_where(to, mask, &x, 16, 2); }
PLAIN void _mm512_mask_storeu_epi32(void *to, uint16_t mask, __m512i x) { plain_load_where(to, mask, &x, 16, 4); }
PLAIN void _mm256_mask_storeu_epi32(void *to, uint8_t mask, __m256i x) { plain_load_where(to, mask, &x, 8, 4); }

PLAIN __m512 _mm512_maskz_loadu_ps(uint16_t mask, const void *x) {
    __m512 to = {0};
    plain_load_where(&to, mask, x, 16, 4);
    return to;
}

/* The elements `scale` * at bytes behind x where the mask has a bit, else those of `others`. */
PLAIN __m512 _mm512_mask_i32gather_ps(__m512 others, uint16_t mask, __m512i at, const void *x, int scale) {
    const plain_words place = (plain_words)at;
    for (int i = 0; i < 16; i++) {
        float element;
        if (!(mask >> i & 1)) continue;
        memcpy(&element, (const char *)x + (long long)(int32_t)place[i] * scale, sizeof element);
        others[i] = element;
    }
    return others;
}

/* The elements `scale` * at bytes behind x. */
PLAIN __m512i _mm512_i32gather_epi32(__m512i at, const void *x, int scale) {
    plain_words place = (plain_words)at;
    for (int i = 0; i < 16; i++)
        memcpy((char *)&place + 4 * i, (const char *)x + (long long)(int32_t)place[i] * scale, 4);
    return (__m512i)place;
}

/* Stores past the caches, and the fence behind these: plain stores need none. */
PLAIN void _mm512_stream_si512(void *to, __m512i x) { memcpy(to, &x, sizeof x); }
PLAIN void _mm_sfence(void) {}

/* x less the next whole number below, rounded down: `rounding` is 1 in all calls. An infinity leaves 0. */
PLAIN __m512 _mm512_reduce_ps(__m512 x, int rounding) {
    for (int i = 0; i < 16 && rounding == 1; i++) {
        const double rest = isinf(x[i]) ? 0 : x[i] - floor(x[i]);
        const float near = rest >= 1 ? 1 : (float)rest;
        x[i] = near > rest || near == 1 ? nextafterf(near, 0) : near;
    }
    return x;
}

/* a 2^floor(b); NaN 2^-INFINITY is 0 and NaN 2^INFINITY infinite. */
PLAIN __m512 _mm512_scalef_ps(__m512 a, __m512 b) {
    for (int i = 0; i < 16; i++) {
        const float x = a[i], y = b[i];
        if (isnan(y)) a[i] = y;
        else if (isinf(y) && isnan(x)) a[i] = y < 0 ? 0 : y;
        else if (isinf(y) && (y < 0 ? isinf(x) : x == 0)) a[i] = NAN;
        else a[i] = (float)ldexp(x, (int)fmax(fmin(floor(y), 1000), -1000));
    }
    return a;
}

/* The lower half; as the lower half; elements of 16 bits, each in a lane of its own. */
PLAIN __m256i _mm512_castsi512_si256(__m512i x) { return (__m256i){x[0], x[1], x[2], x[3]}; }

PLAIN __m512i _mm512_castsi256_si512(__m256i x) { return (__m512i){x[0], x[1], x[2], x[3]}; }

PLAIN __m512i _mm512_cvtepu16_epi32(__m256i x) { return (__m512i)__builtin_convertvector((plain_row)x, plain_words); }

PLAIN __m256i _mm256_cvtepu16_epi32(__m128i x) { return (__m256i)__builtin_convertvector((plain_few)x, plain_ints); }

/* The lower bits of each lane; lanes of 32 bits, each in one of 64; a half of a vector set. */
PLAIN __m256i _mm512_cvtepi32_epi16(__m512i x) { return (__m256i)__builtin_convertvector((plain_words)x, plain_row); }

PLAIN __m256i _mm512_cvtepi64_epi32(__m512i x) { return (__m256i)__builtin_convertvector(x, plain_ints); }

PLAIN __m512i _mm512_cvtepu32_epi64(__m256i x) { return __builtin_convertvector((plain_ints)x, __m512i); }

PLAIN __m512i _mm512_inserti64x4(__m512i x, __m256i half, int which) {
    memcpy((char *)&x + 32 * which, &half, sizeof half);
    return x;
}

#endif
