/* files.c: reading and listing. Every function returns nil, "path: what" when the system refuses.
 */
#define _GNU_SOURCE
#include "host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_errno(lua_State *L, const char *path) {
    return ga_host_refuse(L, "%s: %s", path, strerror(errno));
}

static const char *kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

/* Reads at most limit + 1 bytes into a string on the stack; -1: errno says why. */
static long read_all(lua_State *L, int fd, size_t limit) {
    luaL_Buffer text;
    size_t total = 0;
    luaL_buffinit(L, &text);
    while (total <= limit) {
        size_t room = limit + 1 - total < 65536 ? limit + 1 - total : 65536;
        ssize_t n = read(fd, luaL_prepbuffsize(&text, room), room);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        luaL_addsize(&text, (size_t)n);
        total += (size_t)n;
    }
    luaL_pushresult(&text);
    return (long)total;
}

int ga_files_read(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    lua_Integer limit = luaL_optinteger(L, 2, 64 << 20);
    luaL_argcheck(L, limit >= 0 && limit < LONG_MAX, 2, "limit out of range");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK
                            | O_NOCTTY); /* a FIFO must not wait for a writer */
    if (fd < 0) return refuse_errno(L, path);
    struct stat s;
    if (fstat(fd, &s) != 0) {
        int results = refuse_errno(L, path);
        close(fd);
        return results;
    }
    if (!S_ISREG(s.st_mode)) {
        close(fd);
        return ga_host_refuse(L, "%s: is %s, expected a regular file", path, kind_of(s.st_mode));
    }
    long size = read_all(L, fd, (size_t)limit);
    int failed = errno;
    close(fd);
    if (size < 0) return ga_host_refuse(L, "%s: %s", path, strerror(failed));
    if (size <= limit) return 1;
    if (limit % 1024 == 0)
        return ga_host_refuse(L, "%s: larger than %lld KB", path, (long long)limit / 1024);
    return ga_host_refuse(L, "%s: larger than %lld bytes", path, (long long)limit);
}

int ga_files_exists(lua_State *L) {
    struct stat s;
    if (stat(luaL_checkstring(L, 1), &s) != 0) {
        lua_pushboolean(L, 0);
        return 1;
    }
    lua_pushstring(L, S_ISREG(s.st_mode) ? "file" : S_ISDIR(s.st_mode) ? "folder" : "other");
    return 1;
}

static int make_folder(const char *path) {
    struct stat s;
    if (mkdir(path, 0777) == 0) return 0;
    if (errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode)) return 0;
    return -1;
}

int ga_files_folder(lua_State *L) {
    size_t size;
    const char *given = luaL_checklstring(L, 1, &size);
    char *path = memcpy(lua_newuserdatauv(L, size + 1, 0), given, size + 1);
    for (size_t i = 1; i < size; i++) {
        if (path[i] != '/') continue;
        path[i] = '\0';
        if (make_folder(path) != 0) return refuse_errno(L, path);
        path[i] = '/';
    }
    if (make_folder(path) != 0) return refuse_errno(L, given);
    lua_pushboolean(L, 1);
    return 1;
}

static int by_byte(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Replaces the array of n strings on top of the stack by a sorted one. */
static void sort_names(lua_State *L, size_t n) {
    const char **names = lua_newuserdatauv(L, (n + 1) * sizeof *names, 0);
    for (size_t i = 0; i < n; i++) {
        lua_rawgeti(L, -2, (lua_Integer)i + 1);
        names[i] = lua_tostring(L, -1);
        lua_pop(L, 1); /* the array keeps it */
    }
    qsort(names, n, sizeof *names, by_byte);
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_pushstring(L, names[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

int ga_files_list(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    DIR *folder = opendir(path);
    if (!folder) return refuse_errno(L, path);
    size_t n = 0;
    lua_newtable(L);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        lua_pushstring(L, entry->d_name);
        lua_rawseti(L, -2, (lua_Integer)++n);
        errno = 0;
    }
    int failed = errno;
    closedir(folder);
    if (failed) return ga_host_refuse(L, "%s: %s", path, strerror(failed));
    sort_names(L, n);
    return 1;
}

int ga_files_disk_size(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    char *paths[] = { (char *)path, NULL };
    FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!walk) return refuse_errno(L, path);
    lua_Integer blocks = 0;
    int failed = 0;
    for (FTSENT *entry; (entry = fts_read(walk));) {
        if (entry->fts_info == FTS_NS && entry->fts_level == 0) failed = entry->fts_errno;
        else if (entry->fts_info != FTS_NS && entry->fts_info != FTS_DP) blocks += entry->fts_statp->st_blocks;
    }
    fts_close(walk);
    if (failed) return ga_host_refuse(L, "%s: %s", path, strerror(failed));
    lua_pushinteger(L, 512 * blocks);
    return 1;
}

int ga_files_absolute(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    char *real = realpath(path, NULL);
    if (real) {
        lua_pushstring(L, real);
        free(real);
        return 1;
    }
    if (path[0] == '/') {
        lua_pushstring(L, path);
        return 1;
    }
    char *here = getcwd(NULL, 0);
    if (!here) return refuse_errno(L, ".");
    lua_pushfstring(L, "%s/%s", here, path);
    free(here);
    return 1;
}

int ga_files_remove(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    struct stat s;
    if (lstat(path, &s) != 0) {
        if (errno != ENOENT) return refuse_errno(L, path);
        lua_pushboolean(L, 0);
        return 1;
    }
    int failed = S_ISDIR(s.st_mode) ? rmdir(path) : unlink(path);
    if (failed) return refuse_errno(L, path);
    lua_pushboolean(L, 1);
    return 1;
}

int ga_files_temporary(lua_State *L) {
    const char *folder = getenv("TMPDIR");
    const char *path = lua_pushfstring(L, "%s/gagen-XXXXXX", folder && *folder ? folder : "/tmp");
    char *made = memcpy(lua_newuserdatauv(L, strlen(path) + 1, 0), path, strlen(path) + 1);
    if (!mkdtemp(made)) return refuse_errno(L, path);
    lua_pushstring(L, made);
    return 1;
}
