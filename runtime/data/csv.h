/* csv.h: CSV files of plain decimal numbers, also gzipped (by name): read as a stream through a
 * fixed buffer. Lines end in LF, no quotes, no blanks, every line has the same number of columns; a
 * header of one line only where it is announced, and then it must be one.
 * Anything else is refused as `path:line: column N: what was found, what was expected`. The locale
 * does not matter. */
#ifndef GA_CSV_H
#define GA_CSV_H

#include "base/arena.h"
#include "data/scan.h"
#include "data/stream.h"

enum { GA_CSV_COLUMNS_MAX = 1 << 20, GA_CSV_CELL_MAX = 63 };

typedef struct ga_csv_shape {
    int64_t rows, columns;
    double target_min, target_max; /* of the target's column */
    bool target_integer;           /* every value of it is a whole number */
} ga_csv_shape;

typedef struct ga_csv_spec {
    int64_t rows, columns; /* expected; the file must have exactly these */
    int64_t target;        /* column of the target, from 0; -1: none */
    int64_t classes;       /* targets must be whole numbers in [0, classes); 0: they are numbers as the
                              inputs are, not scaled */
    double scale;          /* inputs are multiplied by this */
    ga_dtype dtype;        /* of the inputs: GA_F32 or GA_F64 */
    bool header;           /* the first line is no row */
} ga_csv_spec;

/* Reads the whole file once; every cell is checked. Of s: target (-1: the last column), scale,
 * dtype, header. GA_INPUT for the file's faults, also if it is missing. */
int ga_csv_scan(const char *path, const ga_csv_spec *s, ga_csv_shape *out, ga_err *e);

/* A file as it is read row by row; the fields are the reader's own. */
typedef struct ga_csv_rows {
    ga_stream s;
    int64_t line, column; /* from 1, of the cell being read */
    bool header;          /* line 1 is no row */
    char cell[GA_CSV_CELL_MAX + 1];
    size_t length;
    int64_t columns; /* expected; 0: as many as the first line has */
    /* Takes the value in column `column` of row `row`, both from 1. */
    int (*take)(void *arg, int64_t row, int64_t column, double value, ga_err *e);
    void *arg;
    ga_err *e;
    const ga_csv_spec *spec;
    void *input, *target; /* of the row being read; NULL: it is only checked */
} ga_csv_rows;

/* Opens a file as ga_csv_read does; spec->rows is not looked at. Path and spec are not copied. */
int ga_csv_rows_open(ga_csv_rows *r, const char *path, const ga_csv_spec *s, ga_err *e);
void ga_csv_rows_close(ga_csv_rows *r);

/* The next row, into `input` and `target` as ga_csv_read has them; both NULL: it is only checked.
 * 1, 0 behind the last row (also when called again), or negative. */
int ga_csv_row(ga_csv_rows *r, void *input, void *target, ga_err *e);

/* input: rows x (columns without the target), row-major; target: rows of int32_t, or of s->dtype
 * without classes (NULL if s->target is -1). */
int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, void *target, ga_err *e);

/* Files whose rows follow each other as a dataset. Fields: input, real (columns without the target),
 * and target, ids if all its values are whole numbers and none
 * negative, else real. Opened, numbers are kept as the
 * program's real. spec->rows is not looked at: each part says its own. A target beyond the columns
 * is no fault of a scan. */
int ga_csv_scan_parts(const char *const *path, int parts, const ga_csv_spec *s, ga_scan *out,
                      ga_err *e);
int ga_csv_open(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                ga_err *e);

/* The same rows as they pass by, any number of them; paths and spec are copied. */
int ga_csv_stream(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                  ga_err *e);

/* Number in [text, text + n): [+-] digits [. digits] [e [+-] digits], nothing around it, finite.
 * Correctly rounded up to 15 digits with |exponent| <= 22, within one unit in the last place
 * beyond. */
bool ga_number_parse(const char *text, size_t n, double *out);

#endif
