/* embedded.c: looks up the files gagen carries, or under --dev those they were made from, and loads gagen's modules
 * from them. Invariant: a chunk is named "@gen/...", wherever it comes from. */
#include "embedded.h"
#include "host.h"

#include <string.h>

static int push_from_disk(lua_State *L, const char *folder, const char *name) {
    lua_pushcfunction(L, ga_files_read);
    lua_pushfstring(L, "%s/%s", folder, name);
    lua_call(L, 1, 1);
    if (lua_isstring(L, -1)) return 1;
    lua_pop(L, 1);
    return 0;
}

int ga_embedded_push(lua_State *L, const char *name) {
    const ga_host *host = ga_host_of(L);
    if (host->dev) return strstr(name, "..") ? 0 : push_from_disk(L, host->dev, name);
    for (const ga_embedded *f = ga_embedded_files; f->name; f++) {
        if (strcmp(f->name, name) != 0) continue;
        lua_pushlstring(L, (const char *)f->text, f->size);
        return 1;
    }
    return 0;
}

static int ends_with(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcmp(name + n - k, end) == 0;
}

/* The rule of the Makefile for what is embedded. */
static int is_embedded(const char *name) {
    if (strncmp(name, "templates/", 10) == 0) return 1;
    if (strncmp(name, "gen/", 4) == 0) return ends_with(name, ".lua");
    if (strncmp(name, "specs/", 6) == 0) return !strchr(name + 6, '/') && ends_with(name, ".lua");
    return ends_with(name, ".c") || ends_with(name, ".h");
}

/* Appends the files under dev/folder to the array on top of the stack. */
static void list_folder(lua_State *L, const char *dev, const char *folder) {
    luaL_checkstack(L, 10, NULL);
    lua_pushcfunction(L, ga_files_list);
    lua_pushfstring(L, "%s/%s", dev, folder);
    lua_call(L, 1, 1);
    int names = lua_gettop(L);
    lua_Integer n = lua_istable(L, names) ? (lua_Integer)lua_rawlen(L, names) : 0;
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, names, i);
        const char *name = lua_pushfstring(L, "%s/%s", folder, lua_tostring(L, -1));
        lua_pushcfunction(L, ga_files_exists);
        lua_pushfstring(L, "%s/%s", dev, name);
        lua_call(L, 1, 1);
        const char *kind = lua_tostring(L, -1);
        lua_pushvalue(L, names - 1);
        if (kind && strcmp(kind, "folder") == 0) {
            list_folder(L, dev, name);
        } else if (kind && is_embedded(name)) {
            lua_pushstring(L, name);
            lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        }
        lua_settop(L, names);
    }
    lua_pop(L, 1);
}

void ga_embedded_names(lua_State *L, const char *prefix) {
    const ga_host *host = ga_host_of(L);
    lua_newtable(L);
    if (host->dev) {
        list_folder(L, host->dev, "gen");
        list_folder(L, host->dev, "runtime");
        list_folder(L, host->dev, "specs");
        list_folder(L, host->dev, "templates");
    } else {
        for (lua_Integer i = 0; ga_embedded_files[i].name; i++) {
            lua_pushstring(L, ga_embedded_files[i].name);
            lua_rawseti(L, -2, i + 1);
        }
    }
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1), kept = 0;
    lua_newtable(L);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, -2, i);
        if (strncmp(lua_tostring(L, -1), prefix, strlen(prefix)) == 0) lua_rawseti(L, -2, ++kept);
        else lua_pop(L, 1);
    }
    lua_remove(L, -2);
}

int ga_embedded_searcher(lua_State *L) {
    const char *module = luaL_checkstring(L, 1);
    const char *file = luaL_gsub(L, module, ".", "/");
    const char *name = lua_pushfstring(L, "gen/%s.lua", file);
    if (!ga_embedded_push(L, name)) {
        lua_pushfstring(L, "no file '%s' in gagen", name);
        return 1;
    }
    size_t size;
    const char *text = lua_tolstring(L, -1, &size);
    if (luaL_loadbufferx(L, text, size, lua_pushfstring(L, "@%s", name), NULL) != LUA_OK)
        return lua_error(L);
    lua_pushstring(L, name);
    return 2;
}
