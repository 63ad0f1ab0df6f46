// math: vectors, and elementary functions of f32, for all kernels. The functions have no branches, calls or tables, so
// that compilers turn loops over them into vector code; an element goes through the same operations whether its loop
// runs in vectors or not. Limits are minima of integers: of two floats that are compared one after the other, compilers
// make branches with constants behind each. The comment of a function says its greatest error over all floats, in
// units of the last place (ulp); where denormals are flushed, as in a team's threads, they count as 0. f64, sin, cos
// and pow use the C library; 1 / sqrt(x) is two correctly rounded operations.

//@ unroll(four)
/* UNROLL for (...): all passes are written out, so that arrays that they index stay in registers. With a number clang
//% if four then
 * would write out part of a function's loop before a call says how many passes there are.
 * UNROLL_FOUR for (...): four passes are written out between two tests for the end. */
//% else
 * would write out part of a function's loop before a call says how many passes there are. */
//% end
#if defined __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
//% if four then
#define UNROLL_FOUR _Pragma("clang loop unroll_count(4)")
//% end
#else
#define UNROLL _Pragma("GCC unroll 16")
//% if four then
#define UNROLL_FOUR _Pragma("GCC unroll 4")
//% end
#endif

//@ independent()
/* INDEPENDENT for (...): no pass reads or writes elements that another one writes, so passes may run side by side. */
#if defined __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

//@ vectors(bytes, fma, renamed)
/* The elements that one instruction works on: VEC_LANES neighbours. vec_at is the same at any address. */
enum { VEC_LANES = $bytes / sizeof(real) };
typedef real vec __attribute__((vector_size($bytes)));
typedef real vec_at __attribute__((vector_size($bytes), aligned(sizeof(real)), may_alias));

//% if renamed then
#if defined __clang__ && __clang_major__ >= 19
static inline vec vec_fma(vec a, vec b, vec c) { return __builtin_elementwise_fma(a, b, c); }
#else
static inline vec vec_fma(vec a, vec b, vec c) { return $fma; }
#endif
//% else
static inline vec vec_fma(vec a, vec b, vec c) { return $fma; }
//% end
static inline vec vec_all(real x) { return x - (vec){0}; }

/* The first n elements at p, zeros behind them; calls give a literal for n, 1 .. VEC_LANES. */
static inline __attribute__((always_inline)) vec vec_load(const real *p, const int n) {
    if (n == VEC_LANES) return *(const vec_at *)p;
    vec x = {0};
    memcpy(&x, p, (size_t)n * sizeof(real));
    return x;
}

static inline __attribute__((always_inline)) void vec_store(real *p, vec x, const int n) {
    if (n == VEC_LANES) *(vec_at *)p = x;
    else memcpy(p, &x, (size_t)n * sizeof(real));
}

//@ fmaf(value)
static inline float ga_fmaf(float a, float b, float c) { return $value; }

//@ portable_fma(scalar)
/* a b + c, rounded once where the processor has an instruction for that, as where the program was trained. */
#if defined __FMA__ || defined __FP_FAST_FMAF || defined __ARM_FEATURE_FMA
#define PORTABLE_FMA(a, b, c) $scalar(a, b, c)
#else
#define PORTABLE_FMA(a, b, c) ((a) * (b) + (c))
#endif

//@ portable_vec_fma(builtin, each)
#if defined __FMA__ && defined __clang__ && __clang_major__ >= 19
#define PORTABLE_VEC_FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#elif defined __FMA__
#define PORTABLE_VEC_FMA(a, b, c) (vec) $builtin(a, b, c)
#elif defined __FP_FAST_FMAF || defined __ARM_FEATURE_FMA
#define PORTABLE_VEC_FMA(a, b, c) \
    ((vec){$each})
#else
#define PORTABLE_VEC_FMA(a, b, c) ((a) * (b) + (c))
#endif

//@ bits()
static inline uint32_t ga_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ga_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

//@ grown()
/* e^r - 1 for |r| <= ln 2 / 2. */
static inline float ga_grown(float r) {
    const float square = r * r, high = ga_fmaf(r, 1.37811073e-3f, 8.3697913e-3f);
    const float q = ga_fmaf(square, high, ga_fmaf(r, 4.16684e-2f, 0.166664973f));
    return ga_fmaf(square, ga_fmaf(r, q, 0.49999994f), r);
}

