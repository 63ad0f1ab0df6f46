/* immintrin.h: stands in the tests' builds for the compiler's header, whose reading would take longer than all else
 * of a program. It has the intrinsics that gen/emit/targets/c/math.lua writes, by the same builtins. */
#ifndef GA_TEST_IMMINTRIN_H
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

#endif
