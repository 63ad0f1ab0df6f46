/* folder.c: listing by getdents64 into a buffer on the stack, since opendir allocates. */
#include "files/folder.h"

#include "files/file.h"
#include "files/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

enum { PATH = 4096 };

int ga_folder_sync(int fd) {
    return fsync(fd) == 0 || errno == EINVAL ? 0 : errno;
}

/* Syncs the parent of folder `part`. If `part` existed before, a parent that may not be read is no
 * error. */
static int sync_parent(const char *part, bool made, ga_err *e) {
    char parent[PATH];
    const char *slash = strrchr(part, '/');
    int n = !slash || slash == part ? 1 : (int)(slash - part);
    snprintf(parent, sizeof parent, "%.*s", n, slash ? part : ".");
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && !made) return GA_OK;
    int rc = fd < 0 ? errno : ga_folder_sync(fd);
    if (fd >= 0) close(fd);
    return rc ? ga_fail(e, GA_ENVIRONMENT, "%s: cannot be synced: %s", parent, strerror(rc)) : GA_OK;
}

int ga_folder_make(const char *path, ga_err *e) {
    char part[PATH];
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0 || n >= sizeof part)
        return ga_fail(e, GA_INPUT, "folder '%.64s': empty or too long", path);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && path[i] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        bool made = mkdir(part, 0777) == 0;
        if (!made && errno != EEXIST)
            return ga_fail(e, ga_file_status(), "%s: cannot be made: %s", part, strerror(errno));
        if (made || i == n) GA_TRY(sync_parent(part, made, e));
    }
    if (stat(path, &st))
        return ga_fail(e, ga_file_status(), "%s: its status cannot be read: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) return ga_fail(e, GA_INPUT, "%s: not a folder", path);
    return GA_OK;
}

/* Entry as getdents64 writes it; no header of libc declares it under this name. */
typedef struct {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
} entry;

int ga_folder_each(int fd, int (*visit)(void *arg, const char *name), void *arg) {
    _Alignas(16) char buffer[8192];
    if (lseek(fd, 0, SEEK_SET) < 0) return GA_ENVIRONMENT;
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
        if (n < 0) return GA_ENVIRONMENT;
        if (n == 0) return GA_OK;
        for (long at = 0; at < n;) {
            const entry *one = (const entry *)(buffer + at);
            at += one->length;
            if (strcmp(one->name, ".") == 0 || strcmp(one->name, "..") == 0) continue;
            GA_TRY(visit(arg, one->name));
        }
    }
}

static int remove_file(void *arg, const char *name) {
    unlinkat(*(int *)arg, name, 0);
    return GA_OK;
}

int ga_folder_remove(int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    unlinkat(fd, "manifest.json", 0);
    ga_folder_each(fd, remove_file, &fd);
    ga_folder_each(fd, remove_file, &fd); /* a listing may skip entries while others are removed */
    close(fd);
    return unlinkat(parent, name, AT_REMOVEDIR) && errno != ENOENT ? errno : 0;
}

int ga_folder_checksum(int fd, const char *path, uint32_t *checksums, int64_t blocks,
                       int64_t *bytes, ga_err *e) {
    unsigned char buffer[1 << 16]; /* divides GA_BLOCK, so that a block ends where a read ends */
    uint32_t crc = (uint32_t)crc32(0, NULL, 0);
    *bytes = 0;
    for (;;) {
        int64_t n = ga_file_read(fd, buffer, sizeof buffer, *bytes);
        if (n < 0)
            return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0) return GA_OK;
        if (*bytes / GA_BLOCK >= blocks)
            return ga_fail(e, GA_INPUT, "%s: larger than expected: more than %lld bytes", path,
                           (long long)blocks * GA_BLOCK);
        crc = (uint32_t)crc32(*bytes % GA_BLOCK ? crc : 0, buffer, (unsigned)n);
        checksums[*bytes / GA_BLOCK] = crc;
        *bytes += n;
    }
}
