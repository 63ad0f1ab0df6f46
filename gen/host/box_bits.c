/* box_bits.c: finds bitwise operators in a spec, refused where the linked Lua gets them wrong:
 * Lua 5.4.4 compiles `1 ~ (2 or 3)` to another number once a function has more than 255 constants.
 */
#include "box.h"

#include <lauxlib.h>
#include <string.h>

typedef struct {
    const char *at, *end;
    int line;
} scanner;

static void step(scanner *s) {
    if (s->at < s->end && *s->at++ == '\n') s->line++;
}

static char ahead(const scanner *s, size_t n) {
    return (size_t)(s->end - s->at) > n ? s->at[n] : '\0';
}

/* Skips [[ ... ]] or [=[ ... ]=]; false if there is no long bracket. */
static bool skip_long(scanner *s) {
    size_t level = 0;
    while (ahead(s, 1 + level) == '=') level++;
    if (ahead(s, 0) != '[' || ahead(s, 1 + level) != '[') return false;
    for (size_t i = 0; i < level + 2; i++) step(s);
    while (s->at < s->end) {
        size_t k = 0;
        if (*s->at == ']')
            while (ahead(s, 1 + k) == '=') k++;
        bool closes = *s->at == ']' && k == level && ahead(s, 1 + k) == ']';
        step(s);
        if (!closes) continue;
        for (size_t i = 0; i < level + 1; i++) step(s);
        break;
    }
    return true;
}

static void skip_comment(scanner *s) {
    step(s);
    step(s);
    if (skip_long(s)) return;
    while (s->at < s->end && *s->at != '\n') step(s);
}

static void skip_string(scanner *s) {
    char quote = *s->at;
    step(s);
    while (s->at < s->end && *s->at != quote && *s->at != '\n') {
        if (*s->at == '\\') step(s);
        step(s);
    }
    step(s);
}

int ga_bits_line(const char *text, size_t size) {
    scanner s = { text, text + size, 1 };
    while (s.at < s.end) {
        char c = *s.at, next = ahead(&s, 1);
        if (c == '-' && next == '-') {
            skip_comment(&s);
        } else if (c == '"' || c == '\'') {
            skip_string(&s);
        } else if (c == '[' && skip_long(&s)) {
            continue;
        } else if (c == '&' || c == '|' || (c == '~' && next != '=')
                   || ((c == '<' || c == '>') && c == next)) {
            return s.line;
        } else {
            if (c == '~') step(&s);
            step(&s);
        }
    }
    return 0;
}

bool ga_bits_sound(void) {
    lua_State *L = luaL_newstate();
    if (!L) return false;
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    luaL_addstring(&text, "local t = {");
    for (int i = 1; i <= 300; i++) {
        lua_pushfstring(L, "%d.5,", 1000 + i);
        luaL_addvalue(&text);
    }
    luaL_addstring(&text, "} return 1 ~ (2 or 3)");
    luaL_pushresult(&text);
    bool sound = luaL_dostring(L, lua_tostring(L, -1)) == LUA_OK && lua_tointeger(L, -1) == 3;
    lua_close(L);
    return sound;
}
