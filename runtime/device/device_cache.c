/* device_cache.c: compiled kernels kept between runs, found by a hash of their source and options. A
 * fault of the cache costs a compilation and is never an error. */
#include "device/device_private.h"

#include "files/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Hashes the length of each part too, so that different lists of parts have different keys. */
ga_cache_key ga_cache_key_of(const ga_cache_part *parts, int count) {
    ga_sha256 h;
    ga_cache_key key;
    ga_sha256_start(&h);
    for (int i = 0; i < count; i++) {
        uint64_t bytes = parts[i].bytes;
        ga_sha256_add(&h, &bytes, sizeof bytes);
        ga_sha256_add(&h, parts[i].data, parts[i].bytes);
    }
    ga_sha256_finish(&h, key.text);
    return key;
}

static bool cache_path(char *out, size_t bytes) {
    const char *own = getenv("GAGEN_KERNEL_CACHE"), *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n;
    if (own)
        n = snprintf(out, bytes, "%s", own);
    else if (base && base[0] == '/')
        n = snprintf(out, bytes, "%s/gagen", base);
    else if (home && home[0] == '/')
        n = snprintf(out, bytes, "%s/.cache/gagen", home);
    else
        return false;
    return n > 0 && (size_t)n < bytes;
}

static int open_folder(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int ga_cache_open(void) {
    char path[1024];
    struct stat s;
    if (!cache_path(path, sizeof path)) return -1;
    int folder = open_folder(path);
    if (folder < 0 && errno == ENOENT) {
        char *end = strrchr(path, '/');
        if (end && end != path) { /* ~/.cache itself may be missing in a new home folder */
            *end = 0;
            mkdir(path, 0700);
            *end = '/';
        }
        mkdir(path, 0700);
        folder = open_folder(path);
    }
    if (folder < 0) return -1;
    if (fstat(folder, &s) == 0 && s.st_uid == geteuid() && !(s.st_mode & (S_IWGRP | S_IWOTH)))
        return folder;
    ga_say("kernel cache %s: not used, it belongs to another user or others may write to it", path);
    close(folder);
    return -1;
}

/* Header of a cache file, in front of its content. Native byte order: the folder belongs to this machine. */
typedef struct entry_header {
    char magic[8];
    ga_cache_key key, checksum;
    char pad[6];
    uint64_t bytes;
} entry_header;

static const char entry_magic[8] = {'g', 'a', 'k', 'e', 'r', 'n', '0', '1'};
enum { ENTRY_LIMIT = 1 << 30 }; /* far above any module */

static void entry_name(char out[80], const ga_cache_key *key) {
    snprintf(out, 80, "%s.cubin", key->text);
}

static bool read_all(int file, void *to, size_t bytes) {
    char *at = to;
    while (bytes > 0) {
        ssize_t n = read(file, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t bytes) {
    const char *at = from;
    while (bytes > 0) {
        ssize_t n = write(file, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static void *read_entry(int file, const ga_cache_key *key, size_t *bytes) {
    struct stat s;
    entry_header h;
    if (fstat(file, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return NULL;
    if (!read_all(file, &h, sizeof h) || memcmp(h.magic, entry_magic, sizeof h.magic) != 0)
        return NULL;
    if (memcmp(&h.key, key, sizeof *key) != 0) return NULL;
    if (h.bytes == 0 || h.bytes > ENTRY_LIMIT || (uint64_t)s.st_size != sizeof h + h.bytes)
        return NULL;
    void *data = malloc((size_t)h.bytes);
    if (data && read_all(file, data, (size_t)h.bytes)) {
        ga_cache_key checksum = ga_cache_key_of(&(ga_cache_part){data, (size_t)h.bytes}, 1);
        if (memcmp(&checksum, &h.checksum, sizeof checksum) == 0) {
            *bytes = (size_t)h.bytes;
            return data;
        }
    }
    free(data);
    return NULL;
}

void *ga_cache_read(int folder, const ga_cache_key *key, size_t *bytes) {
    char name[80];
    entry_name(name, key);
    int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return NULL;
    void *data = read_entry(file, key, bytes);
    close(file);
    return data;
}

void ga_cache_write(int folder, const ga_cache_key *key, const void *data, size_t bytes) {
    char name[80], temporary[112];
    entry_header h = {.key = *key, .bytes = bytes};
    memcpy(h.magic, entry_magic, sizeof h.magic);
    h.checksum = ga_cache_key_of(&(ga_cache_part){data, bytes}, 1);
    entry_name(name, key);
    snprintf(temporary, sizeof temporary, ".%s.%ld", name, (long)getpid());
    unlinkat(folder, temporary, 0); /* left by a killed process with the same number */
    int file =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return;
    bool good = write_all(file, &h, sizeof h) && write_all(file, data, bytes);
    good = close(file) == 0 && good;
    if (!good || renameat(folder, temporary, folder, name) != 0) unlinkat(folder, temporary, 0);
}
