/* byte_pairs.c: the tokens of GPT-2 (Radford et al., 2019). A text is split into words by the pattern
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * and within a word neighbours are merged into learned tokens, those learned first before others, from the
 * left. A heap holds the possible merges, so a word of n bytes takes time n log n. */
#include "host.h"
#include "unicode.h"

#include <string.h>

/* The merge of `left` and `right` into `joined`, with its rank in learned order; used = 0: a free slot */
typedef struct merge {
    int32_t left, right, joined, rank;
    int used;
} merge;

typedef struct encoder {
    int32_t byte_id[256];
    uint32_t mask; /* slots - 1; the slots are a power of two */
    merge place[];
} encoder;

/* A token of a word, in a linked list in the order of the text. */
typedef struct token {
    int32_t id, before, next; /* id -1: merged into the previous token */
} token;

/* A possible merge of token `at` and its next, valid while they are still left and right. */
typedef struct candidate {
    int32_t rank, at, left, right, joined;
} candidate;

typedef struct work {
    size_t room; /* bytes of the longest word that fits */
    int32_t heap_size;
    candidate *heap;
    token *list;
} work;

static uint32_t place_of(const encoder *e, int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & e->mask;
    while (e->place[i].used && (e->place[i].left != left || e->place[i].right != right))
        i = (i + 1) & e->mask;
    return i;
}

static int is_before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push(work *w, candidate c) {
    int32_t i = w->heap_size++;
    for (; i > 0 && is_before(&c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = c;
}

static candidate pop(work *w) {
    candidate first = w->heap[0], last = w->heap[--w->heap_size];
    int32_t i = 0, n = w->heap_size;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child + 1 < n && is_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (child >= n || !is_before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return first;
}

/* Adds the merge of token `at` and its next to the heap, if there is one. */
static void consider(const encoder *e, work *w, int32_t at) {
    if (at < 0 || w->list[at].next < 0) return;
    int32_t left = w->list[at].id, right = w->list[w->list[at].next].id;
    const merge *m = &e->place[place_of(e, left, right)];
    if (m->used) push(w, (candidate){m->rank, at, left, right, m->joined});
}

/* Computes the tokens of a word in w->list, linked by next from number 0. */
static void encode_word(const encoder *e, work *w, const char *word, int32_t size) {
    w->heap_size = 0;
    for (int32_t i = 0; i < size; i++)
        w->list[i] = (token){e->byte_id[(unsigned char)word[i]], i - 1, i + 1 < size ? i + 1 : -1};
    for (int32_t i = 0; i < size; i++) consider(e, w, i);
    while (w->heap_size > 0) {
        candidate c = pop(w);
        token *left = &w->list[c.at];
        if (left->id != c.left || left->next < 0 || w->list[left->next].id != c.right) continue;
        token *right = &w->list[left->next];
        left->id = c.joined;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0) w->list[left->next].before = c.at;
        consider(e, w, left->before);
        consider(e, w, c.at);
    }
}

static unsigned kind_at(const char *text, size_t size, size_t at, size_t *end) {
    *end = at;
    return ga_unicode_class(ga_utf8_next(text, size, end)) & (GA_LETTER | GA_NUMBER | GA_SPACE);
}

/* The end of the run of characters of one kind from `at` on; *last: the start of its last character. */
static size_t run_end(const char *text, size_t size, size_t at, size_t *last) {
    size_t end;
    unsigned kind = kind_at(text, size, at, &end);
    for (*last = at; end < size;) {
        size_t next;
        if (kind_at(text, size, end, &next) != kind) break;
        *last = end;
        end = next;
    }
    return end;
}

/* The end of the word that begins at `at`. */
static size_t word_end(const char *text, size_t size, size_t at) {
    static const char *const shortened[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    size_t next, last;
    for (size_t i = 0; text[at] == '\'' && i < sizeof shortened / sizeof *shortened; i++) {
        size_t n = strlen(shortened[i]);
        if (size - at >= n && memcmp(text + at, shortened[i], n) == 0) return at + n;
    }
    if (kind_at(text, size, at, &next) != GA_SPACE) return run_end(text, size, at, &last);
    if (text[at] == ' ' && next < size && kind_at(text, size, next, &last) != GA_SPACE)
        return run_end(text, size, next, &last);
    size_t end = run_end(text, size, at, &last);
    return end < size && last > at ? last : end;
}

/* Makes room for a word of `size` bytes in the memory at stack index `index`. */
static void reserve(lua_State *L, int index, work *w, size_t size) {
    if (size <= w->room) return;
    luaL_argcheck(L, size < 1u << 29, 1, "a word of more than 512 MiB");
    w->room = 2 * size;
    /* one possible merge per byte at first, at most two more after each merge */
    w->list = lua_newuserdatauv(L, w->room * (sizeof(token) + 3 * sizeof(candidate)), 0);
    w->heap = (candidate *)(void *)(w->list + w->room);
    lua_replace(L, index);
}

static int encode(lua_State *L) {
    const encoder *e = lua_touserdata(L, lua_upvalueindex(1));
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    work w = {0};
    luaL_Buffer out;
    lua_settop(L, 2);
    luaL_buffinit(L, &out);
    for (size_t at = 0, end; at < size; at = end) {
        end = word_end(text, size, at);
        reserve(L, 2, &w, end - at);
        encode_word(e, &w, text + at, (int32_t)(end - at));
        for (int32_t i = 0; i >= 0; i = w.list[i].next) {
            char id[2] = {(char)(w.list[i].id & 0xff), (char)(w.list[i].id >> 8)};
            luaL_addlstring(&out, id, sizeof id);
        }
    }
    luaL_pushresult(&out);
    return 1;
}

/* host.byte_pairs(bytes, merges): integers of 32 bits, packed; ids are below 65536 */
int ga_byte_pairs(lua_State *L) {
    size_t size, merges;
    const char *bytes = luaL_checklstring(L, 1, &size), *list = luaL_checklstring(L, 2, &merges);
    luaL_argcheck(L, size == sizeof(int32_t[256]), 1, "expected 256 ids");
    luaL_argcheck(L, merges % sizeof(int32_t[3]) == 0 && merges < 1u << 30, 2, "expected triples");
    int32_t n = (int32_t)(merges / sizeof(int32_t[3]));
    size_t places = 64;
    while (places < 2 * (size_t)n) places *= 2;
    encoder *e = lua_newuserdatauv(L, sizeof *e + places * sizeof *e->place, 0);
    memset(e, 0, sizeof *e + places * sizeof *e->place);
    memcpy(e->byte_id, bytes, size);
    e->mask = (uint32_t)places - 1;
    for (int32_t rank = 0; rank < n; rank++) {
        int32_t triple[3];
        memcpy(triple, list + (size_t)rank * sizeof triple, sizeof triple);
        merge *m = &e->place[place_of(e, triple[0], triple[1])];
        if (!m->used) *m = (merge){triple[0], triple[1], triple[2], rank, 1};
    }
    lua_pushcclosure(L, encode, 1);
    return 1;
}
