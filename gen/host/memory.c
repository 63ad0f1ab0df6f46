/* memory.c: see memory.h. Lua makes millions of small tables and strings, and gagen frees few of them. Neighbours in
 * time are neighbours in memory here, and no block has a header.
 * Invariant: a block of class k has k * STEP bytes. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STEP = 16, CLASSES = 32, CHUNK = 2 << 20 };

static void *freed[CLASSES + 1]; /* by class: the last block that was freed, its first word is the one before */
static char *next, *end;         /* the rest of the newest chunk */

/* 0: the block is malloc's. */
static size_t class_of(size_t size) { return size <= CLASSES * STEP ? (size + STEP - 1) / STEP : 0; }

/* The rest of the older chunk, smaller than one block, stays unused. */
static int add_chunk(void) {
    next = aligned_alloc(CHUNK, CHUNK); /* as large as a huge page, and as aligned */
    end = next ? next + CHUNK : NULL;
    if (next) madvise(next, CHUNK, MADV_HUGEPAGE); /* a wish: without huge pages it is only slower */
    return next != NULL;
}

static void *take(size_t class) {
    void *block = freed[class];
    if (block) {
        memcpy(&freed[class], block, sizeof block);
        return block;
    }
    if ((size_t)(end - next) < class * STEP && !add_chunk()) return NULL;
    block = next;
    next += class * STEP;
    return block;
}

static void give(void *block, size_t class) {
    memcpy(block, &freed[class], sizeof block);
    freed[class] = block;
}

static void *move(void *block, size_t before, size_t after) {
    const size_t from = class_of(before), to = class_of(after);
    void *moved = to ? take(to) : malloc(after);
    if (!moved) return after <= before ? block : NULL; /* to shrink a block must not fail */
    memcpy(moved, block, before < after ? before : after);
    if (from) give(block, from);
    else free(block);
    return moved;
}

void *ga_memory_resize(void *unused, void *block, size_t before, size_t after) {
    (void)unused;
    if (after == 0) {
        const size_t class = block ? class_of(before) : 0;
        if (class) give(block, class);
        else free(block);
        return NULL;
    }
    const size_t class = class_of(after);
    if (!block) return class ? take(class) : malloc(after);
    if (class_of(before) != class) return move(block, before, after);
    return class ? block : realloc(block, after);
}
