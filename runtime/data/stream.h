/* stream.h: the bytes of a regular file, plain or gzip, from front to back through a fixed buffer;
 * zlib too gets its memory from there, so a file may be opened again and again.
 * gzip data is read to its last trailer: a cut, a wrong checksum or foreign bytes behind it are
 * GA_INPUT. All messages begin with the path. */
#ifndef GA_STREAM_H
#define GA_STREAM_H

#include "base/ga.h"

#include <zlib.h>

enum { GA_STREAM_CHUNK = 1 << 16, GA_STREAM_ZLIB = 1 << 17, GA_STREAM_END = 256 };

typedef enum ga_packing {
    GA_PLAIN,
    GA_GZIP,      /* anything else is refused */
    GA_BY_CONTENT /* gzip if the file starts with 1f 8b, else plain */
} ga_packing;

typedef struct ga_stream {
    const char *path; /* not copied */
    int fd;
    bool zipped, ended; /* ended: the last gzip member is complete */
    int64_t bytes;      /* of the file as it lies on disk */
    z_stream z;
    size_t at, have; /* of out */
    unsigned char in[GA_STREAM_CHUNK], out[GA_STREAM_CHUNK];
    size_t taken; /* of zlib's memory */
    _Alignas(64) unsigned char zlib[GA_STREAM_ZLIB];
} ga_stream;

int ga_stream_open(ga_stream *s, const char *path, ga_packing packing, ga_err *e);
void ga_stream_close(ga_stream *s);

/* Puts more bytes into out once all were taken; have = 0 at the end. */
int ga_stream_fill(ga_stream *s, ga_err *e);

/* Next byte, GA_STREAM_END after the last one, or a negative status. */
static inline int ga_stream_byte(ga_stream *s, ga_err *e) {
    if (s->at == s->have) {
        GA_TRY(ga_stream_fill(s, e));
        if (s->have == 0) return GA_STREAM_END;
    }
    return s->out[s->at++];
}

/* Exactly n bytes into `to`; GA_INPUT if the file ends before: `what` says of what. */
int ga_stream_read(ga_stream *s, void *to, int64_t n, const char *what, ga_err *e);

/* Refuses bytes that come after `what`. */
int ga_stream_expect_end(ga_stream *s, const char *what, ga_err *e);

/* Hands n bytes to `take` piece by piece, in order: `first` is the place of bytes[0] in the n, a
 * multiple of 8. Stops at its first negative result. `take` NULL: only reads. */
typedef int (*ga_take_bytes)(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                             ga_err *e);
int ga_stream_walk(ga_stream *s, int64_t n, const char *what, ga_take_bytes take, void *arg,
                   ga_err *e);

#endif
