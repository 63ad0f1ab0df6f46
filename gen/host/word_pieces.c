/* word_pieces.c: the tokens of BERT's uncased models (Devlin et al., 2018; Wu et al., 2016). Control
 * characters are removed, Chinese characters become words of their own, accents are removed (canonical
 * decomposition without nonspacing marks), letters become lower case; words end at spaces, and each
 * punctuation sign is a word. A word is divided from the left into the longest pieces of the vocabulary; a
 * word that cannot be divided, or has more than 100 characters, is unknown. */
#include "host.h"
#include "unicode.h"

#include <string.h>

enum { WORD_MOST = 100, WORD_BYTES = 4 * WORD_MOST };

/* A piece of the vocabulary; inner: it continues a word, and has the prefix "##" in the file */
typedef struct piece {
    uint32_t hash;
    int32_t id, size, inner;
    const char *text; /* NULL: a free slot */
} piece;

typedef struct encoder {
    int32_t unknown, longest; /* bytes of the longest piece */
    uint32_t mask;            /* slots - 1; the slots are a power of two */
    piece place[];
} encoder;

typedef struct word {
    char text[WORD_BYTES];
    int32_t size, characters;
} word;

/* FNV-1a, continued by one byte. */
static uint32_t hash_start(int inner) { return inner ? 2166136261u : 2166136261u ^ 0x5bd1e995u; }
static uint32_t hash_byte(uint32_t hash, char byte) { return (hash ^ (unsigned char)byte) * 16777619u; }

static const piece *find(const encoder *e, uint32_t hash, int inner, const char *text, int32_t size) {
    for (uint32_t i = hash & e->mask; e->place[i].text; i = (i + 1) & e->mask) {
        const piece *p = &e->place[i];
        if (p->hash == hash && p->inner == inner && p->size == size && memcmp(p->text, text, (size_t)size) == 0)
            return p;
    }
    return NULL;
}

/* The longest piece at the start of the text. */
static const piece *longest(const encoder *e, int inner, const char *text, int32_t size) {
    const piece *best = NULL;
    uint32_t hash = hash_start(inner);
    if (size > e->longest) size = e->longest;
    for (int32_t n = 1; n <= size; n++) {
        hash = hash_byte(hash, text[n - 1]);
        const piece *p = find(e, hash, inner, text, n);
        if (p) best = p;
    }
    return best;
}

static void add_id(luaL_Buffer *out, int32_t id) { luaL_addlstring(out, (const char *)&id, sizeof id); }

/* Appends the ids of the word and clears it. */
static void end_word(const encoder *e, word *w, luaL_Buffer *out) {
    int32_t ids[WORD_BYTES], n = 0, at = 0, size = w->size;
    int known = w->characters <= WORD_MOST;
    while (known && at < size) {
        const piece *p = longest(e, at > 0, w->text + at, size - at);
        known = p != NULL;
        if (!p) break;
        ids[n++] = p->id;
        at += p->size;
    }
    for (int32_t i = 0; known && i < n; i++) add_id(out, ids[i]);
    if (!known) add_id(out, e->unknown);
    w->size = w->characters = 0;
}

static void add_character(word *w, uint32_t code) {
    if (w->characters++ < WORD_MOST) w->size += ga_utf8_put(w->text + w->size, code);
}

