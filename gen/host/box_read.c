/* box_read.c: the parent reads the report of the process of a spec (grammar in box_write.c).
 * Invariant: every length, number, reference, order and name is checked; the first fault ends the
 * reading with a complaint. */
#include "box.h"
#include "box_wire.h"

#include <errno.h>
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    lua_State *L;
    const char *at, *end;
    const char *wrong;           /* first fault, or NULL */
    int names, lines;            /* known words; lines of the spec */
    lua_Integer layers, tensors; /* defined so far */
    lua_Integer values, ins;     /* values read; length of the last list of tensors */
    int depth;                   /* open bodies */
    struct {
        char kind;
        lua_Integer layer;
    } open[GA_BOX_DEPTH];
    lua_Integer layer; /* of the event that is being read */
} reader;

static bool wrong(reader *r, const char *what) {
    if (!r->wrong) r->wrong = what;
    return false;
}

static char next(reader *r) {
    if (r->at < r->end) return *r->at++;
    wrong(r, "end of the report in an event");
    return '\0';
}

static bool expect(reader *r, char c) {
    return next(r) == c || wrong(r, "another character than expected");
}

/* An integer in [low, high], ended by `stop`. */
static bool read_number(reader *r, char stop, lua_Integer low, lua_Integer high, lua_Integer *out) {
    char digits[24];
    size_t n = 0;
    while (r->at < r->end && n < sizeof digits - 1
           && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))) {
        digits[n++] = *r->at++;
    }
    digits[n] = '\0';
    char *last;
    errno = 0;
    long long value = strtoll(digits, &last, 10);
    if (n == 0 || *last || errno || value < low || value > high)
        return wrong(r, "a number out of range");
    *out = (lua_Integer)value;
    return expect(r, stop);
}

/* Text of at most GA_BOX_STRING bytes without control bytes, pushed. */
static bool read_text(reader *r) {
    lua_Integer size;
    if (!read_number(r, ':', 0, GA_BOX_STRING, &size)) return false;
    if (r->end - r->at < size) return wrong(r, "a text longer than the report");
    for (lua_Integer i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)r->at[i];
        if (byte < 32 || byte == 127) return wrong(r, "a control byte in a text");
    }
    lua_pushlstring(r->L, r->at, (size_t)size);
    r->at += size;
    return true;
}

static bool read_known(reader *r, int kinds) {
    if (!read_text(r)) return false;
    lua_pushvalue(r->L, -1);
    lua_rawget(r->L, r->names);
    bool known = (lua_tointeger(r->L, -1) & kinds) != 0;
    lua_pop(r->L, 1);
    return known || wrong(r, "an unknown word");
}

static bool read_float(reader *r) {
    char text[64];
    size_t n = 0;
    while (r->at < r->end && n < sizeof text - 1 && *r->at != ';') text[n++] = *r->at++;
    text[n] = '\0';
    char *last;
    double value = strtod(text, &last);
    if (n == 0 || *last || !isfinite(value)) return wrong(r, "a number that is none");
    lua_pushnumber(r->L, value);
    return expect(r, ';');
}

/* { layer = id } or { tensor = id }, pushed. */
static bool read_reference(reader *r, const char *kind, lua_Integer defined) {
    lua_Integer id;
    if (!read_number(r, ';', 1, defined, &id)) return false;
    lua_createtable(r->L, 0, 1);
    lua_pushinteger(r->L, id);
    lua_setfield(r->L, -2, kind);
    return true;
}

static bool read_value(reader *r, int depth);

