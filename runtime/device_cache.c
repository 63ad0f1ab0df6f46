/* device_cache.c: compiled kernels kept between runs, found by the content that made them. Whatever
 * is wrong with the cache costs a compilation and never anything else. */
#include "device_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} sha256;

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
    return x >> n | x << (32 - n);
}

static void sha256_block(sha256 *h) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)h->block[4 * i] << 24 | (uint32_t)h->block[4 * i + 1] << 16 |
               (uint32_t)h->block[4 * i + 2] << 8 | h->block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
               w[i - 7] + (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, h->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4];
        uint32_t t = s[7] + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                     ((e & s[5]) ^ (~e & s[6])) + round_constants[i] + w[i];
        uint32_t u = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
                     ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t;
        s[0] = t + u;
    }
    for (int i = 0; i < 8; i++) h->state[i] += s[i];
}

static void sha256_add(sha256 *h, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        size_t at = h->bytes % 64, n = 64 - at < bytes ? 64 - at : bytes;
        memcpy(h->block + at, from, n);
        h->bytes += n;
        if (at + n == 64) sha256_block(h);
        from += n;
        bytes -= n;
    }
}

static sha256 sha256_start(void) {
    return (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                              0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static ga_cache_key sha256_finish(sha256 *h) {
    ga_cache_key key;
    uint8_t length[8];
    uint64_t bits = 8 * h->bytes;
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(h, "\x80", 1);
    while (h->bytes % 64 != 56) sha256_add(h, "", 1);
    sha256_add(h, length, 8);
    for (int i = 0; i < 8; i++) snprintf(key.text + 8 * i, 9, "%08x", (unsigned)h->state[i]);
    return key;
}

/* The length of each part goes in too, so that no two lists of parts have the same key. */
ga_cache_key ga_cache_key_of(const ga_cache_part *parts, int count) {
    sha256 h = sha256_start();
    for (int i = 0; i < count; i++) {
        uint64_t bytes = parts[i].bytes;
        sha256_add(&h, &bytes, sizeof bytes);
        sha256_add(&h, parts[i].data, parts[i].bytes);
    }
    return sha256_finish(&h);
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
        if (end && end != path) { /* ~/.cache itself may be missing in a fresh home */
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

/* A cache file: this, then the content. Native byte order: the folder is this machine's. */
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
    unlinkat(folder, temporary, 0); /* left by a process of this number that was killed */
    int file =
        openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return;
    bool good = write_all(file, &h, sizeof h) && write_all(file, data, bytes);
    good = close(file) == 0 && good;
    if (!good || renameat(folder, temporary, folder, name) != 0) unlinkat(folder, temporary, 0);
}
