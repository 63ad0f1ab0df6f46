/* The allocator of gagen's Lua: blocks keep their content through every change of size and never overlap. */
#include "scratch.h"
#include "memory.h"

#include <string.h>

enum { BLOCKS = 200, STEPS = 20000, LARGEST = 3000 };

typedef struct {
    unsigned char *at;
    size_t size;
    unsigned char mark; /* in each of its bytes */
} block;

static unsigned state = 7;

static size_t drawn(size_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* Mostly small sizes, as Lua asks for. */
static size_t drawn_size(void) { return drawn(4) ? drawn(80) : drawn(LARGEST); }

static void check(const block *b, size_t size) {
    for (size_t i = 0; i < size; i++) assert_int_equal(b->at[i], b->mark);
}

static void resized_blocks_keep_their_content(void **unused) {
    (void)unused;
    static block blocks[BLOCKS];
    for (int i = 0; i < STEPS; i++) {
        block *b = &blocks[drawn(BLOCKS)];
        const size_t size = drawn_size();
        b->at = ga_memory_resize(NULL, b->at, b->size, size);
        assert_int_equal(b->at == NULL, size == 0);
        check(b, size < b->size ? size : b->size);
        b->size = size;
        b->mark = (unsigned char)i;
        if (size) memset(b->at, b->mark, size);
    }
    for (int i = 0; i < BLOCKS; i++) {
        check(&blocks[i], blocks[i].size);
        ga_memory_resize(NULL, blocks[i].at, blocks[i].size, 0);
    }
}

static void freed_blocks_are_used_again(void **unused) {
    (void)unused;
    void *first = ga_memory_resize(NULL, NULL, 0, 40);
    ga_memory_resize(NULL, first, 40, 0);
    void *second = ga_memory_resize(NULL, NULL, 0, 48); /* of the same class */
    assert_ptr_equal(first, second);
    assert_ptr_equal(ga_memory_resize(NULL, second, 48, 33), second);
    ga_memory_resize(NULL, second, 33, 0);
}

/* Lua gives the kind of a new object in place of the size before. */
static void a_new_block_has_any_size_before(void **unused) {
    (void)unused;
    void *b = ga_memory_resize(NULL, NULL, 5, 600);
    assert_non_null(b);
    b = ga_memory_resize(NULL, b, 600, 700);
    b = ga_memory_resize(NULL, b, 700, 16);
    assert_non_null(b);
    assert_null(ga_memory_resize(NULL, b, 16, 0));
    assert_null(ga_memory_resize(NULL, NULL, 5, 0));
}

int test_memory(void);
int test_memory(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(resized_blocks_keep_their_content),
                                       cmocka_unit_test(freed_blocks_are_used_again),
                                       cmocka_unit_test(a_new_block_has_any_size_before)};
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
