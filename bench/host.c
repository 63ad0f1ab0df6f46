/* host.c: runs a Lua script of bench in gagen's own Lua, with gagen's modules, the table `host` (gen/host/host.h), and
 *
 *   measured { argv..., cwd= }   runs a command: { status, out, err, seconds by the clock, cpu = seconds of the
 *                                processor, peak = bytes of memory at most }; nil, message: not started
 *
 * usage: host SCRIPT ARGUMENT... */
#include "host.h"
#include "process.h"

#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_number(lua_State *L, const char *name, double x) {
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

static int measured(lua_State *L) {
    ga_command c = { .capture = 1 };
    ga_outcome o;
    luaL_checktype(L, 1, LUA_TTABLE);
    const lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    luaL_argcheck(L, n > 0, 1, "no program");
    c.argv = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *c.argv, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        c.argv[i - 1] = (char *)luaL_checkstring(L, -1); /* the table keeps it */
        lua_pop(L, 1);
    }
    c.argv[n] = NULL;
    lua_getfield(L, 1, "cwd");
    c.cwd = lua_tostring(L, -1);
    const double from = now();
    const int failed = ga_command_run(&c, &o);
    if (failed) return ga_host_refuse(L, "%s: %s", c.argv[0], strerror(failed));
    lua_createtable(L, 0, 6);
    set_number(L, "seconds", now() - from);
    set_number(L, "cpu", o.cpu_seconds);
    set_number(L, "peak", o.peak_bytes);
    lua_pushinteger(L, o.status);
    lua_setfield(L, -2, "status");
    lua_pushlstring(L, o.out ? o.out : "", o.out_size);
    lua_setfield(L, -2, "out");
    lua_pushlstring(L, o.err ? o.err : "", o.err_size);
    lua_setfield(L, -2, "err");
    ga_outcome_free(&o);
    return 1;
}

int main(int argc, char **argv) {
    const ga_host host = { .argc = argc > 2 ? argc - 2 : 0, .argv = argv + 2 };
    lua_State *L = argc > 1 ? ga_host_open(&host) : NULL;
    if (!L) {
        fprintf(stderr, argc > 1 ? "host: not enough memory\n" : "usage: host SCRIPT ARGUMENT...\n");
        return argc > 1 ? GA_EXIT_ENVIRONMENT : GA_EXIT_USER;
    }
    lua_pushglobaltable(L);
    lua_pushliteral(L, "measured");
    lua_pushcfunction(L, measured);
    lua_rawset(L, -3);
    lua_pushcfunction(L, ga_host_handler);
    const int handler = lua_gettop(L);
    int code = luaL_loadfilex(L, argv[1], "t");
    if (code == LUA_OK) code = lua_pcall(L, 0, 1, handler);
    code = code == LUA_OK ? (int)lua_tointeger(L, -1) : ga_host_report(L, stderr);
    return fflush(stdout) == 0 ? code : GA_EXIT_ENVIRONMENT;
}
