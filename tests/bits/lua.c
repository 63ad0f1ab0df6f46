/* lua.c: runs a Lua script with its arguments: lua SCRIPT [ARGUMENT]... */
#include <lauxlib.h>
#include <lualib.h>

#include <stdio.h>

int main(int argc, char **argv) {
    lua_State *L = luaL_newstate();
    if (!L || argc < 2) return 2;
    luaL_openlibs(L);
    lua_createtable(L, argc, 0);
    for (int i = 1; i < argc; i++) {
        lua_pushstring(L, argv[i]);
        lua_rawseti(L, -2, i - 1);
    }
    lua_setglobal(L, "arg");
    if (luaL_dofile(L, argv[1]) == LUA_OK) return 0;
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    return 1;
}