/* Blocks of Chinese characters as the tokenizers of Hugging Face have them (without U+2B820 to U+2B91F). */
static int is_chinese(uint32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

static int is_punctuation(uint32_t c) {
    if (c < 128) return (c > 32 && c < 48) || (c > 57 && c < 65) || (c > 90 && c < 97) || (c > 122 && c < 127);
    return (ga_unicode_class(c) & GA_PUNCTUATION) != 0;
}

static int is_nonspacing(uint32_t c) { return c >= 128 && (ga_unicode_class(c) & GA_NONSPACING) != 0; }

/* Appends the decomposition of a code, without marks that are dropped and do not affect the order. */
static size_t add_decomposed(uint32_t *codes, size_t n, uint32_t code) {
    uint32_t parts[GA_DECOMPOSED];
    int count = ga_unicode_decompose(code, parts);
    for (int i = 0; i < count; i++)
        if (!is_nonspacing(parts[i]) || ga_unicode_combining(parts[i]) == 0) codes[n++] = parts[i];
    return n;
}

/* Cleans and decomposes the text into codes, at most two per byte; returns their number. */
static size_t decompose(const char *text, size_t size, uint32_t *codes) {
    size_t n = 0;
    for (size_t at = 0; at < size;) {
        uint32_t c = ga_utf8_next(text, size, &at);
        unsigned class = c > 32 && c < 127 ? 0 : ga_unicode_class(c);
        if (c == '\t' || c == '\n' || c == '\r') codes[n++] = ' ';
        else if (c == 0 || c == 0xfffd || class & GA_OTHER) continue;
        else if (class & GA_SPACE) codes[n++] = ' ';
        else if (c < 128) codes[n++] = c;
        else if (is_chinese(c)) {
            codes[n++] = ' ';
            n = add_decomposed(codes, n, c);
            codes[n++] = ' ';
        } else n = add_decomposed(codes, n, c);
    }
    return n;
}

/* Sorts the marks after each starter into canonical order: by class, stable. */
static void order(uint32_t *codes, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint32_t c = codes[i];
        int class = c < 128 ? 0 : ga_unicode_combining(c);
        size_t at = i;
        for (; class > 0 && at > 0 && ga_unicode_combining(codes[at - 1]) > class; at--) codes[at] = codes[at - 1];
        codes[at] = c;
    }
}

static int encode(lua_State *L) {
    const encoder *e = lua_touserdata(L, lua_upvalueindex(1));
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    uint32_t *codes = lua_newuserdatauv(L, 2 * size * sizeof *codes + 1, 0);
    size_t n = decompose(text, size, codes);
    word w = {.size = 0};
    luaL_Buffer out;
    order(codes, n);
    luaL_buffinit(L, &out);
    for (size_t i = 0; i < n; i++) {
        uint32_t c = codes[i];
        if (is_nonspacing(c)) continue;
        int sign = is_punctuation(c);
        if ((c == ' ' || sign) && w.characters > 0) end_word(e, &w, &out);
        if (c != ' ') add_character(&w, ga_unicode_lower(c));
        if (sign) end_word(e, &w, &out);
    }
    if (w.characters > 0) end_word(e, &w, &out);
    luaL_pushresult(&out);
    return 1;
}

static void take_piece(encoder *e, const char *text, size_t size, int32_t id) {
    int inner = size > 2 && memcmp(text, "##", 2) == 0;
    piece p = {hash_start(inner), id, (int32_t)size - 2 * inner, inner, text + 2 * inner};
    for (int32_t i = 0; i < p.size; i++) p.hash = hash_byte(p.hash, p.text[i]);
    uint32_t at = p.hash & e->mask;
    while (e->place[at].text) at = (at + 1) & e->mask;
    e->place[at] = p;
    if (p.size > e->longest) e->longest = p.size;
}

/* host.word_pieces(list, unknown): the encoder keeps the list, whose texts it points to */
int ga_word_pieces(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer unknown = luaL_checkinteger(L, 2), n = luaL_len(L, 1);
    luaL_argcheck(L, n > 0 && n < 1 << 28, 1, "too many pieces");
    size_t places = 64;
    while (places < 2 * (size_t)n) places *= 2;
    encoder *e = lua_newuserdatauv(L, sizeof *e + places * sizeof *e->place, 0);
    memset(e, 0, sizeof *e + places * sizeof *e->place);
    e->mask = (uint32_t)places - 1;
    e->unknown = (int32_t)unknown;
    for (lua_Integer i = 1; i <= n; i++) {
        size_t size;
        lua_rawgeti(L, 1, i);
        luaL_argcheck(L, lua_type(L, -1) == LUA_TSTRING, 1, "expected texts");
        const char *text = lua_tolstring(L, -1, &size);
        luaL_argcheck(L, size < 1 << 20, 1, "a piece of more than 1 MiB");
        if (size > 0) take_piece(e, text, size, (int32_t)(i - 1));
        lua_pop(L, 1);
    }
    lua_pushvalue(L, 1);
    lua_pushcclosure(L, encode, 2);
    return 1;
}
