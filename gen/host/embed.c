/* embed: writes files as one C file, the table of embedded.h. gagen's own Lua and the templates are compiled here, not
 * at each start; their functions keep the names of files and the numbers of lines.
 * usage: embed FILE... > embedded_files.c    (names sorted by byte; written as given) */
#include <lauxlib.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

/* Writes bytes as numbers, 24 to a line; *count: how many there are so far. */
static int print_bytes(lua_State *L, const void *bytes, size_t size, void *count) {
    size_t *n = count;
    (void)L;
    for (size_t i = 0; i < size; i++) printf("%s%d,", (*n)++ % 24 ? "" : "\n", ((const unsigned char *)bytes)[i]);
    return 0;
}

/* Leaves the text of the file on the stack; 0: the file could not be read. */
static int push_text(lua_State *L, const char *name) {
    FILE *f = fopen(name, "rb");
    luaL_Buffer text;
    if (!f) return 0;
    luaL_buffinit(L, &text);
    for (size_t n = 1; n > 0;) {
        char *room = luaL_prepbuffer(&text);
        n = fread(room, 1, LUAL_BUFFERSIZE, f);
        luaL_addsize(&text, n);
    }
    luaL_pushresult(&text);
    int done = !ferror(f);
    fclose(f);
    return done;
}

static int is_in(const char *name, const char *folder) { return strncmp(name, folder, strlen(folder)) == 0; }

/* Whether the text has a line that opens a block. */
static int is_template(const char *text) {
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "//@", 3) == 0 || strncmp(line, "#@", 2) == 0) return 1;
    }
    return 0;
}

/* Replaces the text of a template by that of its Lua chunk. */
static int push_template_code(lua_State *L) {
    if (luaL_dofile(L, "gen/base/template_code.lua") != LUA_OK) return 0;
    lua_insert(L, -2);
    return lua_pcall(L, 1, 1, 0) == LUA_OK;
}

/* Writes the text on top of the stack, or the chunk that it is compiled to. */
static int print_content(lua_State *L, const char *name) {
    size_t count = 0, size;
    const int templated = is_in(name, "templates/") && is_template(lua_tostring(L, -1));
    if (templated && !push_template_code(L)) return 0;
    const char *text = lua_tolstring(L, -1, &size);
    if (!templated && !is_in(name, "gen/")) return print_bytes(L, text, size, &count) == 0;
    lua_pushfstring(L, "@%s", name);
    if (luaL_loadbufferx(L, text, size, lua_tostring(L, -1), "t") != LUA_OK) return 0;
    return lua_dump(L, print_bytes, &count, 0) == 0;
}

static int print_file(lua_State *L, const char *name, int number) {
    printf("static const unsigned char file_%d[] = {", number);
    lua_settop(L, 0);
    int read = push_text(L, name), done = read && print_content(L, name);
    if (!done) fprintf(stderr, "embed: %s: %s\n", name, read ? lua_tostring(L, -1) : "cannot be read");
    printf("\n0};\n");
    return done;
}

int main(int argc, char **argv) {
    lua_State *L = luaL_newstate();
    if (!L) return 1;
    luaL_openlibs(L);
    printf("/* Made by gen/host/embed.c. */\n#include \"embedded.h\"\n");
    for (int i = 1; i < argc; i++) {
        if (!print_file(L, argv[i], i)) return 1;
    }
    lua_close(L);
    printf("const ga_embedded ga_embedded_files[] = {\n");
    for (int i = 1; i < argc; i++) {
        printf("    {\"%s\", file_%d, sizeof file_%d - 1},\n", argv[i], i, i);
    }
    printf("    {0, 0, 0}\n};\n");
    return fflush(stdout) != 0 || ferror(stdout);
}
