/* shared.c: see shared.h. */
#include "files/shared.h"

#include "base/text.h"
#include "files/ckpt.h"
#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MARK = 64 };

/* Whether this holds for all ranks. */
static int all(ga_comm *c, bool holds, bool *out, ga_err *e) {
    int low, rank;
    GA_TRY(ga_comm_lowest(c, holds ? 0 : -1, &low, &rank, e));
    *out = low == 0;
    return GA_OK;
}

static int leave_mark(int folder, const char *path, const char *name, const char *mark, ga_err *e) {
    const int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    int failed = fd < 0 ? errno : ga_write_all(fd, mark, strlen(mark));
    if (fd >= 0 && close(fd) != 0 && !failed) failed = errno;
    if (!failed) return GA_OK;
    if (fd >= 0) unlinkat(folder, name, 0);
    return ga_fail(e, GA_ENVIRONMENT, "%s/%s: cannot be written: %s", path, name, strerror(failed));
}

/* A rank that may not write does not see the folder. */
static bool sees(int folder, const char *name, const char *mark) {
    char found[MARK];
    const int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    const int64_t n = ga_file_read(fd, found, sizeof found, 0);
    close(fd);
    return n == (int64_t)strlen(mark) && memcmp(found, mark, (size_t)n) == 0;
}

int ga_shared_folder(ga_comm *c, int folder, const char *path, const char *mark, bool *shared, ga_err *e) {
    const bool first = ga_comm_rank(c) == 0;
    char name[MARK];
    *shared = true;
    if (ga_comm_size(c) == 1) return GA_OK;
    snprintf(name, sizeof name, ".tmp-seen-%s", mark);
    GA_TRY(ga_comm_agree(c, first ? leave_mark(folder, path, name, mark, e) : GA_OK, e));
    const int code = all(c, first || sees(folder, name, mark), shared, e);
    if (first) unlinkat(folder, name, 0);
    return code;
}

/* The same numbers stand for the same file; all zero: there is none. */
typedef struct {
    int64_t inode, seconds, nanoseconds, bytes, checksum;
} identity;

static identity identify(const char *path) {
    struct stat st;
    ga_data_file f;
    if (ga_data_file_read(path, "", &f, NULL) < 0 || stat(path, &st) != 0) return (identity){0};
    return (identity){(int64_t)st.st_ino, (int64_t)st.st_ctim.tv_sec, (int64_t)st.st_ctim.tv_nsec, f.bytes,
                      (int64_t)f.checksum};
}

int ga_shared_file(ga_comm *c, const char *path, bool *shared, ga_err *e) {
    *shared = true;
    if (ga_comm_size(c) == 1) return GA_OK;
    const identity own = identify(path);
    identity first = own;
    GA_TRY(ga_comm_broadcast(c, &first, sizeof first, 0, e));
    return all(c, memcmp(&own, &first, sizeof own) == 0, shared, e);
}