static bool read_table(reader *r, int depth) {
    lua_State *L = r->L;
    lua_Integer n, numbers, names;
    if (depth > GA_BOX_DEPTH) return wrong(r, "tables nested too deep");
    if (!read_number(r, ';', 0, GA_BOX_ENTRIES, &n)
        || !read_number(r, ';', 0, GA_BOX_ENTRIES, &numbers)
        || !read_number(r, ';', 0, GA_BOX_ENTRIES, &names))
        return false;
    if (n + numbers + names > r->end - r->at) return wrong(r, "more entries than the report holds");
    luaL_checkstack(L, 10, "table nested too deep");
    lua_createtable(L, (int)n, (int)(numbers + names));
    for (lua_Integer i = 1; i <= n; i++) {
        if (!read_value(r, depth + 1)) return false;
        lua_rawseti(L, -2, i);
    }
    for (lua_Integer i = 0; i < numbers + names; i++) {
        lua_Integer key;
        if (i < numbers) {
            if (!read_number(r, ';', LUA_MININTEGER, LUA_MAXINTEGER, &key)) return false;
            lua_pushinteger(L, key);
        } else if (!read_text(r)) {
            return false;
        }
        lua_pushvalue(L, -1);
        if (lua_rawget(L, -3) != LUA_TNIL) return wrong(r, "a field given twice");
        lua_pop(L, 1);
        if (!read_value(r, depth + 1)) return false;
        lua_rawset(L, -3);
    }
    return expect(r, ']');
}

static bool read_value(reader *r, int depth) {
    lua_Integer value;
    if (++r->values > GA_BOX_VALUES) return wrong(r, "too many values");
    switch (next(r)) {
    case 'i':
        if (!read_number(r, ';', LUA_MININTEGER, LUA_MAXINTEGER, &value)) return false;
        lua_pushinteger(r->L, value);
        return true;
    case 'd': return read_float(r);
    case 's': return read_text(r);
    case 'y': lua_pushboolean(r->L, 1); return true;
    case 'n': lua_pushboolean(r->L, 0); return true;
    case 'l': return read_reference(r, "layer", r->layers);
    case 't': return read_reference(r, "tensor", r->tensors);
    case '[': return read_table(r, depth);
    default: return wrong(r, "a value of no known kind");
    }
}

/* A list of numbers of tensors (references) or of one or more operands, pushed. */
static bool read_list(reader *r, bool references) {
    lua_Integer n, id;
    if (!read_number(r, ';', references ? 0 : 1, 1000, &n)) return false;
    lua_createtable(r->L, (int)n, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        if (references) {
            if (!read_number(r, ';', 1, r->tensors, &id)) return false;
            lua_pushinteger(r->L, id);
        } else {
            char kind = r->at < r->end ? *r->at : '\0';
            if (kind != 'i' && kind != 'd' && kind != 't')
                return wrong(r, "an operand of no known kind");
            if (!read_value(r, 1)) return false;
        }
        lua_rawseti(r->L, -2, i);
    }
    r->ins = n;
    return true;
}

/* Reads the number of a tensor or layer that this event defines: it must be the next one. */
static bool read_new(reader *r, lua_Integer *defined, lua_Integer count) {
    lua_Integer id;
    if (!read_number(r, ';', *defined + 1, *defined + 1, &id)) return false;
    *defined += count;
    lua_pushinteger(r->L, id);
    return true;
}

static bool read_in_range(reader *r, lua_Integer high) {
    lua_Integer value;
    if (!read_number(r, ';', 1, high, &value)) return false;
    lua_pushinteger(r->L, value);
    return true;
}

