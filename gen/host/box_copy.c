/* box_copy.c: deep copies of the arguments of words, inside the process of a spec. Tables are walked
 * in a fixed order, so that of several faults always the same one is reported. */
#include "box.h"

#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct place { /* a place in the argument: the keys from the innermost to the outermost */
    const struct place *outer;
    ga_key key;
} place;

typedef struct {
    lua_State *L;
    const char *word;
    int line;
    lua_Integer entries;
} copier;

int ga_box_fail(lua_State *L, int line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    lua_createtable(L, 0, 2);
    lua_pushvfstring(L, format, arguments);
    va_end(arguments);
    lua_setfield(L, -2, "message");
    if (line > 0) {
        lua_pushinteger(L, line);
        lua_setfield(L, -2, "line");
    }
    return lua_error(L);
}

static int by_key(const void *a, const void *b) {
    const ga_key *x = a, *y = b;
    if (!x->name != !y->name) return x->name ? 1 : -1;
    if (!x->name) return x->number < y->number ? -1 : x->number > y->number;
    size_t n = x->size < y->size ? x->size : y->size;
    int order = memcmp(x->name, y->name, n);
    if (order) return order;
    return x->size < y->size ? -1 : x->size > y->size;
}

static bool key_outside(lua_State *L, int index, lua_Integer n) {
    if (lua_type(L, index) == LUA_TSTRING) return true;
    if (!lua_isinteger(L, index)) return false;
    lua_Integer k = lua_tointeger(L, index);
    return k < 1 || k > n;
}

const ga_key *ga_box_keys(lua_State *L, int index, lua_Integer n, size_t *count) {
    index = lua_absindex(L, index);
    size_t total = 0, k = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) total += key_outside(L, -2, n);
    ga_key *keys = lua_newuserdatauv(L, (total + 1) * sizeof *keys, 0);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (!key_outside(L, -2, n)) continue;
        keys[k] = (ga_key){ 0 };
        if (lua_type(L, -2) == LUA_TSTRING) keys[k].name = lua_tolstring(L, -2, &keys[k].size);
        else keys[k].number = lua_tointeger(L, -2);
        k++;
    }
    qsort(keys, total, sizeof *keys, by_key);
    *count = total;
    return keys;
}

/* Pushes the field's name as a person would write it: "lr", "value 2", "groups[1].lr". */
static const char *push_place(lua_State *L, const place *p) {
    if (!p->outer) {
        if (p->key.name) return lua_pushlstring(L, p->key.name, p->key.size);
        return lua_pushfstring(L, "value %I", (LUAI_UACINT)p->key.number);
    }
    const char *outer = push_place(L, p->outer);
    if (p->key.name) lua_pushfstring(L, "%s.%s", outer, p->key.name);
    else lua_pushfstring(L, "%s[%I]", outer, (LUAI_UACINT)p->key.number);
    lua_remove(L, -2);
    return lua_tostring(L, -1);
}

static int fail(copier *c, const place *p, const char *what) {
    lua_checkstack(c->L, 2 * GA_BOX_DEPTH + 10);
    if (!p) return ga_box_fail(c->L, c->line, "%s: %s", c->word, what);
    return ga_box_fail(c->L, c->line, "%s: %s%s", c->word, push_place(c->L, p), what);
}

static void check_string(copier *c, const place *p, int index, const char *kind) {
    size_t size;
    const char *s = lua_tolstring(c->L, index, &size);
    if (size > GA_BOX_STRING) {
        fail(c, p, lua_pushfstring(c->L, ": %s longer than %d bytes", kind, GA_BOX_STRING));
    }
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)s[i];
        if (byte >= 32 && byte != 127) continue;
        const char *digits = "0123456789abcdef";
        fail(c, p,
             lua_pushfstring(c->L, ": control byte \\x%c%c in a %s", digits[byte >> 4],
                             digits[byte & 15], kind));
    }
}

/* Checks the node on top of the stack: only layers and tensors of an open function may be values. */
static void check_node(copier *c, const place *p) {
    lua_State *L = c->L;
    if (lua_getiuservalue(L, -1, 1) != LUA_TTABLE) fail(c, p, " is no value of a spec");
    lua_getfield(L, -1, "text");
    const char *text = lua_tostring(L, -1);
    lua_getfield(L, -2, "kind");
    const char *kind = lua_tostring(L, -1);
    if (strcmp(kind, "layer") == 0) {
        if (lua_getfield(L, -3, "body") != LUA_TNIL) {
            fail(c, p,
                 lua_pushfstring(L,
                                 " is %s, whose body is a function: it has to be applied to a "
                                 "tensor, expected a layer with a list",
                                 text));
        }
        lua_pop(L, 1);
    } else if (strcmp(kind, "tensor") == 0) {
        lua_getfield(L, -3, "scope");
        lua_getfield(L, -1, "open");
        if (!lua_toboolean(L, -1)) fail(c, p, ": this tensor belongs to a function that has ended");
        lua_pop(L, 2);
    } else {
        fail(c, p, lua_pushfstring(L, " is %s, expected a value: is a { ... } missing?", text));
    }
    lua_pop(L, 3);
}

static void copy_table(copier *c, const place *outer, int depth, bool without_first);

