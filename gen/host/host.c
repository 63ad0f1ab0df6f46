/* host.c: the Lua state gagen runs in: libraries, the table `host`, the searcher for gagen's own
 * modules, strict globals, and the printing of errors. Invariant: the environment and the disk do
 * not change which Lua code runs: LUA_PATH, LUA_INIT and the current folder are ignored. */
#include "host.h"
#include "memory.h"
#include "numbers.h"
#include "nvrtc.h"

#include <lualib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HOST_KEY "gagen.host"

const ga_host *ga_host_of(lua_State *L) {
    lua_getfield(L, LUA_REGISTRYINDEX, HOST_KEY);
    const ga_host *host = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return host;
}

int ga_host_refuse(lua_State *L, const char *format, ...) {
    char message[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    lua_pushnil(L);
    lua_pushstring(L, message);
    return 2;
}

static int host_environment(lua_State *L) {
    lua_pushstring(L, getenv(luaL_checkstring(L, 1))); /* NULL becomes nil */
    return 1;
}

static int host_embedded(lua_State *L) {
    const char *name = luaL_checkstring(L, 1);
    if (ga_embedded_push(L, name)) return 1;
    return luaL_error(L, "no file '%s' in gagen", name);
}

static int host_embedded_names(lua_State *L) {
    ga_embedded_names(L, luaL_checkstring(L, 1));
    return 1;
}

static int host_terminal(lua_State *L) {
    struct winsize window = {.ws_col = 0};
    const int fd = (int)luaL_checkinteger(L, 1);
    if (!isatty(fd)) {
        lua_pushboolean(L, 0);
        return 1;
    }
    if (ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) window.ws_col = 80;
    lua_pushinteger(L, window.ws_col);
    return 1;
}

static const luaL_Reg host_functions[] = {
    { "environment", host_environment },
    { "read", ga_files_read },
    { "exists", ga_files_exists },
    { "folder", ga_files_folder },
    { "list", ga_files_list },
    { "disk_size", ga_files_disk_size },
    { "absolute", ga_files_absolute },
    { "remove", ga_files_remove },
    { "write", ga_write_file },
    { "link", ga_write_link },
    { "lock", ga_lock_open },
    { "lock_holder", ga_lock_holder },
    { "pause", ga_lock_pause },
    { "sha256", ga_sha256_hex },
    { "json", ga_json_encode },
    { "parse_json", ga_json_decode },
    { "temporary", ga_files_temporary },
    { "embedded", host_embedded },
    { "embedded_names", host_embedded_names },
    { "evaluate", ga_box_evaluate },
    { "data_scan", ga_data_scan_host },
    { "csv_line", ga_csv_line },
    { "csv_columns", ga_csv_columns },
    { "byte_pairs", ga_byte_pairs },
    { "word_pieces", ga_word_pieces },
    { "distance", ga_distance },
    { "floats", ga_floats },
    { "transposed", ga_transposed },
    { "checksums", ga_checksums },
    { "division", ga_division_host },
    { "run", ga_process_host },
    { "together", ga_together },
    { "free_port", ga_free_port },
    { "cpu", ga_cpu_features },
    { "nvrtc", ga_nvrtc_compile },
    { "terminal", host_terminal },
    { NULL, NULL },
};

static void push_host(lua_State *L, const ga_host *host) {
    luaL_newlib(L, host_functions);
    lua_createtable(L, host->argc, 0);
    for (int i = 0; i < host->argc; i++) {
        lua_pushstring(L, host->argv[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "arguments");
    lua_pushliteral(L, GA_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushliteral(L, LUA_RELEASE);
    lua_setfield(L, -2, "lua_release");
}

static int undeclared(lua_State *L) {
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : luaL_typename(L, 2);
    return luaL_error(L, "undeclared global '%s'", name);
}

static void make_globals_strict(lua_State *L) {
    lua_pushglobaltable(L);
    lua_createtable(L, 0, 3);
    lua_pushcfunction(L, undeclared);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, undeclared);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_pop(L, 1);
}

static void set_searcher(lua_State *L) {
    lua_getglobal(L, "package");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "path");
    lua_pushliteral(L, "");
    lua_setfield(L, -2, "cpath");
    lua_createtable(L, 1, 0);
    lua_pushcfunction(L, ga_embedded_searcher);
    lua_rawseti(L, -2, 1);
    lua_setfield(L, -2, "searchers");
    lua_pop(L, 1);
}

static int open_state(lua_State *L) {
    const ga_host *host = lua_touserdata(L, 1);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    luaL_openlibs(L);
    lua_pushvalue(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, HOST_KEY);
    set_searcher(L);
    push_host(L, host);
    lua_setglobal(L, "host");
    make_globals_strict(L);
    return 0;
}

lua_State *ga_host_open(const ga_host *host) {
    lua_State *L = lua_newstate(ga_memory_resize, NULL);
    if (!L) return NULL;
    lua_pushcfunction(L, open_state);
    lua_pushlightuserdata(L, (void *)host);
    if (lua_pcall(L, 1, 0, 0) == LUA_OK) return L;
    lua_close(L);
    return NULL;
}

static int is_diagnostic(lua_State *L, int index) {
    if (luaL_getmetafield(L, index, "__name") == LUA_TNIL) return 0;
    const char *name = lua_tostring(L, -1);
    int is = name && strcmp(name, "diagnostic") == 0;
    lua_pop(L, 1);
    return is;
}

int ga_host_handler(lua_State *L) {
    if (is_diagnostic(L, 1)) return 1;
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

/* Calls diag.render on the diagnostic at `index`, to be printed to `out`; the text is on top of the stack. */
static int render(lua_State *L, int index, FILE *out) {
    lua_getglobal(L, "require");
    lua_pushliteral(L, "base.diag");
    if (lua_pcall(L, 1, 1, 0) != LUA_OK) return 0;
    lua_getfield(L, -1, "render");
    lua_pushvalue(L, index);
    lua_pushinteger(L, fileno(out));
    return lua_pcall(L, 2, 1, 0) == LUA_OK;
}

int ga_host_report(lua_State *L, FILE *out) {
    int value = lua_gettop(L), code = GA_EXIT_USER;
    if (is_diagnostic(L, value) && render(L, value, out)) {
        fputs(lua_tostring(L, -1), out);
        lua_getfield(L, value, "kind");
        const char *kind = lua_tostring(L, -1);
        if (kind && strcmp(kind, "environment") == 0) code = GA_EXIT_ENVIRONMENT;
        if (kind && strcmp(kind, "bug") == 0) code = GA_EXIT_BUG;
    } else {
        fprintf(out,
                "gagen: internal error (a defect of gagen " GA_VERSION
                ", please report it with the spec)\n%s\n",
                luaL_tolstring(L, -1, NULL));
        code = GA_EXIT_BUG;
    }
    lua_settop(L, value - 1);
    return code;
}

/* A run is short: memory is collected only when ten times as much is in use as after the last time. Collecting as Lua
 * does by itself would be a third of the work. */
int ga_host_main(lua_State *L) {
    lua_gc(L, LUA_GCINC, 1000, 0, 0);
    lua_pushcfunction(L, ga_host_handler);
    int handler = lua_gettop(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "gagen");
    int status = lua_pcall(L, 1, 1, handler);
    if (status == LUA_OK) {
        lua_getglobal(L, "host");
        lua_getfield(L, -1, "arguments");
        lua_remove(L, -2);
        status = lua_pcall(L, 1, 1, handler);
    }
    int code = status == LUA_OK ? (int)lua_tointeger(L, -1) : ga_host_report(L, stderr);
    lua_settop(L, handler - 1);
    return code;
}
