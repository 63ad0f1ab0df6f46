/* source.h: rows of a dataset in any file format. Rows are kept in memory as in the files and decoded
 * into a batch, or streamed from the files by a feed. Readers make sources; the loader (data.h) uses
 * them. */
#ifndef GA_SOURCE_H
#define GA_SOURCE_H

#include "base/ga.h"

enum { GA_FIELDS = 8 };

/* One tensor of a batch: `width` elements per row, > 0, of type GA_F32 or GA_F64 (the program's
 * real) or GA_I32. */
typedef struct ga_field {
    const char *name; /* an identifier */
    ga_dtype type;
    int64_t width;
} ga_field;

/* Streams rows in the order of their files, without keeping them; their number is known at the end. One
 * thread at a time calls these functions; nothing is allocated. */
typedef struct ga_feed {
    /* Goes to the first row; also called before the first row is read. */
    int (*rewind)(void *self, ga_err *e);
    /* Writes the next row to out[f][0..width-1] for each field f; out NULL: skips it, but checks it.
     * Returns 1; 0 after the last row, also when called again; or a negative status. */
    int (*next)(void *self, void *const out[], ga_err *e);
    void (*close)(void *self); /* also before the first rewind */
    void *self;                /* the reader's own record, in the arena */
} ga_feed;

typedef struct ga_source ga_source;
struct ga_source {
    int64_t rows; /* unused with a feed */
    int fields; /* 1..GA_FIELDS */
    ga_field field[GA_FIELDS];
    /* Writes row `row` (0..rows-1) to out[f][0..width-1] for each field f. `draw` is the row's random
     * key for crop and flip (ga_draw_key of stream "augment"); NULL in evaluation. Called from the
     * read-ahead thread: allocates nothing, cannot fail. */
    void (*decode)(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]);
    const void *self; /* the reader's own record, in the arena */
    ga_feed feed;     /* used instead of decode if feed.next is not NULL */
};

#endif
