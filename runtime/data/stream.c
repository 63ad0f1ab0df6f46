/* stream.c: reading and inflating. */
#include "data/stream.h"

#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = GA_STREAM_CHUNK };

static int refuse(const ga_stream *s, ga_err *e, const char *what) {
    return ga_fail(e, GA_INPUT, "%s: %s", s->path, what);
}

static bool starts_as_gzip(int fd) {
    unsigned char magic[2] = {0, 0};
    return ga_file_read(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
}

/* Allocator for zlib: it takes a few pieces when a file is opened and frees all when it is closed. */
static void *give_zlib(void *stream, unsigned items, unsigned size) {
    ga_stream *s = stream;
    const size_t bytes = ((size_t)items * size + 63) / 64 * 64;
    if (bytes > GA_STREAM_ZLIB - s->taken) return NULL;
    s->taken += bytes;
    return s->zlib + s->taken - bytes;
}

/* zlib frees nothing: its memory is part of ga_stream. */
static void leave_zlib(void *stream, void *piece) {
    (void)stream;
    (void)piece;
}

int ga_stream_open(ga_stream *s, const char *path, ga_packing packing, ga_err *e) {
    /* the buffers are not cleared: only bytes read into them are used */
    s->path = path;
    s->ended = false;
    s->at = s->have = 0;
    s->taken = 0;
    s->z = (z_stream){.zalloc = give_zlib, .zfree = leave_zlib, .opaque = s};
    s->fd = ga_file_open(AT_FDCWD, path, path, &s->bytes, e);
    GA_TRY(s->fd);
    s->zipped = packing == GA_GZIP || (packing == GA_BY_CONTENT && starts_as_gzip(s->fd));
    if (!s->zipped || inflateInit2(&s->z, 16 + MAX_WBITS) == Z_OK) return GA_OK;
    close(s->fd);
    return ga_fail(e, GA_ENVIRONMENT, "%s: zlib found no memory", path);
}

void ga_stream_close(ga_stream *s) {
    if (s->zipped) inflateEnd(&s->z);
    close(s->fd);
}

/* Reads up to n bytes; 0 at the end of the file. */
static int64_t read_some(const ga_stream *s, void *to, int64_t n, ga_err *e) {
    for (;;) {
        ssize_t got = read(s->fd, to, (size_t)n);
        if (got >= 0) return got;
        if (errno != EINTR)
            return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", s->path, strerror(errno));
    }
}

static int more_input(ga_stream *s, ga_err *e) {
    int n = (int)read_some(s, s->in, CHUNK, e);
    GA_TRY(n);
    s->z.next_in = s->in;
    s->z.avail_in = (unsigned)n;
    return GA_OK;
}

/* Handles the end of a gzip member: another member, the end of the file, or foreign bytes. */
static int member_end(ga_stream *s, ga_err *e) {
    if (s->z.avail_in == 0) GA_TRY(more_input(s, e));
    if (s->z.avail_in == 0) {
        s->ended = true;
        return GA_OK;
    }
    if (s->z.next_in[0] != 0x1f)
        return refuse(s, e, "bytes after the end of the gzip data, expected none");
    return inflateReset(&s->z) == Z_OK ? GA_OK : refuse(s, e, "damaged gzip data");
}

/* Inflates until out has bytes or the file ends. */
static int fill_zipped(ga_stream *s, ga_err *e) {
    s->z.next_out = s->out;
    s->z.avail_out = CHUNK;
    while (s->z.avail_out == CHUNK && !s->ended) {
        if (s->z.avail_in == 0) {
            GA_TRY(more_input(s, e));
            if (s->z.avail_in == 0)
                return refuse(s, e, "gzip data ends early: the file is cut off or empty");
        }
        int rc = inflate(&s->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            GA_TRY(member_end(s, e));
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return ga_fail(e, GA_INPUT, "%s: damaged or no gzip data (%s)", s->path,
                           s->z.msg ? s->z.msg : "zlib");
    }
    s->have = CHUNK - s->z.avail_out;
    return GA_OK;
}

int ga_stream_fill(ga_stream *s, ga_err *e) {
    s->at = s->have = 0;
    if (s->zipped) return s->ended ? GA_OK : fill_zipped(s, e);
    int n = (int)read_some(s, s->out, CHUNK, e);
    GA_TRY(n);
    s->have = (size_t)n;
    return GA_OK;
}

/* Takes some of n > 0 bytes; large pieces of a plain file bypass the buffer. */
static int64_t take_some(ga_stream *s, void *to, int64_t n, ga_err *e) {
    if (s->at == s->have) {
        if (!s->zipped && n >= CHUNK) return read_some(s, to, n, e);
        GA_TRY(ga_stream_fill(s, e));
    }
    int64_t there = (int64_t)(s->have - s->at), count = n < there ? n : there;
    memcpy(to, s->out + s->at, (size_t)count);
    s->at += (size_t)count;
    return count;
}

static int read_part(ga_stream *s, void *to, int64_t n, int64_t before, int64_t all,
                     const char *what, ga_err *e) {
    for (int64_t done = 0; done < n;) {
        int64_t got = take_some(s, (char *)to + done, n - done, e);
        if (got < 0) return (int)got;
        if (got == 0)
            return ga_fail(e, GA_INPUT, "%s: ends after %lld of the %lld bytes of %s: it is cut off",
                           s->path, (long long)(before + done), (long long)all, what);
        done += got;
    }
    return GA_OK;
}

int ga_stream_read(ga_stream *s, void *to, int64_t n, const char *what, ga_err *e) {
    return read_part(s, to, n, 0, n, what, e);
}

int ga_stream_expect_end(ga_stream *s, const char *what, ga_err *e) {
    int byte = ga_stream_byte(s, e);
    GA_TRY(byte);
    if (byte == GA_STREAM_END) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: bytes after %s, expected the end of the file", s->path, what);
}

int ga_stream_walk(ga_stream *s, int64_t n, const char *what, ga_take_bytes take, void *arg,
                   ga_err *e) {
    _Alignas(8) unsigned char piece[CHUNK];
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;
        GA_TRY(read_part(s, piece, count, first, n, what, e));
        if (take) GA_TRY(take(arg, piece, count, first, e));
    }
    return GA_OK;
}
