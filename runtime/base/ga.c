/* ga.c: errors, element types, the clock, and lines to stderr. */
#include "base/ga.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void clean_text(char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 32 || *s == 127) *s = '?';
}

int ga_fail(ga_err *e, ga_status status, const char *fmt, ...) {
    if (e) {
        char text[sizeof e->msg]; /* the arguments may point into e->msg */
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof text, fmt, args);
        va_end(args);
        clean_text(text);
        snprintf(e->msg, sizeof e->msg, "%s", text);
        e->code = status;
    }
    return status;
}

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [GA_F32] = {"F32", 4}, [GA_F64] = {"F64", 8}, [GA_BF16] = {"BF16", 2}, [GA_F16] = {"F16", 2},
    [GA_I32] = {"I32", 4}, [GA_I64] = {"I64", 8}, [GA_U8] = {"U8", 1},
};

size_t ga_dtype_bytes(ga_dtype t) {
    return dtypes[t].bytes;
}

const char *ga_dtype_name(ga_dtype t) {
    return dtypes[t].name;
}

/* BF16 is the upper half of an F32. */
static double bf16_value(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds to nearest, ties to even; a NaN stays a NaN. */
static uint16_t bf16_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(isnan(value) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static double f16_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) size = mantissa ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

double ga_get(const void *base, ga_dtype t, int64_t i) {
    switch (t) {
    case GA_F64: return ((const double *)base)[i];
    case GA_BF16: return bf16_value(((const uint16_t *)base)[i]);
    case GA_F16: return f16_value(((const uint16_t *)base)[i]);
    case GA_I64: return (double)((const int64_t *)base)[i];
    default: return (double)((const float *)base)[i];
    }
}

void ga_set(void *base, ga_dtype t, int64_t i, double value) {
    if (t == GA_F64)
        ((double *)base)[i] = value;
    else if (t == GA_BF16)
        ((uint16_t *)base)[i] = bf16_bits((float)value);
    else
        ((float *)base)[i] = (float)value;
}

double ga_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ga_open_streams(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

int ga_stack_open(ga_err *e) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= GA_STACK) return GA_OK;
    const unsigned long long found = limit.rlim_cur;
    limit.rlim_cur = GA_STACK;
    if (limit.rlim_max < GA_STACK) limit.rlim_max = GA_STACK; /* root may */
    if (setrlimit(RLIMIT_STACK, &limit) == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "the stack is limited to %llu KB (ulimit -s), %d KB expected", found / 1024,
                   GA_STACK / 1024);
}

int ga_matrix_open(ga_err *e) {
#ifdef SYS_arch_prctl
    enum { ASK = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA of asm/prctl.h */
    if (syscall(SYS_arch_prctl, ASK, TILES) == 0) return GA_OK;
#endif
    return ga_fail(e, GA_ENVIRONMENT, "built for CPUs with matrix registers (AMX); this one has none, or its system "
                   "refuses them: generate with --march x86-64-v4");
}

#define CLEAR "\r\033[K" /* to the first column, then clear to the end of the line */

static atomic_bool drawn;

static void write_text(const char *text, size_t n) {
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

void ga_draw(const char *text) {
    char line[512];
    const bool was_drawn = atomic_exchange(&drawn, text != NULL);
    if (!text && was_drawn) write_text("\n", 1);
    if (!text) return;
    const int n = snprintf(line, sizeof line, CLEAR "%.500s", text);
    if (n > 0) write_text(line, (size_t)n);
}

void ga_draw_clear(void) {
    if (atomic_exchange(&drawn, false)) write_text(CLEAR, sizeof CLEAR - 1);
}

bool ga_draw_shown(void) {
    return atomic_load(&drawn);
}

void ga_say(const char *fmt, ...) {
    char line[1024];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (n < 0) return;
    if ((size_t)n > sizeof line - 2) n = (int)sizeof line - 2;
    line[n] = 0;
    clean_text(line);
    line[n] = '\n';
    ga_draw_clear();
    write_text(line, (size_t)n + 1);
}
