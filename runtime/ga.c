/* ga.c: errors, element types, the clock, and lines to stderr. */
#include "ga.h"

#include <fcntl.h>
#include <stdio.h>
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

double ga_get(const void *base, ga_dtype t, int64_t i) {
    return t == GA_F64 ? ((const double *)base)[i] : (double)((const float *)base)[i];
}

void ga_set(void *base, ga_dtype t, int64_t i, double value) {
    if (t == GA_F64)
        ((double *)base)[i] = value;
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
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n + 1);
    (void)ignored;
}
