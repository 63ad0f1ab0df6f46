/* scan.h: shared by the readers of data files: the files of a dataset, and the result of a scan. A scan
 * reads and checks every file to its end; the program generated from its result refuses files that
 * differ. */
#ifndef GA_SCAN_H
#define GA_SCAN_H

#include "data/source.h"

enum {
    GA_PARTS = 64,      /* files of one dataset at most */
    GA_FIELD_NAME = 64, /* bytes of a field's name, with its final zero */
    GA_FIELD_RANK = 5   /* axes of one row at most */
};

/* One file of a dataset, and its number of rows, bytes (text) or tokens. */
typedef struct ga_part {
    const char *path;
    int64_t count;
} ga_part;

typedef struct ga_scan_field {
    char name[GA_FIELD_NAME];
    bool ids; /* whole numbers: i32 in a batch; else the program's real */
    int rank; /* of one row: 0..GA_FIELD_RANK */
    int64_t shape[GA_FIELD_RANK];
    int64_t low, high; /* range of the ids */
    int64_t low_at, high_at; /* where these are first: a row from 1, a line of csv, a token from 0; -1: unknown */
    int low_part, high_part; /* their files, from 0 */
    int part;                /* the file that is being scanned */
    int64_t largest_negative; /* of the ids, 0: none; if equal to low, only one value is negative */
    int64_t next_high;        /* the largest id below high; INT64_MIN: none */
    double odd;        /* csv: the first target that makes `ids` false, with its line and file */
    int64_t odd_line;  /* 0: none */
    int odd_part;
    int element;       /* type in the file: a ga_element of arrays.h, or bytes per token */
} ga_scan_field;

typedef struct ga_scan {
    int parts;
    int64_t count[GA_PARTS]; /* of each file */
    int fields;
    ga_scan_field field[GA_FIELDS];
    size_t bytes; /* that opening the files takes from an arena */
    size_t stream_bytes; /* the same for streamed rows; 0: this format cannot be streamed */
    bool seen[256]; /* text: which bytes occur */
} ga_scan;

/* Widens the range of the ids of f by value, which stands at place `at`. */
static inline void ga_scan_id(ga_scan_field *f, int64_t value, int64_t at) {
    if (value < f->low) {
        f->low = value;
        f->low_at = at;
        f->low_part = f->part;
    }
    if (value > f->high) {
        f->next_high = f->high;
        f->high = value;
        f->high_at = at;
        f->high_part = f->part;
    } else if (value < f->high && value > f->next_high)
        f->next_high = value;
    if (value < 0 && (f->largest_negative == 0 || value > f->largest_negative))
        f->largest_negative = value;
}

/* Makes f a field of ids with an empty range. */
static inline void ga_scan_ids(ga_scan_field *f) {
    f->ids = true;
    f->low = INT64_MAX;
    f->high = f->next_high = INT64_MIN;
    f->low_at = f->high_at = -1;
}

/* a * b for sizes read from a file: false if it exceeds 2^60 or either is negative. */
static inline bool ga_product(int64_t a, int64_t b, int64_t *out) {
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out) && *out <= (int64_t)1 << 60;
}

#endif
