/* math.h: the C library's, for the tests' builds, which leave out optimizations. Upper halves of vectors are cleared
 * before functions that kernels call, since code for SSE takes up to ten times as long behind AVX otherwise. GCC clears
 * them with -fexpensive-optimizations, but compiles for a sixth longer then. */
#include_next <math.h>

#if defined(__AVX__) && !defined(GA_TEST_MATH)
#define GA_TEST_MATH
#define GA_CLEARED(call) (__builtin_ia32_vzeroupper(), call)
#define exp(x) GA_CLEARED(exp(x))
#define expm1(x) GA_CLEARED(expm1(x))
#define log(x) GA_CLEARED(log(x))
#define log1p(x) GA_CLEARED(log1p(x))
#define pow(x, y) GA_CLEARED(pow(x, y))
#define sin(x) GA_CLEARED(sin(x))
#define cos(x) GA_CLEARED(cos(x))
#define tanh(x) GA_CLEARED(tanh(x))
#define erf(x) GA_CLEARED(erf(x))
#endif
