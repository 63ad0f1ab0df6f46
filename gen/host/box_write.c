/* box_write.c: events as text, written by the process of a spec and read by box_read.c.
 *   value: i DIGITS;  d HEXFLOAT;  s SIZE:BYTES  y  n  (yes, no)  l ID; (layer)  t ID; (tensor)
 *          [ POSITIONS; NUMBERS; NAMES; values, then DIGITS; value, then SIZE:BYTES value ]
 *   event: e NAME as SIZE:BYTES, then its fields in the order below; an optional one is preceded by
 * + or - Everything is preceded by its length or ended by a semicolon; nothing is escaped. */
#include "box.h"
#include "box_wire.h"

#include <errno.h>
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void ga_wire_flush(ga_wire *w) {
    size_t done = 0;
    while (done < w->used && !w->failed) {
        ssize_t n = write(w->fd, w->buffer + done, w->used - done);
        if (n > 0) done += (size_t)n;
        else if (n < 0 && errno != EINTR) w->failed = true;
    }
    w->used = 0;
}

void ga_wire_put(ga_wire *w, const void *data, size_t size) {
    const char *from = data;
    while (size > 0) {
        if (w->used == sizeof w->buffer) ga_wire_flush(w);
        size_t room = sizeof w->buffer - w->used;
        size_t n = size < room ? size : room;
        memcpy(w->buffer + w->used, from, n);
        w->used += n;
        from += n;
        size -= n;
    }
}

void ga_wire_text(ga_wire *w, const char *text, size_t size) {
    char length[32];
    ga_wire_put(w, length, (size_t)snprintf(length, sizeof length, "%zu:", size));
    ga_wire_put(w, text, size);
}

void ga_wire_number(ga_wire *w, lua_Integer value) {
    char digits[32];
    ga_wire_put(w, digits, (size_t)snprintf(digits, sizeof digits, "%lld;", (long long)value));
}

/* Number of the layer or tensor on top of the stack; 0 if it is not of `kind`. */
static lua_Integer node_id(lua_State *L, const char *kind) {
    lua_Integer id = 0;
    if (lua_getiuservalue(L, -1, 1) == LUA_TTABLE) {
        lua_getfield(L, -1, "kind");
        const char *found = lua_tostring(L, -1);
        if (found && strcmp(found, kind) == 0) {
            lua_getfield(L, -2, "id");
            id = lua_tointeger(L, -1);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return id;
}

static bool write_node(ga_wire *w, lua_State *L, const char *kind) {
    lua_Integer id = lua_type(L, -1) == LUA_TUSERDATA ? node_id(L, kind) : 0;
    ga_wire_number(w, id);
    return id > 0;
}

static bool write_value(ga_wire *w, lua_State *L);

static bool write_table(ga_wire *w, lua_State *L) {
    luaL_checkstack(L, 10, "table nested too deep");
    size_t count, numbers = 0;
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    const ga_key *keys = ga_box_keys(L, -1, n, &count);
    lua_insert(L, -2); /* keys, table */
    while (numbers < count && !keys[numbers].name) numbers++;
    ga_wire_put(w, "[", 1);
    ga_wire_number(w, n);
    ga_wire_number(w, (lua_Integer)numbers);
    ga_wire_number(w, (lua_Integer)(count - numbers));
    bool right = true;
    for (lua_Integer i = 1; i <= n && right; i++) {
        lua_rawgeti(L, -1, i);
        right = write_value(w, L);
        lua_pop(L, 1);
    }
    for (size_t k = 0; k < count && right; k++) {
        if (keys[k].name) {
            ga_wire_text(w, keys[k].name, keys[k].size);
            lua_pushlstring(L, keys[k].name, keys[k].size);
        } else {
            ga_wire_number(w, keys[k].number);
            lua_pushinteger(L, keys[k].number);
        }
        lua_rawget(L, -2);
        right = write_value(w, L);
        lua_pop(L, 1);
    }
    ga_wire_put(w, "]", 1);
    lua_remove(L, -2);
    return right;
}

/* Writes the value on top of the stack and leaves it there. */
static bool write_value(ga_wire *w, lua_State *L) {
    char number[64];
    size_t size;
    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN: ga_wire_put(w, lua_toboolean(L, -1) ? "y" : "n", 1); return true;
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1)) {
            ga_wire_put(w, "i", 1);
            ga_wire_number(w, lua_tointeger(L, -1));
            return true;
        }
        ga_wire_put(w, number,
                    (size_t)snprintf(number, sizeof number, "d%a;", lua_tonumber(L, -1)));
        return true;
    case LUA_TSTRING: {
        const char *text = lua_tolstring(L, -1, &size);
        ga_wire_put(w, "s", 1);
        ga_wire_text(w, text, size);
        return true;
    }
    case LUA_TTABLE: return write_table(w, L);
    case LUA_TUSERDATA: {
        const char *kind = node_id(L, "layer") ? "layer" : "tensor";
        ga_wire_put(w, kind, 1);
        return write_node(w, L, kind);
    }
    default: return false;
    }
}

