/* nvrtc.c: kernels compiled by NVRTC where it is installed, for `gagen kernels --arch`. */
#include "nvrtc.h"

#include "device/device_private.h"
#include "host.h"

#include <stdlib.h>

enum { MOST_OPTIONS = 16 };

/* Opens the library that GAGEN_NVRTC names, or else one where the runtime looks for it. */
static int open_nvrtc(ga_nvrtc *n, ga_err *e) {
    static const char *const symbols[] = {GA_NVRTC_FUNCTIONS(GA_SYMBOL_NAME)};
    const char *named = getenv("GAGEN_NVRTC");
    const char *const usual[] = {"libnvrtc.so.13", "libnvrtc.so.12", NULL}, *const own[] = {named, NULL};
    void *library;
    return ga_library_open(&library, named && *named ? own : usual, symbols, (int)(sizeof symbols / sizeof *symbols),
                           (void (**)(void))n,
                           "install NVRTC of the CUDA toolkit, or name the library in GAGEN_NVRTC", e);
}

static void push_log(lua_State *L, const ga_nvrtc *n, nvrtcProgram p) {
    size_t bytes = 0;
    char *log = n->nvrtcGetProgramLogSize(p, &bytes) == NVRTC_SUCCESS ? calloc(1, bytes + 1) : NULL;
    if (log && n->nvrtcGetProgramLog(p, log) != NVRTC_SUCCESS) *log = 0;
    lua_pushstring(L, log ? log : "");
    free(log);
}

/* Pushes the module, or false. */
static void push_module(lua_State *L, const ga_nvrtc *n, nvrtcProgram p) {
    size_t bytes = 0;
    char *module = n->nvrtcGetCUBINSize(p, &bytes) == NVRTC_SUCCESS && bytes > 0 ? malloc(bytes) : NULL;
    if (module && n->nvrtcGetCUBIN(p, module) == NVRTC_SUCCESS)
        lua_pushlstring(L, module, bytes);
    else
        lua_pushboolean(L, 0);
    free(module);
}

int ga_nvrtc_compile(lua_State *L) {
    const char *text = luaL_checkstring(L, 1), *name = luaL_checkstring(L, 2), *options[MOST_OPTIONS];
    const int count = (int)luaL_len(L, 3);
    int major = 0, minor = 0;
    ga_nvrtc n;
    ga_err e;
    nvrtcProgram p = NULL;
    luaL_argcheck(L, count <= MOST_OPTIONS, 3, "too many options");
    for (int i = 0; i < count; i++) {
        lua_geti(L, 3, i + 1); /* stays on the stack, so that the text stays */
        options[i] = luaL_checkstring(L, -1);
    }
    if (open_nvrtc(&n, &e) != 0) return ga_host_refuse(L, "%s", e.msg);
    if (n.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS ||
        n.nvrtcCreateProgram(&p, text, name, 0, NULL, NULL) != NVRTC_SUCCESS)
        return ga_host_refuse(L, "libnvrtc: fails at its first call; install it anew");
    const nvrtcResult result = n.nvrtcCompileProgram(p, count, options);
    if (result == NVRTC_SUCCESS)
        push_module(L, &n, p);
    else
        lua_pushboolean(L, 0);
    push_log(L, &n, p);
    if (result != NVRTC_SUCCESS && result != NVRTC_ERROR_COMPILATION)
        lua_pushfstring(L, "%d.%d: %s", major, minor, n.nvrtcGetErrorString(result));
    else
        lua_pushfstring(L, "%d.%d", major, minor);
    n.nvrtcDestroyProgram(&p);
    return 3;
}
