/* distance.c: host.distance(type, x, at_x, y, at_y, count): the largest difference of two runs of floats,
 * for `check --equiv`, whose tensors have hundreds of millions of elements. */
#include "numbers.h"

#include <math.h>
#include <string.h>

static double element(const char *at, size_t i, size_t size) {
    float narrow;
    double wide;
    if (size == sizeof wide) {
        memcpy(&wide, at + i * size, size);
        return wide;
    }
    memcpy(&narrow, at + i * size, size);
    return narrow;
}

/* The address of `count` elements of `size` bytes at byte `at`, counted from 1. */
static const char *run_of(lua_State *L, int text, int at, lua_Integer count, size_t size) {
    size_t bytes;
    const char *start = luaL_checklstring(L, text, &bytes);
    const lua_Integer first = luaL_checkinteger(L, at) - 1;
    luaL_argcheck(L, first >= 0 && (size_t)first <= bytes && count >= 0
                  && (size_t)count <= (bytes - (size_t)first) / size, at, "beyond the text");
    return start + first;
}

int ga_distance(lua_State *L) {
    static const char *const types[] = {"F32", "F64", NULL};
    const size_t size = luaL_checkoption(L, 1, NULL, types) == 0 ? sizeof(float) : sizeof(double);
    const lua_Integer count = luaL_checkinteger(L, 6);
    const char *x = run_of(L, 2, 3, count, size), *y = run_of(L, 4, 5, count, size);
    double gap = 0, largest = 0;
    for (size_t i = 0; i < (size_t)count; i++) {
        const double a = element(x, i, size), b = element(y, i, size), d = fabs(a - b);
        if (d > gap || isnan(d)) gap = d;
        largest = fmax(largest, fabs(b));
    }
    lua_pushnumber(L, gap);
    lua_pushnumber(L, largest);
    return 2;
}
