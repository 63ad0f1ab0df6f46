/* sha256.c: host.sha256(text): 64 hexadecimal digits. */
#include "host.h"

#include "files/sha256.h"

int ga_sha256_hex(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    char hex[65];
    ga_sha256 h;
    ga_sha256_start(&h);
    ga_sha256_add(&h, text, size);
    ga_sha256_finish(&h, hex);
    lua_pushlstring(L, hex, 64);
    return 1;
}
