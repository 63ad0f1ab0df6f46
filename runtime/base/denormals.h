/* denormals.h: reading and writing denormal numbers as zero. Threads that compute do so, since denormals are slow. */
#ifndef GA_DENORMALS_H
#define GA_DENORMALS_H

#include <stdint.h>

/* Flushes denormals in this thread from here on; returns the control word before. */
static inline uint64_t ga_flush_denormals(void) {
#if defined(__x86_64__)
    unsigned old = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(old | 0x8040u);
    return old;
#elif defined(__aarch64__)
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" ::"r"(old | (uint64_t)1 << 24));
    return old;
#else
    return 0;
#endif
}

/* Keeps denormals in this thread from here on, as kernels of a device do. */
static inline void ga_keep_denormals(void) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    __asm__ volatile("msr fpcr, %0" ::"r"(old & ~((uint64_t)1 << 24)));
#endif
}

/* Sets the control word back. */
static inline void ga_restore_denormals(uint64_t old) {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr((unsigned)old);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(old));
#else
    (void)old;
#endif
}

#endif