/* Replaces the value on top of the stack by its copy. */
static void copy_value(copier *c, const place *p, int depth) {
    lua_State *L = c->L;
    int type = lua_type(L, -1);
    if (++c->entries > GA_BOX_ENTRIES) fail(c, NULL, "a table with more than 100000 entries");
    if (type == LUA_TBOOLEAN) return;
    if (type == LUA_TNUMBER) {
        if (!isfinite(lua_tonumber(L, -1))) fail(c, p, " is not finite");
    } else if (type == LUA_TSTRING) {
        check_string(c, p, -1, "string");
    } else if (type == LUA_TTABLE) {
        copy_table(c, p, depth + 1, false);
    } else if (type == LUA_TUSERDATA) {
        check_node(c, p);
    } else {
        fail(c, p,
             lua_pushfstring(L, ": value is a %s, expected a number, string, boolean or table",
                             lua_typename(L, type)));
    }
}

/* Refuses keys of other types, gaps in positions and tables that look like a reference to a node. */
static void check_keys(copier *c, const place *outer, lua_Integer n, const ga_key *keys,
                       size_t count) {
    lua_State *L = c->L;
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING || lua_isinteger(L, -2)) continue;
        const char *kind = luaL_typename(L, -2);
        if (lua_type(L, -2) == LUA_TNUMBER)
            kind = lua_pushfstring(L, "number (%f)", lua_tonumber(L, -2));
        fail(c, outer,
             lua_pushfstring(L, "%skey is a %s, expected a name or a position", outer ? ": " : "",
                             kind));
    }
    for (size_t i = 0; i < count && !keys[i].name; i++) {
        if (outer && outer->key.name) {
            lua_getfield(L, lua_upvalueindex(1), outer->key.name);
            bool keyed = lua_toboolean(L, -1);
            lua_pop(L, 1);
            if (keyed) return;
        }
        fail(c, outer,
             lua_pushfstring(L, "%sgap in positions: found position %I, expected %I",
                             outer ? ": " : "", (LUAI_UACINT)keys[i].number, (LUAI_UACINT)(n + 1)));
    }
    if (n == 0 && count == 1
        && (strcmp(keys[0].name, "layer") == 0 || strcmp(keys[0].name, "tensor") == 0)
        && lua_getfield(L, -1, keys[0].name) == LUA_TNUMBER) {
        fail(c, outer,
             lua_pushfstring(L, "%sa table with nothing but a number named '%s'", outer ? ": " : "",
                             keys[0].name));
    }
}

/* Number of positions 1..n without a nil; Lua's length operator may stop at any gap. */
static lua_Integer positions(lua_State *L) {
    lua_Integer border = (lua_Integer)lua_rawlen(L, -1), n = 0;
    while (n < border) {
        int type = lua_rawgeti(L, -1, n + 1);
        lua_pop(L, 1);
        if (type == LUA_TNIL) break;
        n++;
    }
    return n;
}

static void copy_table(copier *c, const place *outer, int depth, bool without_first) {
    lua_State *L = c->L;
    if (depth > GA_BOX_DEPTH) fail(c, NULL, "a table nested deeper than 32");
    luaL_checkstack(L, 20, "table nested too deep");
    size_t count;
    lua_Integer n = positions(L);
    const ga_key *keys = ga_box_keys(L, -1, n, &count); /* stack: source, keys */
    lua_insert(L, -2);                                  /* keys, source */
    if (n + (lua_Integer)count > GA_BOX_ENTRIES)
        fail(c, NULL, "a table with more than 100000 entries");
    lua_pushvalue(L, -1);
    check_keys(c, outer, n, keys, count);
    lua_settop(L, lua_absindex(L, -2)); /* keys, source */
    lua_createtable(L, (int)n, (int)count);
    lua_insert(L, -2); /* keys, copy, source */
    for (lua_Integer i = 1 + without_first; i <= n; i++) {
        place here = { outer, { .number = i } };
        lua_rawgeti(L, -1, i);
        copy_value(c, &here, depth);
        lua_rawseti(L, -3, i - without_first);
    }
    for (size_t k = 0; k < count; k++) {
        place here = { outer, keys[k] };
        if (keys[k].name) {
            lua_pushlstring(L, keys[k].name, keys[k].size);
            check_string(c, outer, -1, "name");
        } else {
            lua_pushinteger(L, keys[k].number);
        }
        lua_pushvalue(L, -1);
        lua_rawget(L, -3);
        copy_value(c, &here, depth);
        lua_rawset(L, -4);
    }
    lua_pop(L, 1);
    lua_remove(L, -2); /* copy */
}

int ga_box_copy(lua_State *L) {
    copier c = { L, luaL_checkstring(L, 2), (int)luaL_checkinteger(L, 3), 0 };
    bool without_first = lua_toboolean(L, 4);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_pushvalue(L, 1);
    copy_table(&c, NULL, 1, without_first);
    lua_getfield(L, lua_upvalueindex(2), "values");
    lua_Integer values = lua_tointeger(L, -1) + c.entries;
    if (values > GA_BOX_VALUES) fail(&c, NULL, "more than 1000000 values in one spec");
    lua_pushinteger(L, values);
    lua_setfield(L, lua_upvalueindex(2), "values");
    lua_pop(L, 1);
    return 1;
}
