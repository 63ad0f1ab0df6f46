/* csv.h: CSV files of plain decimal numbers, also gzipped: read as a stream through a fixed buffer.
 * Lines end in LF, no header, no quotes, no blanks, every line has the same number of columns.
 * Anything else is refused as `path:line: column N: what was found, what was expected`. The locale
 * does not matter. */
#ifndef GA_CSV_H
#define GA_CSV_H

#include "ga.h"

enum { GA_CSV_COLUMNS_MAX = 1 << 20 };

typedef struct ga_csv_shape {
    int64_t rows, columns;
    double last_min, last_max; /* of the last column */
    bool last_integer;         /* every value of the last column is a whole number */
} ga_csv_shape;

typedef struct ga_csv_spec {
    int64_t rows, columns; /* expected; the file must have exactly these */
    int64_t target;        /* column of the target, from 0; -1: none */
    int64_t classes;       /* targets must be whole numbers in [0, classes) */
    double scale;          /* inputs are multiplied by this */
    ga_dtype dtype;        /* of the inputs: GA_F32 or GA_F64 */
} ga_csv_spec;

/* Reads the whole file once; every cell is checked. GA_INPUT for the file's faults, also if it is
 * missing. */
int ga_csv_scan(const char *path, ga_csv_shape *out, ga_err *e);

/* input: rows x (columns without the target), row-major; target: rows numbers (NULL if s->target is
 * -1). */
int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, int32_t *target, ga_err *e);

/* Number in [text, text + n): [+-] digits [. digits] [e [+-] digits], nothing around it, finite.
 * Correctly rounded up to 15 digits with |exponent| <= 22, within one unit in the last place
 * beyond. */
bool ga_number_parse(const char *text, size_t n, double *out);

#endif
