/* scan.c: host.data_scan: what gagen has to know of data files before it can write a program for
 * them. */
#include "host.h"
#include "data/arrays.h"
#include "data/csv.h"
#include "data/images.h"
#include "data/windows.h"

#include <string.h>

/* The arguments: fields of the table at index 1. Their strings stay in that table. */
typedef struct request {
    const char *kind;
    const char *file[2 * GA_PARTS];
    int files;
    ga_dtype real;
    ga_csv_spec csv;
    bool allowed[256], limited;
} request;

/* Appends the paths of the array in field `name`, if there is one. */
static int take_paths(lua_State *L, request *r, const char *name) {
    if (lua_getfield(L, 1, name) == LUA_TTABLE) {
        lua_Integer n = luaL_len(L, -1);
        if (n < 1 || n > GA_PARTS) return luaL_error(L, "%s: %d files", name, (int)n);
        for (lua_Integer i = 1; i <= n; i++) {
            lua_rawgeti(L, -1, i);
            r->file[r->files++] = luaL_checkstring(L, -1);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
    return 0;
}

/* Makes the columns of csv of the arrays `inputs`, places from 0 or -1, `categories`, flags, and `own`, numbers
 * of fields or 0. */
static void take_columns(lua_State *L, request *r) {
    lua_getfield(L, 1, "columns");
    r->csv.columns = luaL_optinteger(L, -1, 0);
    lua_getfield(L, 1, "inputs");
    lua_getfield(L, 1, "categories");
    lua_getfield(L, 1, "own");
    if (lua_istable(L, -3)) {
        ga_csv_column *column = lua_newuserdatauv(L, (size_t)r->csv.columns * sizeof *column, 0);
        for (int64_t i = 0; i < r->csv.columns; i++) {
            for (int k = 0; k < 3; k++) lua_rawgeti(L, -4, (lua_Integer)i + 1);
            column[i] = (ga_csv_column){.input = lua_tointeger(L, -3), .category = lua_toboolean(L, -2),
                                        .field = (int)lua_tointeger(L, -1)};
            lua_pop(L, 3);
        }
        r->csv.column = column;
        lua_setfield(L, 1, "made"); /* keeps them as long as the table of arguments */
    }
    lua_pop(L, 4);
}

static void take_request(lua_State *L, request *r) {
    size_t n = 0;
    memset(r, 0, sizeof *r);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "kind");
    lua_getfield(L, 1, "real");
    lua_getfield(L, 1, "target");
    lua_getfield(L, 1, "header");
    lua_getfield(L, 1, "allowed");
    r->kind = luaL_checkstring(L, -5);
    r->real = strcmp(luaL_checkstring(L, -4), "f64") == 0 ? GA_F64 : GA_F32;
    r->csv.target = luaL_optinteger(L, -3, 1) - 1;
    r->csv.header = lua_toboolean(L, -2);
    r->csv.dtype = r->real;
    const char *allowed = luaL_optlstring(L, -1, NULL, &n);
    r->limited = allowed != NULL;
    for (size_t i = 0; i < n; i++) r->allowed[(unsigned char)allowed[i]] = true;
    lua_getfield(L, 1, "scale");
    r->csv.scale = luaL_optnumber(L, -1, 1);
    lua_getfield(L, 1, "real_target");
    r->csv.real_target = lua_toboolean(L, -1);
    lua_pop(L, 7);
    take_columns(L, r);
    take_paths(L, r, "files");
    take_paths(L, r, "targets");
    if (r->files == 0) luaL_error(L, "no files");
}

static int scan(lua_State *L, const request *r, ga_scan *s, ga_err *e) {
    const char *const *file = r->file;
    const int half = r->files / 2;
    if (strcmp(r->kind, "csv") == 0) return ga_csv_scan_parts(file, r->files, &r->csv, s, e);
    if (strcmp(r->kind, "idx") == 0) return ga_idx_scan(file, file + half, half, r->real, s, e);
    if (strcmp(r->kind, "cifar10") == 0) return ga_cifar_scan(file, r->files, r->real, s, e);
    if (strcmp(r->kind, "text") == 0)
        return ga_text_scan(file, r->files, r->limited ? r->allowed : NULL, s, e);
    if (strcmp(r->kind, "tokens") == 0) return ga_tokens_scan(file, r->files, s, e);
    if (strcmp(r->kind, "npy") == 0) return ga_npy_scan(file, 2, half, r->real, s, e);
    if (strcmp(r->kind, "tensors") == 0) return ga_tensors_scan(file, r->files, r->real, s, e);
    return luaL_error(L, "no data of kind '%s'", r->kind);
}

static void set_integer(lua_State *L, const char *name, int64_t value) {
    lua_pushinteger(L, (lua_Integer)value);
    lua_setfield(L, -2, name);
}

static void push_integers(lua_State *L, const int64_t *list, int n) {
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, (lua_Integer)list[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static void push_field(lua_State *L, const ga_scan_field *f) {
    lua_createtable(L, 0, 14);
    lua_pushstring(L, f->name);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, f->ids);
    lua_setfield(L, -2, "ids");
    push_integers(L, f->shape, f->rank);
    lua_setfield(L, -2, "shape");
    set_integer(L, "element", f->element);
    if (f->odd_line) {
        lua_pushnumber(L, f->odd);
        lua_setfield(L, -2, "odd");
        set_integer(L, "odd_line", f->odd_line);
        set_integer(L, "odd_file", f->odd_part + 1);
    }
    if (!f->ids || f->low > f->high) return;
    if (f->largest_negative < 0) set_integer(L, "largest_negative", f->largest_negative);
    set_integer(L, "low", f->low);
    set_integer(L, "high", f->high);
    if (f->next_high > INT64_MIN) set_integer(L, "next_high", f->next_high);
    if (f->high_at < 0) return;
    set_integer(L, "low_at", f->low_at);
    set_integer(L, "low_file", f->low_part + 1);
    set_integer(L, "high_at", f->high_at);
    set_integer(L, "high_file", f->high_part + 1);
}

int ga_data_scan_host(lua_State *L) {
    request r;
    ga_scan s;
    ga_err e = { 0 };
    char seen[256];
    size_t n = 0;
    take_request(L, &r);
    if (scan(L, &r, &s, &e) < 0) return ga_host_refuse(L, "%s", e.msg);
    lua_createtable(L, 0, 5);
    push_integers(L, s.count, s.parts);
    lua_setfield(L, -2, "count");
    set_integer(L, "bytes", (int64_t)s.bytes);
    set_integer(L, "stream_bytes", (int64_t)s.stream_bytes);
    lua_createtable(L, s.fields, 0);
    for (int i = 0; i < s.fields; i++) {
        push_field(L, &s.field[i]);
        if (strcmp(r.kind, "npy") == 0 || strcmp(r.kind, "tensors") == 0) {
            lua_pushstring(L, ga_element_name((ga_element)s.field[i].element));
            lua_setfield(L, -2, "element");
        }
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "fields");
    for (int byte = 0; byte < 256; byte++)
        if (s.seen[byte]) seen[n++] = (char)byte;
    lua_pushlstring(L, seen, n);
    lua_setfield(L, -2, "vocabulary");
    return 1;
}