/* x - n ln 2, ln 2 in two parts: n times the first is exact. */
static inline float ga_less_ln2(float x, float n) {
    return ga_fmaf(n, 2.12194440e-4f, ga_fmaf(n, -0.693359375f, x));
}

//@ expf()
/* e^x; error below 1 ulp. With x = n ln 2 + r, |r| <= ln 2 / 2: e^x = 2^n e^r, and 2^n is multiplied in two parts, so
 * that results may be denormal: the first is 2^64 or, for x < 0, 2^-64. Above the range n is 128 and r large, so that
 * the product is infinite. */
static inline float ga_expf(float x) {
    const float big = 12583166.0f; /* 1.5 2^23 + 254: adding it rounds to an integer, in the lowest bits */
    const int32_t sum = (int32_t)ga_bits(ga_fmaf(x, 1.44269504f, big)), most = 0x4b4000fe + 128;
    const int32_t shifted = sum < most ? sum : most;
    const float power = ga_grown(ga_less_ln2(x, ga_from_bits((uint32_t)shifted) - big)) + 1.0f;
    const uint32_t first = 0x5f800000 - (ga_bits(x) >> 31 << 30), second = ((uint32_t)shifted << 23) - first;
    const float value = power * ga_from_bits(second) * ga_from_bits(first);
    return x < -104.0f ? 0.0f : value;
}

//@ logf()
/* Natural logarithm; error below 1 ulp. With x = 2^e m, sqrt(1/2) <= m < sqrt(2), and f = m - 1:
 * ln x = e ln 2 + f - f^2 / 2 + f^3 p(f). */
static inline float ga_logf(float x) {
    const float scaled = x < 1.17549435e-38f ? x * 33554432.0f : x; /* denormal: times 2^25 */
    const uint32_t bits = ga_bits(scaled) + (0x3f800000 - 0x3f3504f3);
    const float m = ga_from_bits((bits & 0x7fffff) + 0x3f3504f3);
    const float e = (float)((int32_t)(bits >> 23) - (x < 1.17549435e-38f ? 152 : 127));
    const float f = m - 1.0f, square = f * f;
    float p = ga_fmaf(f, -7.63450291e-2f, 0.1276157735f);
    p = ga_fmaf(p, f, -0.1316018047f);
    p = ga_fmaf(p, f, 0.14201758f);
    p = ga_fmaf(p, f, -0.1662335753f);
    p = ga_fmaf(p, f, 0.2000122687f);
    p = ga_fmaf(p, f, -0.2500082103f);
    p = ga_fmaf(p, f, 0.3333333171f);
    const float low = ga_fmaf(e, -2.12194440e-4f, f * square * p);
    float y = ga_fmaf(e, 0.693359375f, f + ga_fmaf(square, -0.5f, low));
    y = x < INFINITY ? y : x; /* infinite and NaN: as they are */
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f ? NAN : y;
}

//@ tanhf()
/* Hyperbolic tangent; error below 2 ulp. With t = |x|: near 0 t + t^3 p(t^2), else e / (e + 2) with e = e^2t - 1, where
 * 2t = n ln 2 + r as in ga_expf: e = 2^n (e^r - 1) + 2^n - 1. */
static inline float ga_tanhf(float x) {
    const int32_t bits = (int32_t)(ga_bits(x) & 0x7fffffff), ten = 0x41200000; /* tanh 10 is rounded to 1 */
    const float t = ga_from_bits((uint32_t)bits), s = t * t;
    const float p = ga_fmaf(s, ga_fmaf(s, -5.18155247e-2f, 0.1332791895f), -0.3333331347f);
    const int32_t least = bits < ten ? bits : ten;
    const float two = 2.0f * ga_from_bits((uint32_t)least), big = 12582912.0f;
    const float shifted = ga_fmaf(two, 1.44269504f, big), power = ga_from_bits((ga_bits(shifted) << 23) + 0x3f800000);
    const float e = ga_fmaf(power, ga_grown(ga_less_ln2(two, shifted - big)), power - 1.0f);
    const float value = t >= 0.26f ? e / (e + 2.0f) : ga_fmaf(t * s, p, t); /* NaN stays NaN */
    return ga_from_bits(ga_bits(value) | (ga_bits(x) & 0x80000000));
}

//@ erff()
/* Error function; error below 2 ulp. With t = |x|: near 0 t + t p(t^2), else 1 - e^-q(t) with q = -ln erfc and e^-q as
 * in ga_expf. */
