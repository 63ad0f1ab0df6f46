/* immintrin.h: stands in the tests' builds for the compiler's header, whose reading would take longer than all else
 * of a program. It has the intrinsics that gen/emit/targets/c/math.lua writes, by the same builtins. */
#ifndef __AVX512F__
#include "../matrix/immintrin.h" /* the compiler makes no such instructions: plain C */
#elif !defined GA_TEST_IMMINTRIN_H
#define GA_TEST_IMMINTRIN_H

typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));

/* a * b + c, rounded once: in all lanes (-1), in the direction that is set (4). */
static inline __attribute__((always_inline)) __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
    return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
}

static inline __attribute__((always_inline)) __m512d _mm512_fmadd_pd(__m512d a, __m512d b, __m512d c) {
    return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
}

/* Lanes of a and b, which index counts from 0 to 31. */
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef int ga_lanes __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) __m512i _mm512_permutex2var_epi32(__m512i a, __m512i index, __m512i b) {
    return (__m512i)__builtin_shuffle((ga_lanes)a, (ga_lanes)b, (ga_lanes)index);
}

/* Pairs of bf16, and the products of two pairs added to a sum. */
typedef short __m512bh __attribute__((vector_size(64), may_alias));

static inline __attribute__((always_inline)) __m512 _mm512_dpbf16_ps(__m512 sums, __m512bh a, __m512bh b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
}

/* 16 numbers of low, then 16 of high, rounded to bf16. */
static inline __attribute__((always_inline)) __m512bh _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
    __m512bh all;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(all) : "v"(high), "v"(low));
    return all;
}

typedef short ga_short_lanes __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) __m512i _mm512_permutexvar_epi16(__m512i index, __m512i x) {
    return (__m512i)__builtin_shuffle((ga_short_lanes)x, (ga_short_lanes)index);
}

static inline __attribute__((always_inline)) __m512i _mm512_maskz_permutexvar_epi16(unsigned lanes, __m512i index,
                                                                                    __m512i x) {
    return (__m512i)__builtin_ia32_permvarhi512_mask((ga_short_lanes)x, (ga_short_lanes)index, (ga_short_lanes){0},
                                                     lanes);
}

/* A bit for each negative lane. */
static inline __attribute__((always_inline)) unsigned short _mm512_movepi32_mask(__m512i x) {
    return (unsigned short)__builtin_ia32_cvtd2mask512((ga_lanes)x);
}

/* x less the next whole number below, rounded down (rounding 1); a 2^floor(b). */
static inline __attribute__((always_inline)) __m512 _mm512_reduce_ps(__m512 x, const int rounding) {
    __asm__("vreduceps %2, %1, %0" : "=v"(x) : "v"(x), "i"(rounding));
    return x;
}

static inline __attribute__((always_inline)) __m512 _mm512_scalef_ps(__m512 a, __m512 b) {
    __asm__("vscalefps %2, %1, %0" : "=v"(a) : "v"(a), "v"(b));
    return a;
}

/* Elements of 16 bits where the mask has a bit, else 0. */
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef short ga_row __attribute__((vector_size(32))), ga_rows __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) __m256i _mm256_maskz_loadu_epi16(unsigned short mask, const void *x) {
    return (__m256i)__builtin_ia32_loaddquhi256_mask((const short *)x, (ga_row){0}, mask);
}

static inline __attribute__((always_inline)) __m512i _mm512_maskz_loadu_epi16(unsigned mask, const void *x) {
    return (__m512i)__builtin_ia32_loaddquhi512_mask((const short *)x, (ga_rows){0}, mask);
}

/* The lower half; as the lower half; elements of 16 bits, each in a lane of its own. */
static inline __attribute__((always_inline)) __m256i _mm512_castsi512_si256(__m512i x) {
    return (__m256i){x[0], x[1], x[2], x[3]};
}

static inline __attribute__((always_inline)) __m512i _mm512_castsi256_si512(__m256i x) {
    return (__m512i){x[0], x[1], x[2], x[3]};
}

static inline __attribute__((always_inline)) __m512i _mm512_cvtepu16_epi32(__m256i x) {
    return (__m512i)__builtin_ia32_pmovzxwd512_mask((ga_row)x, (ga_lanes){0}, -1);
}

/* Lanes of a and b, which index counts from 0 to 63. */
static inline __attribute__((always_inline)) __m512i _mm512_maskz_permutex2var_epi16(unsigned mask, __m512i a,
                                                                                     __m512i index, __m512i b) {
    return (__m512i)__builtin_ia32_vpermt2varhi512_maskz((ga_rows)index, (ga_rows)a, (ga_rows)b, mask);
}

/* The elements of 32 bits at from + index * scale bytes. */
#define _mm512_i32gather_epi32(index, from, scale) \
    ((__m512i)__builtin_ia32_gathersiv16si((ga_lanes){0}, from, (ga_lanes)(index), -1, scale))

/* The matrix registers; a stride is in bytes. */
#define _tile_loadconfig(shapes) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(shapes)))
#define _tile_release() __asm__ volatile("tilerelease")
#define _tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define GA_TILE_ADDRESS(at, stride) "r"(at), "r"((long long)(stride)) : "memory"
#define _tile_loadd(t, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : GA_TILE_ADDRESS(from, stride))
#define _tile_stream_loadd(t, from, stride) \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : GA_TILE_ADDRESS(from, stride))
#define _tile_stored(t, to, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : GA_TILE_ADDRESS(to, stride))
#define _tile_dpbf16ps(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
