/* arena.c: one mapping per arena, bump allocation inside. */
#include "base/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

size_t ga_padded(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

int ga_arena_open(ga_arena *a, const char *name, size_t bytes, ga_err *e) {
    *a = (ga_arena){.name = name, .bytes = bytes};
    if (bytes % PAGE)
        return ga_fail(e, GA_BUG, "arena %s: %zu bytes planned, not a multiple of %d", name, bytes,
                       PAGE);
    if (bytes == 0) return GA_OK;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return ga_fail(
            e, GA_ENVIRONMENT,
            "arena %s: no memory for the planned %zu bytes (%s); free some, or plan less", name,
            bytes, strerror(errno));
    madvise(base, bytes, MADV_DONTFORK); /* no child, such as the guard of a rank, makes this process copy its pages */
    a->base = base;
    /* Before the first touch, since that decides the size of a page; a kernel without huge pages refuses it. */
    if (bytes >= HUGE_PAGE) madvise(base, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes; i += PAGE) ((volatile char *)a->base)[i] = 0;
    return GA_OK;
}

int ga_arena_open_for(ga_arena *a, const char *name, size_t bytes, ga_err *e) {
    return ga_arena_open(a, name, (bytes + 4095) / 4096 * 4096, e);
}

void *ga_take(ga_arena *a, size_t bytes, size_t align, ga_err *e) {
    size_t start = (a->used + align - 1) / align * align;
    if (start > a->bytes || bytes > a->bytes - start) {
        ga_fail(e, GA_BUG, "arena %s: plan too small: %zu bytes wanted at %zu of %zu", a->name,
                bytes, start, a->bytes);
        return NULL;
    }
    a->used = start + bytes;
    return a->base + start;
}

void ga_arena_close(ga_arena *a) {
    if (!a) return;
    if (a->base) munmap(a->base, a->bytes);
    *a = (ga_arena){0};
}
