/* shape.c: host.csv_shape: what gagen has to know of a CSV file before it can write a program for
 * it. */
#include "host.h"
#include "csv.h"

int ga_csv_shape_host(lua_State *L) {
    ga_csv_shape shape;
    ga_err e = { 0 };
    if (ga_csv_scan(luaL_checkstring(L, 1), &shape, &e) < 0) return ga_host_refuse(L, "%s", e.msg);
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, (lua_Integer)shape.rows);
    lua_setfield(L, -2, "rows");
    lua_pushinteger(L, (lua_Integer)shape.columns);
    lua_setfield(L, -2, "columns");
    lua_pushboolean(L, shape.last_integer);
    lua_setfield(L, -2, "integer_last");
    lua_pushnumber(L, shape.last_min);
    lua_setfield(L, -2, "min_last");
    lua_pushnumber(L, shape.last_max);
    lua_setfield(L, -2, "max_last");
    return 1;
}
