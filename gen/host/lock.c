/* lock.c: record locks of POSIX on whole files, by which processes share a folder. The kernel gives a lock back when
 * its process ends, however it ends. */
#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_TYPE "gagen.lock"

typedef struct {
    int fd;     /* -1: closed */
    int denied; /* errno of opening the file for writing; 0: it is open for that */
} lock;

static struct flock whole_file(short type) { return (struct flock){ .l_type = type, .l_whence = SEEK_SET }; }

/* Opens a regular file and nothing else; -1: errno says why. */
static int open_file(const char *path, int flags) {
    struct stat s;
    const int fd = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0 || (fstat(fd, &s) == 0 && S_ISREG(s.st_mode))) return fd;
    close(fd);
    errno = EISDIR;
    return -1;
}

static int refuse(lua_State *L, const char *path, int failed) {
    return ga_host_refuse(L, "%s: %s", path,
                          failed == ELOOP || failed == EISDIR || failed == ENXIO
                              ? "is a link, folder or device, expected a regular file"
                              : strerror(failed));
}

/* Pushes the name of a process's program, or nil. */
static void push_name(lua_State *L, pid_t process) {
    char path[64], name[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)process);
    FILE *file = process > 0 ? fopen(path, "re") : NULL;
    if (file && fgets(name, sizeof name, file)) lua_pushlstring(L, name, strcspn(name, "\n"));
    else lua_pushnil(L);
    if (file) fclose(file);
}

/* Pushes { process, name, alone } of a lock in the way of `wanted`, or false; -1: errno says why. */
static int push_holder(lua_State *L, int fd, short wanted) {
    struct flock found = whole_file(wanted);
    if (fcntl(fd, F_GETLK, &found) != 0) return -1;
    if (found.l_type == F_UNLCK) {
        lua_pushboolean(L, 0);
        return 0;
    }
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, found.l_pid);
    lua_setfield(L, -2, "process");
    push_name(L, found.l_pid);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, found.l_type == F_WRLCK);
    lua_setfield(L, -2, "alone");
    return 0;
}

/* take(kind): the lock's path is its user value. A holder that is gone when it is asked for was too short to matter. */
static int lock_take(lua_State *L) {
    static const char *const kinds[] = { "shared", "alone", NULL };
    lock *l = luaL_checkudata(L, 1, LOCK_TYPE);
    const short type = luaL_checkoption(L, 2, NULL, kinds) == 0 ? F_RDLCK : F_WRLCK;
    luaL_argcheck(L, l->fd >= 0, 1, "a lock that was closed");
    lua_getiuservalue(L, 1, 1);
    const char *path = lua_tostring(L, -1);
    if (type == F_WRLCK && l->denied) return refuse(L, path, l->denied);
    for (;;) {
        struct flock wanted = whole_file(type);
        if (fcntl(l->fd, F_SETLK, &wanted) == 0) break;
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EACCES) return refuse(L, path, errno);
        lua_pushboolean(L, 0);
        if (push_holder(L, l->fd, type) != 0) return refuse(L, path, errno);
        if (lua_istable(L, -1)) return 2;
        lua_pop(L, 2);
    }
    lua_pushboolean(L, 1);
    return 1;
}

static int lock_release(lua_State *L) {
    const lock *l = luaL_checkudata(L, 1, LOCK_TYPE);
    struct flock none = whole_file(F_UNLCK);
    if (l->fd >= 0) fcntl(l->fd, F_SETLK, &none);
    return 0;
}

static int lock_close(lua_State *L) {
    lock *l = luaL_checkudata(L, 1, LOCK_TYPE);
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
    return 0;
}

int ga_lock_open(lua_State *L) {
    static const luaL_Reg methods[] = { { "take", lock_take },
                                        { "release", lock_release },
                                        { "close", lock_close },
                                        { "__gc", lock_close },
                                        { NULL, NULL } };
    const char *path = luaL_checkstring(L, 1);
    lock *l = lua_newuserdatauv(L, sizeof *l, 1);
    *l = (lock){ .fd = open_file(path, O_RDWR | O_CREAT) };
    if (l->fd < 0 && (errno == EACCES || errno == EROFS)) {
        l->denied = errno;
        l->fd = open_file(path, O_RDONLY);
    }
    if (l->fd < 0) return refuse(L, path, l->denied ? l->denied : errno);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    if (luaL_newmetatable(L, LOCK_TYPE)) {
        luaL_setfuncs(L, methods, 0);
        lua_pushvalue(L, -1);
        lua_setfield(L, -2, "__index");
    }
    lua_setmetatable(L, -2);
    return 1;
}

int ga_lock_holder(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    const int fd = open_file(path, O_RDONLY);
    if (fd < 0) return refuse(L, path, errno);
    const int failed = push_holder(L, fd, F_WRLCK) != 0 ? errno : 0;
    close(fd);
    return failed ? refuse(L, path, failed) : 1;
}

int ga_lock_pause(lua_State *L) {
    const double seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0 && seconds < 1e6, 1, "out of range");
    const time_t whole = (time_t)seconds;
    struct timespec left = { whole, (long)(1e9 * (seconds - (double)whole)) };
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    return 0;
}
