/* file.c: see file.h. Files are opened with O_NONBLOCK, so that a pipe is refused instead of waited
 * for. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ga_status ga_file_status(void) {
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENXIO: /* a pipe that nobody reads */
    case ENAMETOOLONG: return GA_INPUT;
    default: return GA_ENVIRONMENT;
    }
}

int ga_file_open(int at, const char *path, const char *shown, int64_t *bytes, ga_err *e) {
    struct stat st;
    int code, fd = openat(at, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ga_fail(e, ga_file_status(), "%s: cannot be opened: %s", shown, strerror(errno));
    if (fstat(fd, &st))
        code = ga_fail(e, GA_ENVIRONMENT, "%s: its status cannot be read: %s", shown, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        code = ga_fail(e, GA_INPUT, "%s: not a regular file", shown);
    else {
        *bytes = (int64_t)st.st_size;
        return fd;
    }
    close(fd);
    return code;
}

int ga_file_folder(const char *path, const char *option, ga_err *e) {
    struct stat st;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return ga_fail(e, ga_file_status(), "%s %.300s: the folder cannot be made: %s", option, path, strerror(errno));
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return ga_fail(e, GA_INPUT, "%s %.300s: is not a folder", option, path);
    if (access(path, W_OK | X_OK) != 0)
        return ga_fail(e, GA_INPUT, "%s %.300s: cannot be written to: %s", option, path, strerror(errno));
    return GA_OK;
}

int ga_file_write(int fd, const void *from, int64_t n, int64_t at) {
    for (int64_t done = 0; done < n;) {
        const ssize_t part = pwrite(fd, (const char *)from + done, (size_t)(n - done), at + done);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return part < 0 ? errno : EIO;
        done += part;
    }
    return 0;
}

int ga_file_begin(ga_new_file *f, const char *path, ga_err *e) {
    f->path = path;
    f->fd = -1;
    if (snprintf(f->temporary, sizeof f->temporary, "%s.tmp", path) >= (int)sizeof f->temporary)
        return ga_fail(e, GA_INPUT, "%.64s...: the path is too long", path);
    struct stat st; /* the rename would replace a device or a pipe */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return ga_fail(e, GA_INPUT, "%s: is not a regular file", path);
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (f->fd >= 0) return GA_OK;
    return ga_fail(e, ga_file_status(), "%s: cannot be created: %s", f->temporary, strerror(errno));
}

int ga_file_end(ga_new_file *f, int code, ga_err *e) {
    if (code == GA_OK && fsync(f->fd))
        code = ga_fail(e, GA_ENVIRONMENT, "%s: sync failed: %s", f->temporary, strerror(errno));
    if (close(f->fd) && code == GA_OK)
        code = ga_fail(e, GA_ENVIRONMENT, "%s: close failed: %s", f->temporary, strerror(errno));
    if (code == GA_OK && rename(f->temporary, f->path))
        code = ga_fail(e, GA_ENVIRONMENT, "%s: rename failed: %s", f->path, strerror(errno));
    if (code != GA_OK) unlink(f->temporary);
    return code;
}

int64_t ga_file_read(int fd, void *to, int64_t n, int64_t from) {
    int64_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)to + done, (size_t)(n - done), from + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += got;
    }
    return done;
}
