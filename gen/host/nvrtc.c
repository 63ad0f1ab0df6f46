/* nvrtc.c: kernels compiled by NVRTC where it is installed, for `gagen kernels --arch`. */
#include "nvrtc.h"

#include "device/cuda_abi.h"
#include "host.h"

#include <dlfcn.h>
#include <stdlib.h>

enum { MOST_OPTIONS = 16 };

#define POINTER(result, name, arguments) result(*name) arguments;
#define NAME(result, name, arguments) #name,
typedef struct {
    GA_NVRTC_FUNCTIONS(POINTER)
} nvrtc;

/* The library that GAGEN_NVRTC names, or else one that the linker knows or that lies where a toolkit puts it. */
static void *open_library(void) {
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
    const char *named = getenv("GAGEN_NVRTC"), *folders[] = {getenv("CUDA_HOME"), "/usr/local/cuda"};
    char path[4096];
    if (named && *named) return dlopen(named, RTLD_NOW);
    for (size_t i = 0; i < sizeof sonames / sizeof *sonames; i++) {
        void *library = dlopen(sonames[i], RTLD_NOW);
        if (library) return library;
        for (size_t k = 0; k < sizeof folders / sizeof *folders; k++) {
            if (!folders[k] ||
                snprintf(path, sizeof path, "%s/lib64/%s", folders[k], sonames[i]) >= (int)sizeof path)
                continue;
            library = dlopen(path, RTLD_NOW);
            if (library) return library;
        }
    }
    return NULL;
}

static int find_functions(nvrtc *n) {
    static const char *const names[] = {GA_NVRTC_FUNCTIONS(NAME)};
    void *library = open_library(), **functions = (void **)n;
    for (size_t i = 0; library && i < sizeof names / sizeof *names; i++) {
        functions[i] = dlsym(library, names[i]);
        if (!functions[i]) return 0;
    }
    return library != NULL;
}

static void push_log(lua_State *L, const nvrtc *n, nvrtcProgram p) {
    size_t bytes = 0;
    char *log = n->nvrtcGetProgramLogSize(p, &bytes) == NVRTC_SUCCESS ? calloc(1, bytes + 1) : NULL;
    if (log && n->nvrtcGetProgramLog(p, log) != NVRTC_SUCCESS) *log = 0;
    lua_pushstring(L, log ? log : "");
    free(log);
}

/* Pushes the module, or false. */
static void push_module(lua_State *L, const nvrtc *n, nvrtcProgram p) {
    size_t bytes = 0;
    char *module = n->nvrtcGetCUBINSize(p, &bytes) == NVRTC_SUCCESS && bytes > 0 ? malloc(bytes) : NULL;
    if (module && n->nvrtcGetCUBIN(p, module) == NVRTC_SUCCESS)
        lua_pushlstring(L, module, bytes);
    else
        lua_pushboolean(L, 0);
    free(module);
}

int ga_nvrtc(lua_State *L) {
    const char *text = luaL_checkstring(L, 1), *name = luaL_checkstring(L, 2), *options[MOST_OPTIONS];
    const int count = (int)luaL_len(L, 3);
    int major = 0, minor = 0;
    nvrtc n;
    nvrtcProgram p = NULL;
    luaL_argcheck(L, count <= MOST_OPTIONS, 3, "too many options");
    for (int i = 0; i < count; i++) {
        lua_geti(L, 3, i + 1); /* stays on the stack, so that the text stays */
        options[i] = luaL_checkstring(L, -1);
    }
    if (!find_functions(&n) || n.nvrtcVersion(&major, &minor) != NVRTC_SUCCESS ||
        n.nvrtcCreateProgram(&p, text, name, 0, NULL, NULL) != NVRTC_SUCCESS) {
        lua_pushnil(L);
        return 1;
    }
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
