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

enum { FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

/* Whether the first n bytes of a name are one component of a path. */
static int is_component(const char *name, size_t n) {
    if (n == 0 || n > 200 || (n <= 2 && name[0] == '.' && name[n - 1] == '.')) return 0;
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '/' || (unsigned char)name[i] < 32 || name[i] == 127) return 0;
    }
    return 1;
}

/* x or runtime/folder/x. */
static int is_name(const char *name) {
    if (strncmp(name, "runtime/", 8) == 0) {
        size_t n = strcspn(name + 8, "/");
        if (!is_component(name + 8, n) || name[8 + n] != '/') return 0;
        name += 8 + n + 1;
    }
    return is_component(name, strlen(name));
}

/* Takes the next folder off *name and opens it inside `parent`, which is closed. -1: errno says why. */
static int enter(int parent, const char **name) {
    char component[256];
    const char *end = strchr(*name, '/');
    int fd = -1;
    snprintf(component, sizeof component, "%.*s", (int)(end - *name), *name);
    *name = end + 1;
    if (mkdirat(parent, component, 0777) == 0 || errno == EEXIST) fd = openat(parent, component, FOLDER_FLAGS);
    int failed = errno;
    close(parent);
    errno = failed;
    return fd;
}

/* Opens the folder that gets the file; *name becomes its last component. -1: errno says why. */
static int open_folder(const char *folder, const char **name) {
    int fd = open(folder, FOLDER_FLAGS);
    while (fd >= 0 && strchr(*name, '/')) fd = enter(fd, name);
    return fd;
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
    if (!is_name(name)) return refuse(L, folder, name, "is no name of a file, expected x or runtime/folder/x");
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
