/* state_io.c: linked into a program with --wrap, it counts what goes to and from the file of the optimizer's state,
 * and says it at the end. STATE_FAIL=CALL:N makes the N-th of these calls fail, and all after it: reserve (no space),
 * read, write (an error of the disk) or end (the file has half of the bytes that are read, and no more). */
#include "runtime/base/ga.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *from, size_t bytes, off_t at);

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at);

static int file = -1;
static atomic_llong reserved, reads, writes, read_bytes, written_bytes;

static bool fails(const char *call, long long n) {
    const char *plan = getenv("STATE_FAIL");
    const size_t length = strlen(call);
    return plan && strncmp(plan, call, length) == 0 && plan[length] == ':' && n >= atoll(plan + length + 1);
}

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes) {
    if (fails("reserve", 1)) return ENOSPC;
    file = fd;
    reserved = bytes;
    return __real_posix_fallocate(fd, at, bytes);
}

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at) {
    if (fd != file) return __real_pread(fd, to, bytes, at);
    const long long n = ++reads;
    if (fails("read", n)) {
        errno = EIO;
        return -1;
    }
    if (fails("end", n)) return n % 2 ? __real_pread(fd, to, bytes / 2, at) : 0;
    read_bytes += (long long)bytes;
    return __real_pread(fd, to, bytes, at);
}

ssize_t __wrap_pwrite(int fd, const void *from, size_t bytes, off_t at) {
    if (fd != file) return __real_pwrite(fd, from, bytes, at);
    if (fails("write", ++writes)) {
        errno = EIO;
        return -1;
    }
    written_bytes += (long long)bytes;
    return __real_pwrite(fd, from, bytes, at);
}

__attribute__((destructor)) static void say(void) {
    if (file >= 0)
        ga_say("state: %lld bytes, read %lld, written %lld", (long long)reserved, (long long)read_bytes,
               (long long)written_bytes);
}
