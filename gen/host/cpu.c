/* cpu.c: the features of this processor, named as in the compiler's -m options. */
#include "host.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>

typedef enum { EAX, EBX, ECX, EDX } cpuid_register;

typedef struct {
    const char *name;
    unsigned leaf, sub;
    cpuid_register in;
    int bit;
    uint64_t state; /* bits of XCR0 that the system must have enabled */
} feature;

enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6, AMX_STATE = 0x60000 };

static const feature features[] = {
    { "sse4.2", 1, 0, ECX, 20, 0 },
    { "popcnt", 1, 0, ECX, 23, 0 },
    { "movbe", 1, 0, ECX, 22, 0 },
    { "lzcnt", 0x80000001, 0, ECX, 5, 0 },
    { "bmi", 7, 0, EBX, 3, 0 },
    { "bmi2", 7, 0, EBX, 8, 0 },
    { "avx", 1, 0, ECX, 28, AVX_STATE },
    { "f16c", 1, 0, ECX, 29, AVX_STATE },
    { "fma", 1, 0, ECX, 12, AVX_STATE },
    { "avx2", 7, 0, EBX, 5, AVX_STATE },
    { "avxvnni", 7, 1, EAX, 4, AVX_STATE },
    { "avx512f", 7, 0, EBX, 16, AVX512_STATE },
    { "avx512dq", 7, 0, EBX, 17, AVX512_STATE },
    { "avx512cd", 7, 0, EBX, 28, AVX512_STATE },
    { "avx512bw", 7, 0, EBX, 30, AVX512_STATE },
    { "avx512vl", 7, 0, EBX, 31, AVX512_STATE },
    { "avx512vnni", 7, 0, ECX, 11, AVX512_STATE },
    { "avx512bf16", 7, 1, EAX, 5, AVX512_STATE },
    { "avx512fp16", 7, 0, EDX, 23, AVX512_STATE },
    { "amx-tile", 7, 0, EDX, 24, AMX_STATE },
    { "amx-int8", 7, 0, EDX, 25, AMX_STATE },
    { "amx-bf16", 7, 0, EDX, 22, AMX_STATE },
};

/* XCR0: the register sets that the operating system saves. */
static uint64_t enabled_state(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

int ga_cpu_features(lua_State *L) {
    uint64_t state = enabled_state();
    lua_Integer n = 0;
    lua_newtable(L);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const feature *f = &features[i];
        unsigned r[4];
        if (!__get_cpuid_count(f->leaf, f->sub, &r[EAX], &r[EBX], &r[ECX], &r[EDX])) continue;
        if (!(r[f->in] >> f->bit & 1) || (state & f->state) != f->state) continue;
        lua_pushstring(L, f->name);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

#elif defined(__aarch64__)

int ga_cpu_features(lua_State *L) {
    lua_newtable(L);
    lua_pushliteral(L, "aarch64");
    lua_rawseti(L, -2, 1);
    return 1;
}

#else
#error "gagen knows x86_64 and aarch64"
#endif
