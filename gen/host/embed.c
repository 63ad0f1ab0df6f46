/* embed: writes files as one C file, the table of embedded.h. gagen's own Lua is compiled here, not at each start; its
 * functions keep the names of files and the numbers of lines.
 * usage: embed FILE... > embedded_files.c    (names sorted by byte; written as given) */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

/* Writes bytes as numbers, 24 to a line; *count: how many there are so far. */
static int print_bytes(lua_State *L, const void *bytes, size_t size, void *count) {
    size_t *n = count;
    (void)L;
    for (size_t i = 0; i < size; i++) printf("%s%d,", (*n)++ % 24 ? "" : "\n", ((const unsigned char *)bytes)[i]);
    return 0;
}

/* 0: the file could not be read. */
static int print_text(const char *name) {
    FILE *f = fopen(name, "rb");
    size_t count = 0;
    char buffer[4096];
    if (!f) return 0;
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) print_bytes(NULL, buffer, n, &count);
    int done = !ferror(f);
    fclose(f);
    return done;
}

static int print_chunk(lua_State *L, const char *name) {
    size_t count = 0;
    if (luaL_loadfilex(L, name, "t") != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        return 0;
    }
    int done = lua_dump(L, print_bytes, &count, 0) == 0;
    lua_pop(L, 1);
    return done;
}

static int print_file(lua_State *L, const char *name, int number) {
    printf("static const unsigned char file_%d[] = {", number);
    int done = strncmp(name, "gen/", 4) == 0 ? print_chunk(L, name) : print_text(name);
    if (!done) fprintf(stderr, "embed: %s is not to be had\n", name);
    printf("\n0};\n");
    return done;
}

int main(int argc, char **argv) {
    lua_State *L = luaL_newstate();
    if (!L) return 1;
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
