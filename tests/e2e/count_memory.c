/* count_memory.c: linked into a program with --wrap, it counts what program and runtime ask of the
 * allocators, before and after the line `ready`, and says it at the end, with the most memory that was resident;
 * with STOP_AT_READY in the environment that is at `ready`. */
#define _GNU_SOURCE
#include "runtime/base/ga.h"
#include "runtime/base/rng.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    bool ready;
    size_t mapped;
    int maps, calls; /* before ready: mappings, and calls of the allocators of the C library */
    int late;        /* after ready: both */
    long files;      /* at ready: KiB of pages of files, those of the program and its libraries */
} counted;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void __wrap_ga_say(const char *fmt, ...);

static void count(int *early) {
    ++*(counted.ready ? &counted.late : early);
}

void *__wrap_malloc(size_t bytes) {
    count(&counted.calls);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes) {
    count(&counted.calls);
    return __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes) {
    count(&counted.calls);
    return __real_realloc(p, bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    count(&counted.maps);
    counted.mapped += bytes;
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

/* A line of proc(5)'s status in KiB, without an allocator; 0: not found. */
static long resident(const char *name) {
    char text[4096] = "";
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n < 0 ? 0 : n] = 0;
    const char *found = strstr(text, name);
    return found ? strtol(found + strlen(name), NULL, 10) : 0;
}

void __wrap_ga_say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (strcmp(fmt, "ready") == 0) {
        counted.ready = true;
        counted.files = resident("RssFile:");
    }
    vdprintf(STDERR_FILENO, fmt, args);
    dprintf(STDERR_FILENO, "\n");
    va_end(args);
    if (counted.ready && getenv("STOP_AT_READY")) exit(0);
}

/* Large specs wrap this too: a tensor's first values are drawn, the others stay 0. */
__attribute__((weak)) void __real_ga_init_normal(void *data, ga_dtype t, int64_t count, uint64_t seed,
                                                 const char *name, double deviation);
void __wrap_ga_init_normal(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                           double deviation);

void __wrap_ga_init_normal(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name,
                           double deviation) {
    __real_ga_init_normal(data, t, count < 4096 ? count : 4096, seed, name, deviation);
}

__attribute__((destructor)) static void say_counts(void) {
    const int late = counted.late;
    dprintf(STDERR_FILENO, "resident: %ld KiB at most, %ld KiB of files\n", resident("VmHWM:"), counted.files);
    dprintf(STDERR_FILENO, "counted: %zu bytes in %d mappings, %d calls, %d after ready\n", counted.mapped,
            counted.maps, counted.calls, late);
}
