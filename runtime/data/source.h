/* source.h: rows of a dataset, whatever their file's format: kept in memory as they lie in the
 * files, decoded on the way into a batch, or read while they pass by. Readers make sources, the
 * loader (data.h) takes them. */
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

/* Rows that pass by in the order of their files and are kept nowhere; how many there are is known
 * at the end. One thread at a time calls these; nothing is allocated. */
typedef struct ga_feed {
    /* Goes before the first row; the first call too. */
    int (*rewind)(void *self, ga_err *e);
    /* Writes the next row to out[f][0..width-1] for each field f, or passes over it with out NULL:
     * it is checked all the same. 1; 0 behind the last row, also when called again; or negative. */
    int (*next)(void *self, void *const out[], ga_err *e);
    void (*close)(void *self); /* also before the first rewind */
    void *self;                /* the reader's own record, in the arena */
} ga_feed;

typedef struct ga_source ga_source;
struct ga_source {
    int64_t rows; /* not looked at if there is a feed */
    int fields; /* 1..GA_FIELDS */
    ga_field field[GA_FIELDS];
    /* Writes row `row` (0..rows-1) to out[f][0..width-1] for each field f. `draw` is NULL in
     * evaluation, else the row's random key (ga_draw_key of stream "augment") for crop and flip.
     * Called from the reading thread: allocates nothing, cannot fail. */
    void (*decode)(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]);
    const void *self; /* the reader's own record, in the arena */
    ga_feed feed;     /* instead of decode, if next is not NULL */
};

#endif
