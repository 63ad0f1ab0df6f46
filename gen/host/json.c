/* json.c: converts Lua values to JSON text and back, with jansson. Keys are sorted, and all numbers of a text
 * have the least precision that reads each of them back, so equal values give equal bytes. */
#include "host.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

enum { DEPTH_MAX = 200 };

/* The least number of digits from which `x` is read back exactly. */
static int digits_of(double x) {
    char text[40];
    int digits = 1;
    do snprintf(text, sizeof text, "%.*g", digits, x);
    while (strtod(text, NULL) != x && ++digits < 17);
    return digits;
}

static json_t *encode_number(double x, int *digits) {
    if (isnan(x)) return json_string("nan");
    if (isinf(x)) return json_string(x > 0 ? "inf" : "-inf");
    int needed = digits_of(x);
    if (needed > *digits) *digits = needed;
    return json_real(x);
}

/* Text that is not UTF-8 gets its bytes from 128 on written as \xNN. */
static json_t *encode_text(lua_State *L, int index) {
    size_t size;
    const char *text = lua_tolstring(L, index, &size);
    json_t *value = json_stringn(text, size);
    if (value) return value;
    luaL_Buffer escaped;
    luaL_buffinit(L, &escaped);
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        char hex[8];
        if (byte < 128) luaL_addchar(&escaped, text[i]);
        else luaL_addlstring(&escaped, hex, (size_t)snprintf(hex, sizeof hex, "\\x%02x", byte));
    }
    luaL_pushresult(&escaped);
    value = json_stringn(lua_tostring(L, -1), lua_rawlen(L, -1));
    lua_pop(L, 1);
    return value;
}

static json_t *encode(lua_State *L, int index, int depth, int *digits);

static int is_array(lua_State *L, int index) {
    if (lua_rawlen(L, index) > 0) return 1;
    if (luaL_getmetafield(L, index, "array") == LUA_TNIL) return 0;
    int array = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return array;
}

/* The value at `index` as JSON; NULL if JSON has no such value or key. */
static json_t *encode_table(lua_State *L, int index, int depth, int *digits) {
    if (depth > DEPTH_MAX) return NULL;
    luaL_checkstack(L, 10, "table nested too deep");
    int array = is_array(L, index), failed = 0;
    json_t *out = array ? json_array() : json_object();
    lua_Integer n = (lua_Integer)lua_rawlen(L, index);
    for (lua_Integer i = 1; array && i <= n && !failed; i++) {
        lua_rawgeti(L, index, i);
        failed = json_array_append_new(out, encode(L, lua_gettop(L), depth + 1, digits));
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); !failed && lua_next(L, index); lua_pop(L, 1)) {
        int top = lua_gettop(L);
        if (array && lua_isinteger(L, -2)) continue;
        if (array || lua_type(L, -2) != LUA_TSTRING) failed = 1;
        else
            failed =
                json_object_set_new(out, lua_tostring(L, -2), encode(L, top, depth + 1, digits));
        if (failed) break;
    }
    if (!failed) return out;
    json_decref(out);
    return NULL;
}

static json_t *encode(lua_State *L, int index, int depth, int *digits) {
    switch (lua_type(L, index)) {
    case LUA_TNIL: return json_null();
    case LUA_TBOOLEAN: return json_boolean(lua_toboolean(L, index));
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) return json_integer(lua_tointeger(L, index));
        return encode_number(lua_tonumber(L, index), digits);
    case LUA_TSTRING: return encode_text(L, index);
    case LUA_TTABLE: return encode_table(L, index, depth, digits);
    default: return NULL;
    }
}

int ga_json_encode(lua_State *L) {
    int digits = 1;
    luaL_checkany(L, 1);
    json_t *value = encode(L, 1, 0, &digits);
    if (!value) return luaL_error(L, "host.json: a value or key that JSON does not have");
    size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits);
    char *text = json_dumps(value, flags);
    json_decref(value);
    if (!text) return luaL_error(L, "host.json: not enough memory");
    lua_pushfstring(L, "%s\n", text);
    free(text);
    return 1;
}

/* Pushes the value; arrays and objects become tables, null becomes nil. */
static void decode(lua_State *L, const json_t *value) {
    luaL_checkstack(L, 5, "JSON nested too deep");
    switch (json_typeof(value)) {
    case JSON_TRUE:
    case JSON_FALSE: lua_pushboolean(L, json_is_true(value)); return;
    case JSON_INTEGER: lua_pushinteger(L, json_integer_value(value)); return;
    case JSON_REAL: lua_pushnumber(L, json_real_value(value)); return;
    case JSON_STRING: lua_pushlstring(L, json_string_value(value), json_string_length(value)); return;
    case JSON_NULL: lua_pushnil(L); return;
    default: lua_newtable(L);
    }
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            decode(L, json_array_get(value, i));
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        return;
    }
    for (void *at = json_object_iter((json_t *)value); at;
         at = json_object_iter_next((json_t *)value, at)) {
        lua_pushstring(L, json_object_iter_key(at));
        decode(L, json_object_iter_value(at));
        lua_rawset(L, -3);
    }
}

typedef struct {
    const json_t *value;
} parsed;

static int push_parsed(lua_State *L) {
    decode(L, ((parsed *)lua_touserdata(L, 1))->value);
    return 1;
}

int ga_json_decode(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    json_error_t error;
    json_t *value = json_loadb(text, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!value) return ga_host_refuse(L, "line %d: %s", error.line, error.text);
    lua_pushcfunction(L, push_parsed);
    lua_pushlightuserdata(L, &(parsed){ value });
    int status = lua_pcall(L, 1, 1, 0);
    json_decref(value);
    return status == LUA_OK ? 1 : lua_error(L);
}
