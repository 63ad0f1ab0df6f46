/* ga.c: errors, element types, the clock, and lines to stderr. */
#include "base/ga.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
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

int ga_flush_stdout(ga_err *e) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "standard output: it could not be written whole");
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

#define CLEAR "\r\033[K"      /* to the first column, then clear to the end of the line */
#define CLEAR_UP "\033[A\033[K" /* the line above, likewise */

static atomic_int drawn; /* lines that are there */

enum { CLEAR_ROOM = 128 };

static void write_text(const char *text, size_t n) {
    ssize_t ignored = write(STDERR_FILENO, text, n);
    (void)ignored;
}

/* Fills `out` with what removes n lines and leaves the cursor where the first was; returns its length. */
static size_t clear_lines(char out[CLEAR_ROOM], int n) {
    size_t used = sizeof CLEAR - 1;
    memcpy(out, CLEAR, used);
    for (; n > 1 && used + sizeof CLEAR_UP <= CLEAR_ROOM; n--, used += sizeof CLEAR_UP - 1)
        memcpy(out + used, CLEAR_UP, sizeof CLEAR_UP - 1);
    return used;
}

void ga_draw(const char *text) {
    char clear[CLEAR_ROOM];
    int lines = text != NULL;
    for (const char *at = text; at && (at = strchr(at, '\n')); at++) lines++;
    const int before = atomic_exchange(&drawn, lines);
    if (!text && before) write_text("\n", 1);
    if (!text) return;
    struct iovec parts[] = {{clear, clear_lines(clear, before)}, {(void *)(uintptr_t)text, strlen(text)}};
    ssize_t ignored = writev(STDERR_FILENO, parts, 2);
    (void)ignored;
}

void ga_draw_clear(void) {
    char clear[CLEAR_ROOM];
    const int before = atomic_exchange(&drawn, 0);
    if (before) write_text(clear, clear_lines(clear, before));
}

bool ga_draw_shown(void) {
    return atomic_load(&drawn) > 0;
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
