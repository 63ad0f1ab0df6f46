/* arena.h: all memory of a program: a few mappings made at start, with the sizes of the plan. */
#ifndef GA_ARENA_H
#define GA_ARENA_H

#include "base/ga.h"

typedef struct ga_arena {
    const char *name; /* as in the plan; not copied */
    size_t bytes;     /* mapped */
    size_t used;      /* handed out so far, with the padding for alignment */
    char *base;       /* page aligned, zero-filled */
} ga_arena;

/* Maps exactly `bytes` (a multiple of 4096; 0 is allowed and maps nothing) with one mmap and touches
 * every page, so that a shortage of memory is found here: GA_ENVIRONMENT. Pages are huge where the system has them. */
int ga_arena_open(ga_arena *a, const char *name, size_t bytes, ga_err *e);

/* The same with `bytes` rounded up to whole pages. */
int ga_arena_open_for(ga_arena *a, const char *name, size_t bytes, ga_err *e);

/* The next `bytes` of the arena, zero-filled, at a multiple of `align` (a power of two <= 4096). NULL
 * with GA_BUG in e if the plan is too small. Memory is never given back. */
void *ga_take(ga_arena *a, size_t bytes, size_t align, ga_err *e);

void ga_arena_close(ga_arena *a); /* NULL and never opened (all zero) allowed */

/* Size of an object of `bytes` in a plan: rounded up to a multiple of 64, the alignment used
 * throughout. */
size_t ga_padded(size_t bytes);

#endif