static inline float ga_erff(float x) {
    const int32_t bits = (int32_t)(ga_bits(x) & 0x7fffffff), four = 0x40800000; /* erf 4 is rounded to 1 */
    const float t = ga_from_bits((uint32_t)bits), s = t * t;
    float p = ga_fmaf(s, 7.85386118e-5f, -8.010193569e-4f);
    p = ga_fmaf(p, s, 5.188327679e-3f);
    p = ga_fmaf(p, s, -2.685381193e-2f);
    p = ga_fmaf(p, s, 0.1128358515f);
    p = ga_fmaf(p, s, -0.3761262582f);
    p = ga_fmaf(p, s, 0.1283791657f);
    const int32_t least = bits < four ? bits : four;
    const float u = ga_from_bits((uint32_t)least), square = u * u;
    float q = ga_fmaf(u, 2.149612809e-5f, -4.391065741e-4f);
    q = ga_fmaf(square, q, ga_fmaf(u, 4.193612218e-3f, -2.517897118e-2f));
    q = ga_fmaf(square, q, ga_fmaf(u, 0.1083724844f, 0.6332626064f));
    q = ga_fmaf(square, q, ga_fmaf(u, 1.129556833f, -1.834448346e-4f));
    const float big = 12582912.0f;
    const float shifted = ga_fmaf(q, -1.44269504f, big), power = ga_from_bits((ga_bits(shifted) << 23) + 0x3f800000);
    const float far = 1.0f - ga_fmaf(power, ga_grown(ga_less_ln2(-q, shifted - big)), power);
    const float value = t >= 1.0f ? far : ga_fmaf(t, p, t); /* NaN stays NaN */
    return ga_from_bits(ga_bits(value) | (ga_bits(x) & 0x80000000));
}

//@ fetch()
/* Asks for a part of a row that is read some rows later: processors do not foresee what is far apart. */
static inline void fetch_row(const void *from, size_t bytes) {
    for (size_t b = 0; b < bytes; b += 64) __builtin_prefetch((const char *)from + b, 0, 2);
}

//@ ask()
/* Asks for n rows of d elements of so many bytes, `row` elements apart, that are written soon. */
static inline void ask_rows(const void *rows, size_t row, int n, int d, size_t bytes) {
    for (int i = 0; i < n; i++)
        for (size_t b = 0; b < d * bytes; b += 64)
            __builtin_prefetch((const char *)rows + i * row * bytes + b, 1, 2);
}

//@ greatest(whole, last, most)
/* Integers in the order of the numbers, a NaN beyond the infinities; the order of an integer is the number again. */
static inline $whole order_of($whole bits) { return bits ^ (bits >> $last & $most); }

/* The greatest of n elements and of `greatest`, by integers: compilers make vectors of their maximum. A NaN without a
 * sign is above all numbers, one with a sign below. */
static inline real row_greatest(const real *x, int n, real greatest) {
    $whole top, bits;
    memcpy(&top, &greatest, sizeof top);
    top = order_of(top);
    for (int c = 0; c < n; c++) {
        memcpy(&bits, x + c, sizeof bits);
        const $whole order = order_of(bits);
        top = order > top ? order : top;
    }
    bits = order_of(top);
    memcpy(&greatest, &bits, sizeof bits);
    return greatest;
}

//@ rows(exp)
/* The sum of e^(x[c] - shift) over n elements. Element c goes to lane c % LANES, then lane by lane. */
static inline real row_exp_sum(const real *x, real shift, int n) {
    enum { LANES = 16 };
    real lane[LANES] = {0};
    int c = 0;
    for (; c + LANES <= n; c += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += $exp(x[c + j] - shift);
    for (int j = 0; c + j < n; j++) lane[j] += $exp(x[c + j] - shift);
    for (int j = 1; j < LANES; j++) lane[0] += lane[j];
    return lane[0];
}

//@ rows_exp(exp)
/* Elements 0 .. count[i] - 1 of n rows, whole runs of 16, become e^(scale x - shift[i]). A function of its own: the
 * constants of the exponential stay in registers. */
static __attribute__((noinline)) void rows_exp(real *restrict x, int stride, int n, const int *restrict count,
                                               real scale, const real *restrict shift) {
    enum { RUN = 16 };
    for (int i = 0; i < n; i++, x += stride) {
        const real from = shift[i];
        for (int c = 0; c < count[i]; c += RUN)
            for (int j = 0; j < RUN; j++) x[c + j] = $exp(x[c + j] * scale - from);
    }
}
