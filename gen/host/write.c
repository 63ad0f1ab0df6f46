/* write.c: the only writing gagen does: a file of an output folder, and a link in it. A reader sees
 * the old file or the new one, never a part of it; a link in the place of a folder or file is never
 * followed. */
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(lua_State *L, const char *folder, const char *name, const char *what) {
    return ga_host_refuse(L, "%s/%s: %s", folder, name, what);
}

static int is_component(const char *name) {
    if (!*name || strlen(name) > 200 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return 0;
    for (const char *c = name; *c; c++) {
        if (*c == '/' || (unsigned char)*c < 32 || *c == 127) return 0;
    }
    return 1;
}

/* Opens the folder that gets the file; *name becomes its last component. -1: errno says why. */
static int open_folder(const char *folder, const char **name) {
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = open(folder, flags);
    if (fd < 0 || strncmp(*name, "runtime/", 8) != 0) return fd;
    *name += 8;
    int inner = -1;
    if (mkdirat(fd, "runtime", 0777) == 0 || errno == EEXIST) inner = openat(fd, "runtime", flags);
    int failed = errno;
    close(fd);
    errno = failed;
    return inner;
}

/* 1: the file has exactly this text; 0: it differs or is not there; -1: there is something else. */
static int has_text(int folder, const char *name, const char *text, size_t size) {
    struct stat s;
    char block[16384];
    if (fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    if (!S_ISREG(s.st_mode)) return -1;
    if ((size_t)s.st_size != size) return 0;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    size_t done = 0;
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        if ((size_t)n > size - done || memcmp(block, text + done, (size_t)n) != 0) {
            done = size + 1;
            break;
        }
        done += (size_t)n;
    }
    close(fd);
    return done == size;
}

static int write_all(int fd, const char *text, size_t size) {
    while (size > 0) {
        ssize_t n = write(fd, text, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        text += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Writes through .NAME.new; a file of that name is what an earlier run left when it was killed. */
static int replace(int folder, const char *name, const char *text, size_t size) {
    char temporary[256];
    snprintf(temporary, sizeof temporary, ".%s.new", name);
    if (unlinkat(folder, temporary, 0) != 0 && errno != ENOENT) return -1;
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return -1;
    int failed = write_all(fd, text, size) != 0 ? errno : 0;
    if (close(fd) != 0 && !failed) failed = errno;
    if (!failed && renameat(folder, temporary, folder, name) != 0) failed = errno;
    if (failed) unlinkat(folder, temporary, 0);
    errno = failed;
    return failed ? -1 : 0;
}

int ga_write_file(lua_State *L) {
    size_t size;
    const char *folder = luaL_checkstring(L, 1), *name = luaL_checkstring(L, 2), *last = name;
    const char *text = luaL_checklstring(L, 3, &size);
    if (!is_component(strncmp(name, "runtime/", 8) == 0 ? name + 8 : name)) {
        return refuse(L, folder, name, "is no name of a file, expected one component or runtime/x");
    }
    int fd = open_folder(folder, &last);
    if (fd < 0) {
        if (errno == ELOOP || errno == ENOTDIR) {
            return refuse(L, folder, name,
                          "a link or file is in the place of its folder: it is not followed");
        }
        return refuse(L, folder, name, strerror(errno));
    }
    int same = has_text(fd, last, text, size);
    int failed = same == 0 && replace(fd, last, text, size) != 0 ? errno : 0;
    close(fd);
    if (same < 0)
        return refuse(L, folder, name, "is a link, folder or device, expected a regular file");
    if (failed) return refuse(L, folder, name, strerror(failed));
    lua_pushstring(L, same ? "unchanged" : "written");
    return 1;
}

int ga_write_link(lua_State *L) {
    const char *target = luaL_checkstring(L, 1), *path = luaL_checkstring(L, 2);
    char found[4096];
    struct stat s;
    if (lstat(path, &s) == 0) {
        if (!S_ISLNK(s.st_mode))
            return ga_host_refuse(L, "%s: is no symbolic link: it is left as it is", path);
        ssize_t n = readlink(path, found, sizeof found - 1);
        if (n >= 0 && (size_t)n == strlen(target) && memcmp(found, target, (size_t)n) == 0) {
            lua_pushliteral(L, "unchanged");
            return 1;
        }
        if (unlink(path) != 0) return ga_host_refuse(L, "%s: %s", path, strerror(errno));
    }
    if (symlink(target, path) != 0) return ga_host_refuse(L, "%s: %s", path, strerror(errno));
    lua_pushliteral(L, "written");
    return 1;
}
