/* trace.c: the wrapped calls. Each calls the function of libc and, while recording, notes the operation. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static trace *recording;
static ino_t inodes[TRACE_NODES];
static bool cannot_exchange;

static void give_up(const char *why) {
    fprintf(stderr, "trace: %s\n", why);
    abort();
}

static int add_node(ino_t inode, bool is_folder, const char *name) {
    trace *t = recording;
    if (t->nodes == TRACE_NODES) give_up("too many files");
    inodes[t->nodes] = inode;
    t->is_folder[t->nodes] = is_folder;
    snprintf(t->name[t->nodes], TRACE_NAME, "%s", name);
    return t->nodes++;
}

/* The latest node with that inode (inode numbers are reused), or -1. */
static int node_of(const struct stat *st) {
    for (int i = recording ? recording->nodes - 1 : -1; i >= 0; i--)
        if (inodes[i] == st->st_ino) return i;
    return -1;
}

static int node_of_fd(int fd) {
    struct stat st;
    return recording && fstat(fd, &st) == 0 ? node_of(&st) : -1;
}

static op *add(op_kind kind) {
    trace *t = recording;
    if (t->count == TRACE_OPS) give_up("too many operations");
    t->ops[t->count] = (op){.kind = kind, .folder = -1, .node = -1, .node2 = -1};
    return &t->ops[t->count++];
}

/* The folder of `path`, relative to fd, and the last component; -1 if it is not below root. */
static int place_of(int fd, const char *path, char *name) {
    char folder[4096];
    struct stat st;
    const char *slash = strrchr(path, '/');
    snprintf(name, TRACE_NAME, "%s", slash ? slash + 1 : path);
    if (!recording || strcmp(name, ".lock") == 0) return -1;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    return fstatat(fd, *folder ? folder : "/", &st, 0) == 0 ? node_of(&st) : -1;
}

void trace_start(trace *t, const char *root) {
    struct stat st;
    memset(t, 0, sizeof *t);
    recording = t;
    if (stat(root, &st)) give_up(root);
    add_node(st.st_ino, true, "");
}

void trace_ack(int64_t id) {
    add(OP_ACK)->id = id;
}

void trace_stop(void) {
    recording = NULL;
}

void trace_set_exchange(bool possible) {
    cannot_exchange = !possible;
}

/* -- the calls ---------------------------------------------------------------------------------- */

