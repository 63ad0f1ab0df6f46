/* stream.h: reads a regular file, plain or gzip, from front to back. All memory is in ga_stream, also
 * zlib's, so opening a file allocates nothing. gzip data is read to its last trailer: truncation, a wrong
 * checksum or foreign bytes after it are GA_INPUT. All messages begin with the path. */
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
    int64_t bytes;      /* of the file on disk */
    z_stream z;
    size_t at, have; /* in out: bytes taken, bytes present */
    unsigned char in[GA_STREAM_CHUNK], out[GA_STREAM_CHUNK];
    size_t taken; /* bytes used of `zlib` */
    _Alignas(64) unsigned char zlib[GA_STREAM_ZLIB];
} ga_stream;

int ga_stream_open(ga_stream *s, const char *path, ga_packing packing, ga_err *e);
void ga_stream_close(ga_stream *s);

/* Refills out when all its bytes are taken; have = 0 at the end of the file. */
int ga_stream_fill(ga_stream *s, ga_err *e);

/* Next byte, GA_STREAM_END after the last one, or a negative status. */
static inline int ga_stream_byte(ga_stream *s, ga_err *e) {
    if (s->at == s->have) {
        GA_TRY(ga_stream_fill(s, e));
        if (s->have == 0) return GA_STREAM_END;
    }
    return s->out[s->at++];
}

/* Reads exactly n bytes to `to`; GA_INPUT if the file ends before. `what` names the bytes in messages. */
int ga_stream_read(ga_stream *s, void *to, int64_t n, const char *what, ga_err *e);

/* Refuses bytes after `what`, which should end the file. */
int ga_stream_expect_end(ga_stream *s, const char *what, ga_err *e);

/* Reads n bytes and passes them to `take` in pieces, in order: `first` is the offset of bytes[0] in the
 * n bytes, a multiple of 8. Stops at the first negative result. `take` NULL: only reads. */
typedef int (*ga_take_bytes)(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                             ga_err *e);
int ga_stream_walk(ga_stream *s, int64_t n, const char *what, ga_take_bytes take, void *arg,
                   ga_err *e);

#endif
