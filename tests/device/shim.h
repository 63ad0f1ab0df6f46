// shim.h: CUDA's built-in names for g++, included before every kernel text.
#pragma once
#include "kernel_abi.h"

// Declared here as NVRTC does it: the standard library's headers take longer to compile than most kernels, and their
// macros would be there.
typedef decltype(sizeof 0) size_t;
extern "C" {
void *memcpy(void *to, const void *from, size_t bytes) noexcept;
void *memset(void *at, int value, size_t bytes) noexcept;
double ldexp(double, int) noexcept, frexp(double, int *) noexcept;
float ldexpf(float, int) noexcept, frexpf(float, int *) noexcept;
int abs(int) noexcept;
}
static inline long abs(long v) { return v < 0 ? -v : v; }
static inline long long abs(long long v) { return v < 0 ? -v : v; }
// Of whole numbers a function is the double's, as in C++.
#define DEV_MATH1(name)                                      \
    extern "C" double name(double) noexcept;                 \
    extern "C" float name##f(float) noexcept;                \
    static inline float name(float v) { return name##f(v); } \
    template <class T> static inline double name(T v) { return name((double)v); }
#define DEV_MATH2(name)                                                  \
    extern "C" double name(double, double) noexcept;                     \
    extern "C" float name##f(float, float) noexcept;                     \
    static inline float name(float a, float b) { return name##f(a, b); } \
    template <class A, class B> static inline double name(A a, B b) { return name((double)a, (double)b); }
DEV_MATH1(acos) DEV_MATH1(acosh) DEV_MATH1(asin) DEV_MATH1(asinh) DEV_MATH1(atan) DEV_MATH1(atanh) DEV_MATH1(cbrt)
DEV_MATH1(ceil) DEV_MATH1(cos) DEV_MATH1(cosh) DEV_MATH1(erf) DEV_MATH1(erfc) DEV_MATH1(exp) DEV_MATH1(exp2)
DEV_MATH1(expm1) DEV_MATH1(fabs) DEV_MATH1(floor) DEV_MATH1(lgamma) DEV_MATH1(log) DEV_MATH1(log10) DEV_MATH1(log1p)
DEV_MATH1(log2) DEV_MATH1(logb) DEV_MATH1(nearbyint) DEV_MATH1(rint) DEV_MATH1(round) DEV_MATH1(sin) DEV_MATH1(sinh)
DEV_MATH1(sqrt) DEV_MATH1(tan) DEV_MATH1(tanh) DEV_MATH1(tgamma) DEV_MATH1(trunc)
DEV_MATH2(atan2) DEV_MATH2(copysign) DEV_MATH2(fdim) DEV_MATH2(fmax) DEV_MATH2(fmin) DEV_MATH2(fmod) DEV_MATH2(hypot)
DEV_MATH2(nextafter) DEV_MATH2(pow) DEV_MATH2(remainder)
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
static inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float abs(float v) { return fabsf(v); }
static inline double abs(double v) { return fabs(v); }
static inline float ldexp(float v, int exponent) { return ldexpf(v, exponent); }
#define DEV_TEST(name)                                               \
    static inline bool name(float v) { return __builtin_##name(v); } \
    static inline bool name(double v) { return __builtin_##name(v); }
DEV_TEST(isnan) DEV_TEST(isinf) DEV_TEST(isfinite) DEV_TEST(signbit)

#define __device__
#define __host__
#define __global__ __attribute__((noinline))
#define __forceinline__ inline
#undef __noinline__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __restrict__ __restrict
#define __grid_constant__
#define __shared__ static __attribute__((section("dev_shared")))

// Not instrumented: they access memory of the library, or announce the access to it.
#define DEV_PLAIN __attribute__((no_sanitize("thread", "alignment", "bounds")))
#define DEV_INDEX static inline __attribute__((const)) DEV_PLAIN
DEV_INDEX uint3 dev_thread_index() { return dev_current->index; }
DEV_INDEX uint3 dev_block_index() { return dev_current_block.index; }
DEV_INDEX uint3 dev_block_threads() { return dev_current_block.threads; }
DEV_INDEX uint3 dev_grid() { return dev_current_block.grid; }
#define threadIdx (dev_thread_index())
#define blockIdx (dev_block_index())
#define blockDim (dev_block_threads())
#define gridDim (dev_grid())
#define warpSize 32

#define DEV_VECTOR2(name, T)             \
    struct alignas(2 * sizeof(T)) name { \
        T x, y;                          \
    };                                   \
    static inline name make_##name(T x, T y) { return {x, y}; }
#define DEV_VECTOR4(name, T)  \
    struct alignas(16) name { \
        T x, y, z, w;         \
    };                        \
    static inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }
DEV_VECTOR2(float2, float)
DEV_VECTOR2(double2, double)
DEV_VECTOR2(int2, int)
DEV_VECTOR2(uint2, unsigned)
DEV_VECTOR4(float4, float)
DEV_VECTOR4(int4, int)
DEV_VECTOR4(uint4, unsigned)

template <class To, class From> static inline To dev_bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    __builtin_memcpy(&to, &v, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned v) { return dev_bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return dev_bits<unsigned>(v); }
static inline float __int_as_float(int v) { return dev_bits<float>(v); }
static inline int __float_as_int(float v) { return dev_bits<int>(v); }
static inline double __longlong_as_double(long long v) { return dev_bits<double>(v); }
static inline long long __double_as_longlong(double v) { return dev_bits<long long>(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
static inline int __ffs(int v) { return __builtin_ffs(v); }

static inline float rsqrtf(float v) { return 1.0f / sqrtf(v); }
static inline double rsqrt(double v) { return 1.0 / sqrt(v); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float v) { return 1.0f / v; }
static inline float __fsqrt_rn(float v) { return sqrtf(v); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
template <class T> static inline void __stwb(T *to, T v) {
    dev_global(to);
    *to = v;
}
// Sums and products that the compiler must not contract: the value goes through an opaque copy.
template <class T> static inline T dev_opaque(T v) {
    asm volatile("" : "+m"(v));
    return v;
}
static inline float __fmul_rn(float a, float b) { return dev_opaque(a * b); }
static inline float __fadd_rn(float a, float b) { return dev_opaque(a) + b; }
static inline float __fsub_rn(float a, float b) { return dev_opaque(a) - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline double __dmul_rn(double a, double b) { return dev_opaque(a * b); }
static inline double __dadd_rn(double a, double b) { return dev_opaque(a) + b; }
static inline double __dsub_rn(double a, double b) { return dev_opaque(a) - b; }
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanhf(x) tanhf(x)
template <class T> static inline T dev_min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T dev_max(T a, T b) { return a < b ? b : a; }
#define DEV_MIN_MAX(T)                                      \
    static inline T min(T a, T b) { return dev_min(a, b); } \
    static inline T max(T a, T b) { return dev_max(a, b); }
DEV_MIN_MAX(int)
DEV_MIN_MAX(unsigned)
DEV_MIN_MAX(long)
DEV_MIN_MAX(unsigned long)
DEV_MIN_MAX(long long)
DEV_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
template <class T> static inline T __ldg(const T *p) { return *p; }

#define __syncthreads() ((void)dev_barrier(DEV_SYNC, 0, __COUNTER__, __LINE__))
#define __syncthreads_count(p) dev_barrier(DEV_COUNT, !!(p), __COUNTER__, __LINE__)
#define __syncthreads_and(p) dev_barrier(DEV_AND, !!(p), __COUNTER__, __LINE__)
#define __syncthreads_or(p) dev_barrier(DEV_OR, !!(p), __COUNTER__, __LINE__)
static inline void __threadfence() {}
static inline void __threadfence_block() {}

static inline void dev_serve_nothing(void **, unsigned) {}
static inline void __syncwarp(unsigned mask = 0xffffffffu) {
    dev_warp(mask, DEV_WARP_SYNC, nullptr, dev_serve_nothing);
}

template <class T> struct dev_shuffle_record {
    T in, out;
    int source;  // negative: keeps its own value
};
template <class T> DEV_PLAIN static void dev_serve_shuffle(void **records, unsigned mask) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        auto *r = (dev_shuffle_record<T> *)records[lane];
        if (r->source < 0) continue;
        if (mask >> r->source & 1)
            r->out = ((dev_shuffle_record<T> *)records[r->source])->in;
        else
            dev_bad_lane(r->source, mask);
    }
}
template <class T> DEV_PLAIN static inline T dev_shuffle(unsigned mask, T v, int source) {
    dev_shuffle_record<T> r = {v, v, source};
    dev_warp(mask, DEV_SHUFFLE + 16 * (int)sizeof(T), &r, dev_serve_shuffle<T>);
    return r.out;
}
DEV_INDEX int dev_lane() { return (int)dev_current->lane; }
template <class T> static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    return dev_shuffle(mask, v, dev_lane() / width * width + (source & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int flip, int width = 32) {
    int lane = dev_lane(), source = lane ^ flip;
    return dev_shuffle(mask, v, source / width > lane / width ? -1 : source);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = dev_lane(), source = lane + (int)by;
    return dev_shuffle(mask, v, source / width != lane / width ? -1 : source);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    int lane = dev_lane(), source = lane - (int)by;
    return dev_shuffle(mask, v, source < lane / width * width ? -1 : source);
}

#include "ptx.h"

struct dev_ballot_record {
    int predicate;
    unsigned out;
};
DEV_PLAIN static inline void dev_serve_ballot(void **records, unsigned mask) {
    unsigned all = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1)
            all |= (unsigned)!!((dev_ballot_record *)records[lane])->predicate << lane;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) ((dev_ballot_record *)records[lane])->out = all;
}
DEV_PLAIN static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    dev_ballot_record r = {predicate, 0};
    dev_warp(mask, DEV_BALLOT, &r, dev_serve_ballot);
    return r.out;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }

struct dev_match_record {
    unsigned value, out;
};
DEV_PLAIN static inline void dev_serve_match(void **records, unsigned mask) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        auto *r = (dev_match_record *)records[lane];
        r->out = 0;
        for (int other = 0; other < 32; other++)
            if (mask >> other & 1)
                r->out |= (unsigned)(((dev_match_record *)records[other])->value == r->value) << other;
    }
}
DEV_PLAIN static inline unsigned __match_any_sync(unsigned mask, unsigned value) {
    dev_match_record r = {value, 0};
    dev_warp(mask, DEV_MATCH, &r, dev_serve_match);
    return r.out;
}

// One OS thread runs a launch and switches at barriers only, so plain operations are atomic.
#define DEV_ATOMIC(name, T, expression)                                    \
    DEV_PLAIN __attribute__((noinline, unused)) static T name(T *p, T v) { \
        dev_atomic(p, sizeof *p);                                          \
        T old = *p;                                                        \
        *p = (T)(expression);                                              \
        return old;                                                        \
    }
#define DEV_ATOMICS(T)                                                                      \
    DEV_ATOMIC(atomicAdd, T, old + v)                                                       \
    DEV_ATOMIC(atomicMax, T, old < v ? v : old)                                             \
    DEV_ATOMIC(atomicMin, T, v < old ? v : old)                                             \
    DEV_ATOMIC(atomicExch, T, v)                                                            \
    DEV_PLAIN __attribute__((noinline, unused)) static T atomicCAS(T *p, T expected, T v) { \
        dev_atomic(p, sizeof *p);                                                           \
        T old = *p;                                                                         \
        if (old == expected) *p = v;                                                        \
        return old;                                                                         \
    }
DEV_ATOMICS(int)
DEV_ATOMICS(unsigned)
DEV_ATOMICS(unsigned long long)
DEV_ATOMIC(atomicAdd, float, old + v)
DEV_ATOMIC(atomicAdd, double, old + v)
DEV_ATOMIC(atomicExch, float, v)

// One per kernel, appended to the text: DEV_KERNEL(name, bound, blocks of a cluster).
template <size_t...> struct dev_indices {};
template <class F> struct dev_signature;
template <class... A> struct dev_signature<void (*)(A...)> {
    static constexpr unsigned bytes[sizeof...(A) + 1] = {(unsigned)sizeof(A)..., 0};
    static constexpr int count = sizeof...(A);
    template <void (*kernel)(A...), size_t... I> DEV_PLAIN static void unpack(void **p, dev_indices<I...>) {
        kernel(*(A *)p[I]...);
    }
    template <void (*kernel)(A...)> DEV_PLAIN static void call(void **p) {
        unpack<kernel>(p, dev_indices<__integer_pack(sizeof...(A))...>());
    }
};
#define DEV_KERNEL(name, bound, cluster)                                                    \
    static const dev_kernel dev_kernel_##name = {                                           \
        #name, bound, cluster, dev_signature<decltype(&name)>::count,                                \
        dev_signature<decltype(&name)>::bytes, dev_signature<decltype(&name)>::call<name>}; \
    __attribute__((constructor)) static void dev_announce_##name() {                        \
        dev_register(&dev_kernel_##name);                                                   \
    }
