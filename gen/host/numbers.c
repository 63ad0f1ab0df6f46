/* numbers.c: host.floats, transposed and checksums: the elements of tensors in another type or order, and whether their
 * file is what was written, for `export`, whose tensors have hundreds of millions of elements. */
#include "numbers.h"

#include "base/f16.h"
#include "files/folder.h"
#include "files/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { F16, F32, F64 };
static const char *const types[] = {"F16", "F32", "F64", NULL};
static const size_t sizes[] = {2, 4, 8};

static float element(const char *at, size_t i, int type) {
    float narrow;
    double wide;
    if (type == F32) {
        memcpy(&narrow, at + i * sizeof narrow, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at + i * sizeof wide, sizeof wide);
    return (float)wide;
}

int ga_floats(lua_State *L) {
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    const lua_Integer first = luaL_checkinteger(L, 2) - 1, count = luaL_checkinteger(L, 3);
    const int from = luaL_checkoption(L, 4, NULL, types), to = luaL_checkoption(L, 5, NULL, types);
    luaL_argcheck(L, from != F16, 4, "expected F32 or F64");
    luaL_argcheck(L, to != F64, 5, "expected F16 or F32");
    luaL_argcheck(L, first >= 0 && (size_t)first <= bytes && count >= 0
                  && (size_t)count <= (bytes - (size_t)first) / sizes[from], 3, "beyond the text");
    luaL_Buffer made;
    char *out = luaL_buffinitsize(L, &made, (size_t)count * sizes[to]);
    for (size_t i = 0; i < (size_t)count; i++) {
        const float x = element(text + first, i, from);
        if (to == F32) memcpy(out + i * sizeof x, &x, sizeof x);
        if (to == F16) {
            const f16 half = f16_narrow(x);
            if (isfinite(x) && !isfinite(f16_widen(half))) return 0;
            memcpy(out + i * sizeof half, &half, sizeof half);
        }
    }
    luaL_pushresultsize(&made, (size_t)count * sizes[to]);
    return 1;
}

int ga_transposed(lua_State *L) {
    size_t bytes;
    const char *text = luaL_checklstring(L, 1, &bytes);
    const lua_Integer rows = luaL_checkinteger(L, 2), columns = luaL_checkinteger(L, 3);
    const size_t size = sizeof(float);
    luaL_argcheck(L, rows > 0 && columns > 0 && (size_t)rows <= bytes / size / (size_t)columns
                  && (size_t)rows * (size_t)columns * size == bytes, 2, "other sizes than the text has");
    luaL_Buffer made;
    char *out = luaL_buffinitsize(L, &made, bytes);
    for (size_t r = 0; r < (size_t)rows; r++) {
        for (size_t c = 0; c < (size_t)columns; c++) {
            memcpy(out + (c * (size_t)rows + r) * size, text + (r * (size_t)columns + c) * size, size);
        }
    }
    luaL_pushresultsize(&made, bytes);
    return 1;
}

int ga_checksums(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    const lua_Integer most = luaL_checkinteger(L, 2);
    luaL_argcheck(L, most > 0 && most < 1 << 20, 2, "out of range");
    uint32_t *sums = lua_newuserdatauv(L, (size_t)most * sizeof *sums, 0);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ga_host_refuse(L, "%s: %s", path, strerror(errno));
    int64_t bytes = 0;
    ga_err e = {0};
    const int code = ga_folder_checksum(fd, path, sums, most, &bytes, &e);
    close(fd);
    if (code < 0) return ga_host_refuse(L, "%s", e.msg);
    lua_newtable(L);
    for (lua_Integer i = 0; i * GA_BLOCK < bytes; i++) {
        char digits[9];
        snprintf(digits, sizeof digits, "%08x", (unsigned)sums[i]);
        lua_pushstring(L, digits);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}
