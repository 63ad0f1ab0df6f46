/* file.c: see file.h. Files are opened with O_NONBLOCK, so that a pipe is refused instead of waited
 * for. */
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
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
