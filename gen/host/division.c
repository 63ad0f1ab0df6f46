/* division.c: host.division: how the flat space is divided over ranks, as a program does it. */
#include "host.h"
#include "ranks/shard.h"

#include <stdlib.h>

static int64_t integer_in(lua_State *L, int table, int i) {
    lua_rawgeti(L, table, i);
    const int64_t value = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return value;
}

/* A bucket { offset, n, sharing }. */
static ga_bucket bucket_in(lua_State *L, int table, int i) {
    lua_rawgeti(L, table, i);
    static const char *const SHARINGS[] = {"element", "tensor", "bucket", NULL};
    ga_bucket b = {.offset = integer_in(L, lua_gettop(L), 1), .n = integer_in(L, lua_gettop(L), 2)};
    lua_rawgeti(L, -1, 3);
    b.sharing = (ga_sharing)luaL_checkoption(L, -1, NULL, SHARINGS);
    lua_pop(L, 2);
    return b;
}

int ga_division_host(lua_State *L) {
    const int count = (int)lua_rawlen(L, 1), start_count = (int)lua_rawlen(L, 2);
    const int ranks = (int)luaL_checkinteger(L, 3);
    ga_bucket *buckets = lua_newuserdatauv(L, sizeof *buckets * (size_t)(count + 1), 0);
    int64_t *starts = lua_newuserdatauv(L, sizeof *starts * (size_t)(start_count + 1), 0);
    ga_division d;
    ga_err e = {0};
    for (int i = 0; i < count; i++) buckets[i] = bucket_in(L, 1, i + 1);
    for (int i = 0; i < start_count; i++) starts[i] = integer_in(L, 2, i + 1);
    if (ga_division_open(&d, buckets, count, starts, start_count, 0, ranks, &e) < 0)
        return ga_host_refuse(L, "%s", e.msg);
    lua_createtable(L, count, 0);
    for (int i = 0; i < count; i++) {
        lua_createtable(L, ranks + 1, 0);
        for (int rank = 0; rank <= ranks; rank++) {
            lua_pushinteger(L, ga_division_cuts(&d, i)[rank]);
            lua_rawseti(L, -2, rank + 1);
        }
        lua_rawseti(L, -2, i + 1);
    }
    ga_division_close(&d);
    return 1;
}
