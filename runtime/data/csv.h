/* csv.h: CSV files of plain decimal numbers, also gzipped (by name), read as a stream through a fixed
 * buffer. Lines end in LF and have the same number of columns, without quotes or blanks; the first line
 * is a header exactly if ga_csv_spec says so. Anything else is refused as `path:line: column N: ...`.
 * The locale does not matter. */
#ifndef GA_CSV_H
#define GA_CSV_H

#include "base/arena.h"
#include "data/scan.h"
#include "data/stream.h"

enum { GA_CSV_COLUMNS_MAX = 1 << 20, GA_CSV_CELL_MAX = 63 };

typedef struct ga_csv_shape {
    int64_t rows, columns;
    double target_min, target_max; /* range of the target column */
    double odd;                    /* first target that is no class number: whole, from 0 to 2^31-1 */
    int64_t odd_line;              /* its line; 0: all targets are class numbers */
} ga_csv_shape;

typedef struct ga_csv_spec {
    int64_t rows, columns; /* expected; the file must have exactly these */
    int64_t target;        /* column of the target, from 0; -1: none */
    int64_t classes;       /* targets must be whole numbers in [0, classes); 0: targets are numbers of
                              `dtype`, not scaled */
    double scale;          /* inputs are multiplied by this */
    ga_dtype dtype;        /* of the inputs: GA_F32 or GA_F64 */
    bool header;           /* the first line is a header */
} ga_csv_spec;

/* Reads the whole file once and checks every cell. It uses only target (-1: the last column), scale,
 * dtype and header of s. GA_INPUT if the file is missing or faulty. */
int ga_csv_scan(const char *path, const ga_csv_spec *s, ga_csv_shape *out, ga_err *e);

/* A file that is read row by row; the fields are private to the reader. */
typedef struct ga_csv_rows {
    ga_stream s;
    int64_t line, column; /* from 1, of the cell being read */
    bool header;          /* line 1 is a header */
    char cell[GA_CSV_CELL_MAX + 1];
    size_t length;
    int64_t columns; /* expected; 0: those of the first line */
    /* Handles the value in column `column` of row `row`, both counted from 1. */
    int (*take)(void *arg, int64_t row, int64_t column, double value, ga_err *e);
    void *arg;
    ga_err *e;
    const ga_csv_spec *spec;
    void *input, *target; /* destinations of the row being read; NULL: only check */
} ga_csv_rows;

/* Opens a file as ga_csv_read does, but ignores spec->rows. Path and spec are not copied. */
int ga_csv_rows_open(ga_csv_rows *r, const char *path, const ga_csv_spec *s, ga_err *e);
void ga_csv_rows_close(ga_csv_rows *r);

/* Reads the next row to `input` and `target`, of the types of ga_csv_read; both NULL: only checks it.
 * Returns 1; 0 after the last row, also when called again; or a negative status. */
int ga_csv_row(ga_csv_rows *r, void *input, void *target, ga_err *e);

/* Reads the whole file. input: rows x (columns without the target), row-major, of s->dtype; target: rows
 * of int32_t, or of s->dtype without classes; NULL if s->target is -1. */
int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, void *target, ga_err *e);

/* A dataset of files whose rows follow each other. Fields: input, real (columns without the target), and
 * target, ids if all its values are whole and not negative, else real. ga_csv_open keeps numbers as the
 * program's real. spec->rows is ignored: each part has its own. A scan accepts a target beyond the
 * columns. */
int ga_csv_scan_parts(const char *const *path, int parts, const ga_csv_spec *s, ga_scan *out,
                      ga_err *e);
int ga_csv_open(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                ga_err *e);

/* The same rows streamed from the files, of any number; paths and spec are copied. */
int ga_csv_stream(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                  ga_err *e);

/* Parses the finite number [text, text + n): [+-] digits [. digits] [e [+-] digits], nothing around it.
 * Correctly rounded up to 15 digits with |exponent| <= 22, else within one unit in the last place. */
bool ga_number_parse(const char *text, size_t n, double *out);

#endif
