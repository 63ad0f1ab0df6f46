/* scan.h: what the readers of data files share: the files of one dataset and what a scan finds in
 * them. A scan reads every file to its end and checks it; the program that was made from its result
 * refuses files that differ. */
#ifndef GA_SCAN_H
#define GA_SCAN_H

#include "data/source.h"

enum {
    GA_PARTS = 64,      /* files of one dataset at most */
    GA_FIELD_NAME = 64, /* bytes of a field's name, with its end */
    GA_FIELD_RANK = 5   /* axes of one row at most */
};

/* One of the files whose rows follow each other, and how many rows, bytes or tokens it has. */
typedef struct ga_part {
    const char *path;
    int64_t count;
} ga_part;

typedef struct ga_scan_field {
    char name[GA_FIELD_NAME];
    bool ids; /* whole numbers: i32 in a batch; else the program's real */
    int rank; /* of one row: 0..GA_FIELD_RANK */
    int64_t shape[GA_FIELD_RANK];
    int64_t low, high; /* of ids */
    int64_t largest_negative; /* of ids, 0: none; if it is low, no other is below 0 */
    int element;       /* how it lies in the file: a ga_element of arrays.h, or bytes per token */
} ga_scan_field;

typedef struct ga_scan {
    int parts;
    int64_t count[GA_PARTS]; /* of each file */
    int fields;
    ga_scan_field field[GA_FIELDS];
    size_t bytes; /* what opening the files takes from an arena */
    size_t stream_bytes; /* the same for rows that pass by; 0: this format has none */
    bool seen[256]; /* text: which bytes occur */
} ga_scan;

/* Counts value among the ids of f. */
static inline void ga_scan_id(ga_scan_field *f, int64_t value) {
    if (value < f->low) f->low = value;
    if (value > f->high) f->high = value;
    if (value < 0 && (f->largest_negative == 0 || value > f->largest_negative))
        f->largest_negative = value;
}

/* An ids field of no values yet. */
static inline void ga_scan_ids(ga_scan_field *f) {
    f->ids = true;
    f->low = INT64_MAX;
    f->high = INT64_MIN;
}

/* a * b for sizes read from a file: false if it exceeds 2^60 or either is negative. */
static inline bool ga_product(int64_t a, int64_t b, int64_t *out) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out) && *out <= (int64_t)1 << 60;
}

#endif