int __real_open(const char *path, int flags, ...);
int __real_openat(int fd, const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t at);
int __real_ftruncate(int fd, off_t size);
int __real_fsync(int fd);
int __real_mkdir(const char *path, mode_t mode);
int __real_mkdirat(int fd, const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_renameat(int a, const char *from, int b, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_unlink(const char *path);
int __real_unlinkat(int fd, const char *path, int flags);

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int fd, const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_fsync(int fd);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdirat(int fd, const char *path, mode_t mode);
int __wrap_rename(const char *from, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_unlink(const char *path);
int __wrap_unlinkat(int fd, const char *path, int flags);

static void note_new(int folder, const char *name, bool is_folder, const struct stat *st) {
    op *o = add(is_folder ? OP_MAKE : OP_CREATE);
    o->folder = folder;
    o->node = add_node(st->st_ino, is_folder, name);
    snprintf(o->name, TRACE_NAME, "%s", name);
}

static int open_noted(int at, const char *path, int flags, mode_t mode) {
    char name[TRACE_NAME];
    struct stat st;
    int folder = place_of(at, path, name);
    bool there = fstatat(at, path, &st, 0) == 0;
    if (folder >= 0 && there && flags & O_TRUNC && st.st_size > 0) give_up("a file is truncated");
    int fd = __real_openat(at, path, flags, mode);
    if (fd >= 0 && folder >= 0 && !there && fstat(fd, &st) == 0) note_new(folder, name, false, &st);
    return fd;
}

int __wrap_openat(int at, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_noted(at, path, flags, mode);
}

int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_noted(AT_FDCWD, path, flags, mode);
}

static void note_write(int node, const void *data, ssize_t done, off_t at) {
    trace *t = recording;
    if (node < 0 || done < 0) return;
    if (t->used + done > TRACE_BYTES) give_up("too many bytes");
    op *o = add(OP_WRITE);
    o->node = node;
    o->offset = at;
    o->n = done;
    o->data = t->bytes + t->used;
    if (done > 0) memcpy(t->bytes + t->used, data, (size_t)done);
    t->used += done;
}

ssize_t __wrap_write(int fd, const void *data, size_t n) {
    const int node = node_of_fd(fd);
    const off_t at = node >= 0 ? lseek(fd, 0, SEEK_CUR) : 0;
    const ssize_t done = __real_write(fd, data, n);
    note_write(node, data, done, at);
    return done;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t at) {
    const ssize_t done = __real_pwrite(fd, data, n, at);
    note_write(node_of_fd(fd), data, done, at);
    return done;
}

/* A larger size is a write of nothing at the new end. */
int __wrap_ftruncate(int fd, off_t size) {
    struct stat st;
    const int node = node_of_fd(fd);
    if (node >= 0 && (fstat(fd, &st) || st.st_size > size)) give_up("a file is cut off");
    const int rc = __real_ftruncate(fd, size);
    if (rc == 0) note_write(node, NULL, 0, size);
    return rc;
}

int __wrap_fsync(int fd) {
    int rc = __real_fsync(fd), node = node_of_fd(fd);
    if (rc == 0 && node >= 0)
        add(recording->is_folder[node] ? OP_SYNC_FOLDER : OP_SYNC_FILE)->node = node;
    return rc;
}

int __wrap_mkdirat(int at, const char *path, mode_t mode) {
    char name[TRACE_NAME];
    struct stat st;
    int folder = place_of(at, path, name), rc = __real_mkdirat(at, path, mode);
    if (rc == 0 && folder >= 0 && fstatat(at, path, &st, 0) == 0) note_new(folder, name, true, &st);
    return rc;
}

int __wrap_mkdir(const char *path, mode_t mode) {
    return __wrap_mkdirat(AT_FDCWD, path, mode);
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    char name[TRACE_NAME], name2[TRACE_NAME];
    struct stat st, st2;
    int folder = place_of(a, from, name), folder2 = place_of(b, to, name2);
    if (flags && cannot_exchange) {
        errno = EINVAL;
        return -1;
    }
    int node = fstatat(a, from, &st, 0) == 0 ? node_of(&st) : -1;
    int node2 = fstatat(b, to, &st2, 0) == 0 ? node_of(&st2) : -1;
    int rc = __real_renameat2(a, from, b, to, flags);
    if (rc || folder < 0) return rc;
    if (folder != folder2) give_up("a rename from folder to folder");
    op *o = add(flags & RENAME_EXCHANGE ? OP_EXCHANGE : OP_RENAME);
    o->folder = folder;
    o->node = node;
    o->node2 = node2;
    memcpy(o->name, name, TRACE_NAME);
    memcpy(o->name2, name2, TRACE_NAME);
    return rc;
}

int __wrap_renameat(int a, const char *from, int b, const char *to) {
    return __wrap_renameat2(a, from, b, to, 0);
}

int __wrap_rename(const char *from, const char *to) {
    return __wrap_renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int __wrap_unlinkat(int at, const char *path, int flags) {
    char name[TRACE_NAME];
    struct stat st;
    int folder = place_of(at, path, name);
    int node = fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? node_of(&st) : -1;
    int rc = __real_unlinkat(at, path, flags);
    if (rc || folder < 0) return rc;
    op *o = add(OP_REMOVE);
    o->folder = folder;
    o->node = node;
    memcpy(o->name, name, TRACE_NAME);
    return rc;
}

int __wrap_unlink(const char *path) {
    return __wrap_unlinkat(AT_FDCWD, path, 0);
}
