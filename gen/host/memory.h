/* memory.h: the memory of gagen's Lua. */
#ifndef GA_MEMORY_H
#define GA_MEMORY_H

#include <stddef.h>

/* An allocator as lua_newstate wants it; `unused` is NULL. Blocks of up to 512 bytes are cut from large chunks, which
 * the process keeps; larger ones are malloc's. For one thread. */
void *ga_memory_resize(void *unused, void *block, size_t before, size_t after);

#endif
