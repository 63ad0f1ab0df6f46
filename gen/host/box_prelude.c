/* box_prelude.c: prepares the Lua state of a spec: gen/spec/record.lua, the host functions that it
 * uses, and strings without methods. Invariant: the spec reaches the standard libraries only through
 * the functions of record.lua. */
#include "box.h"

#include <lauxlib.h>
#include <lualib.h>
#include <string.h>

int ga_box_line(lua_State *L, int level) {
    lua_Debug frame;
    for (; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Slt", &frame);
        if (strcmp(frame.source, "=spec") == 0) return frame.currentline;
        if (frame.istailcall) break;
    }
    return 0;
}

int ga_box_any_line(lua_State *L) {
    lua_Debug frame;
    for (int level = 0; lua_getstack(L, level, &frame); level++) {
        lua_getinfo(L, "Sl", &frame);
        if (strcmp(frame.source, "=spec") == 0 && frame.currentline > 0) return frame.currentline;
    }
    return 0;
}

static int box_node(lua_State *L) { /* node(metatable, record) */
    lua_newuserdatauv(L, 0, 1);
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, -2, 1);
    lua_pushvalue(L, 1);
    lua_setmetatable(L, -2);
    return 1;
}

static int box_record(lua_State *L) { /* record(value): of a node, else nil */
    if (lua_type(L, 1) == LUA_TUSERDATA) lua_getiuservalue(L, 1, 1);
    else lua_pushnil(L);
    return 1;
}

static int box_line(lua_State *L) { /* line(): of the spec, nil where a tail call has lost it */
    int line = ga_box_line(L, 1);
    if (line > 0) lua_pushinteger(L, line);
    else lua_pushnil(L);
    return 1;
}

static int no_string_field(lua_State *L) {
    lua_settop(L, 2);
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    return ga_box_fail(L, ga_box_any_line(L), "strings have no methods in a spec (found '%s')",
                       name);
}

/* Pushes a copy of the plain value at `index` of another state. */
static void copy_between(lua_State *from, int index, lua_State *L) {
    size_t size;
    const char *text;
    index = lua_absindex(from, index);
    luaL_checkstack(L, 5, NULL);
    luaL_checkstack(from, 5, NULL);
    switch (lua_type(from, index)) {
    case LUA_TBOOLEAN: lua_pushboolean(L, lua_toboolean(from, index)); return;
    case LUA_TNUMBER: lua_pushnumber(L, lua_tonumber(from, index)); return;
    case LUA_TSTRING:
        text = lua_tolstring(from, index, &size);
        lua_pushlstring(L, text, size);
        return;
    case LUA_TTABLE:
        lua_newtable(L);
        for (lua_pushnil(from); lua_next(from, index); lua_pop(from, 1)) {
            if (lua_isinteger(from, -2)) lua_pushinteger(L, lua_tointeger(from, -2));
            else copy_between(from, -2, L);
            copy_between(from, -1, L);
            lua_rawset(L, -3);
        }
        return;
    default: lua_pushnil(L); return;
    }
}

/* Pushes the set of words.keyed: fields whose table has whole numbers of any order as keys. */
static void push_keyed(lua_State *L, int words) {
    lua_newtable(L);
    if (lua_getfield(L, words, "keyed") == LUA_TTABLE) {
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) == LUA_TSTRING; i++) {
            lua_pushboolean(L, 1);
            lua_rawset(L, -4);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static void open_libraries(lua_State *L) {
    luaL_requiref(L, "_G", luaopen_base, 1);
    luaL_requiref(L, LUA_MATHLIBNAME, luaopen_math, 1);
    luaL_requiref(L, LUA_TABLIBNAME, luaopen_table, 1);
    luaL_requiref(L, LUA_STRLIBNAME, luaopen_string, 1);
    lua_settop(L, 0);
    lua_pushliteral(L, "");
    lua_createtable(L, 0, 2); /* replaces the metatable of strings: no methods, no arithmetic */
    lua_pushcfunction(L, no_string_field);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static int require_nodes(lua_State *L) { /* the one module record.lua may require */
    lua_pushvalue(L, lua_upvalueindex(1));
    return 1;
}

int ga_box_prelude(lua_State *L) {
    ga_box_arguments *p = lua_touserdata(L, 1);
    open_libraries(L);
    const ga_box_source *s = p->source;
    if (luaL_loadbufferx(L, s->nodes, s->nodes_size, "@gen/spec/record_nodes.lua", NULL))
        return lua_error(L);
    lua_call(L, 0, 1);
    lua_pushcclosure(L, require_nodes, 1);
    lua_setglobal(L, "require");
    if (luaL_loadbufferx(L, s->record, s->record_size, "@gen/spec/record.lua", NULL))
        return lua_error(L);
    lua_call(L, 0, 1);
    const luaL_Reg functions[] = {
        { "node", box_node }, { "record", box_record }, { "line", box_line }, { NULL, NULL }
    };
    luaL_newlib(L, functions);
    copy_between(p->parent, p->words, L);
    push_keyed(L, lua_absindex(L, -1));
    lua_newtable(L);
    lua_pushcclosure(L, ga_box_copy, 2);
    lua_setfield(L, -3, "copy");
    lua_call(L, 2, 2);
    return 2;
}