static bool write_list(ga_wire *w, lua_State *L, bool references) {
    if (lua_type(L, -1) != LUA_TTABLE) return false;
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    ga_wire_number(w, n);
    bool right = true;
    for (lua_Integer i = 1; i <= n && right; i++) {
        lua_rawgeti(L, -1, i);
        right = references ? write_node(w, L, "tensor") : write_value(w, L);
        lua_pop(L, 1);
    }
    return right;
}

static bool write_field(ga_wire *w, lua_State *L, ga_field_type type) {
    size_t size;
    switch (type) {
    case GA_FIELD_NAME:
    case GA_FIELD_WORD:
    case GA_FIELD_KIND:
    case GA_FIELD_OP:
    case GA_FIELD_LIST: {
        if (lua_type(L, -1) != LUA_TSTRING) return false;
        const char *text = lua_tolstring(L, -1, &size);
        ga_wire_text(w, text, size);
        return true;
    }
    case GA_FIELD_LINE:
    case GA_FIELD_COUNT: ga_wire_number(w, lua_tointeger(L, -1)); return lua_isinteger(L, -1);
    case GA_FIELD_TRUE: return lua_toboolean(L, -1);
    case GA_FIELD_NEW_LAYER:
    case GA_FIELD_LAYER: return write_node(w, L, "layer");
    case GA_FIELD_NEW_TENSOR:
    case GA_FIELD_TENSOR:
    case GA_FIELD_ARGUMENTS: return write_node(w, L, "tensor");
    case GA_FIELD_TENSORS:
    case GA_FIELD_OPERANDS: return write_list(w, L, type == GA_FIELD_TENSORS);
    case GA_FIELD_TABLE:
    case GA_FIELD_VALUE: return (type == GA_FIELD_VALUE || lua_istable(L, -1)) && write_value(w, L);
    case GA_FIELD_END: break;
    }
    return false;
}

static bool write_event(ga_wire *w, lua_State *L) {
    lua_getfield(L, -1, "event");
    size_t size;
    const char *name = lua_tolstring(L, -1, &size);
    const ga_event_kind *kind = ga_event_kinds;
    while (kind->name && (!name || strcmp(kind->name, name) != 0)) kind++;
    if (!kind->name) return false;
    ga_wire_put(w, "e", 1);
    ga_wire_text(w, name, size);
    lua_pop(L, 1);
    for (int i = 0; kind->field[i].name; i++) {
        bool there = lua_getfield(L, -1, kind->field[i].name) != LUA_TNIL;
        if (kind->field[i].optional) ga_wire_put(w, there ? "+" : "-", 1);
        if (there ? !write_field(w, L, kind->field[i].type) : !kind->field[i].optional)
            return false;
        lua_pop(L, 1);
    }
    return true;
}

bool ga_wire_events(ga_wire *w, lua_State *L, int index) {
    index = lua_absindex(L, index);
    lua_Integer n = (lua_Integer)lua_rawlen(L, index);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, index, i);
        if (!write_event(w, L)) return false;
        lua_pop(L, 1);
    }
    ga_wire_put(w, ".", 1);
    return true;
}