static bool read_field(reader *r, ga_field_type type) {
    switch (type) {
    case GA_FIELD_NAME: return read_text(r);
    case GA_FIELD_WORD: return read_known(r, GA_NAME_CONFIG);
    case GA_FIELD_KIND: return read_known(r, GA_NAME_LAYER | GA_NAME_POINTWISE);
    case GA_FIELD_OP: return read_known(r, GA_NAME_POINTWISE);
    case GA_FIELD_LIST:
        if (!read_text(r)) return false;
        return strcmp(lua_tostring(r->L, -1), "list") == 0 || wrong(r, "another form than list");
    case GA_FIELD_LINE: return read_in_range(r, r->lines);
    case GA_FIELD_COUNT: return read_in_range(r, INT32_MAX);
    case GA_FIELD_TRUE: lua_pushboolean(r->L, 1); return true;
    case GA_FIELD_NEW_LAYER: return read_new(r, &r->layers, 1);
    case GA_FIELD_LAYER:
        if (!read_in_range(r, r->layers)) return false;
        r->layer = lua_tointeger(r->L, -1);
        return true;
    case GA_FIELD_NEW_TENSOR: return read_new(r, &r->tensors, 1);
    case GA_FIELD_TENSOR: return read_in_range(r, r->tensors);
    case GA_FIELD_TENSORS: return read_list(r, true);
    case GA_FIELD_ARGUMENTS:
        if (r->ins == 0) return wrong(r, "a function of no tensor");
        return read_new(r, &r->tensors, r->ins);
    case GA_FIELD_OPERANDS: return read_list(r, false);
    case GA_FIELD_TABLE:
        return (r->at < r->end && *r->at == '[' && read_value(r, 1))
               || wrong(r, "arguments that are no table");
    case GA_FIELD_VALUE: return read_value(r, 1);
    case GA_FIELD_END: break;
    }
    return wrong(r, "a field of no known type");
}

/* Checks that bodies are nested, and that config words stand outside of them. */
static bool check_body(reader *r, const ga_event_kind *kind) {
    if (kind->opens) {
        bool outermost = kind->opens != 'f';
        if (outermost != (r->depth == 0))
            return wrong(r, "a function that begins in another's place");
        if (r->depth == GA_BOX_DEPTH) return wrong(r, "functions nested too deep");
        r->open[r->depth].kind = kind->opens;
        r->open[r->depth++].layer = r->layer;
    } else if (kind->closes) {
        if (r->depth == 0 || r->open[r->depth - 1].kind != kind->closes
            || (kind->closes == 'f' && r->open[r->depth - 1].layer != r->layer)) {
            return wrong(r, "a function that ends without its begin");
        }
        r->depth--;
    } else {
        bool config = strcmp(kind->name, "word") == 0 || strcmp(kind->name, "model") == 0;
        bool free_standing = config || strcmp(kind->name, "layer") == 0;
        if (config && r->depth > 0) return wrong(r, "a word inside of a function");
        if (!free_standing && r->depth == 0) return wrong(r, "a tensor outside of functions");
    }
    return true;
}

static bool read_event(reader *r) {
    lua_State *L = r->L;
    if (!expect(r, 'e') || !read_text(r)) return false;
    const ga_event_kind *kind = ga_event_kinds;
    while (kind->name && strcmp(kind->name, lua_tostring(L, -1)) != 0) kind++;
    if (!kind->name) return wrong(r, "an event of no known kind");
    lua_createtable(L, 0, 8);
    lua_insert(L, -2);
    lua_setfield(L, -2, "event");
    for (int i = 0; kind->field[i].name; i++) {
        if (kind->field[i].optional) {
            char there = next(r);
            if (there == '-') continue;
            if (there != '+') return wrong(r, "an optional field neither there nor absent");
        }
        if (!read_field(r, kind->field[i].type)) return false;
        lua_setfield(L, -2, kind->field[i].name);
    }
    return check_body(r, kind);
}

const char *ga_wire_read(lua_State *L, const char *data, size_t size, int names, int lines) {
    reader r = {
        .L = L, .at = data, .end = data + size, .names = lua_absindex(L, names), .lines = lines
    };
    int top = lua_gettop(L);
    lua_newtable(L);
    for (lua_Integer i = 1; !r.wrong && r.at < r.end && *r.at != '.'; i++) {
        if (read_event(&r)) lua_rawseti(L, top + 1, i);
    }
    if (!r.wrong && (r.depth > 0 || !expect(&r, '.') || r.at != r.end))
        wrong(&r, "another end than expected");
    lua_settop(L, r.wrong ? top : top + 1);
    return r.wrong;
}
