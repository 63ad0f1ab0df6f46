/* csv.h: CSV files (RFC 4180, UTF-8), also gzipped (by name), read as a stream through a fixed buffer.
 * Lines end in LF, or in CR and LF; a byte order mark is passed over; cells may be quoted. All lines have
 * the same number of columns; the first one is a header exactly if ga_csv_spec says so. A cell is a
 * plain decimal number unless ga_csv_column says otherwise. Anything else is refused as
 * `path:line: column N: ...`, both counted from 1. The locale does not matter. */
#ifndef GA_CSV_H
#define GA_CSV_H

#include "base/arena.h"
#include "data/scan.h"
#include "data/stream.h"

enum { GA_CSV_COLUMNS_MAX = 1 << 20, GA_CSV_CELL_MAX = 255 };

/* -- cells ------------------------------------------------------------------------------------- */

/* A file that is read cell by cell. */
typedef struct ga_csv_cells {
    ga_stream s;
    int64_t line, column; /* of the cell that was read, from 1 */
    bool more;            /* it is not the last one of its row */
    size_t length;        /* of its text without quotes; `cell` keeps GA_CSV_CELL_MAX bytes */
    char cell[GA_CSV_CELL_MAX + 1];
} ga_csv_cells;

/* The path is not copied. */
int ga_csv_cells_open(ga_csv_cells *c, const char *path, ga_err *e);
void ga_csv_cells_close(ga_csv_cells *c);

/* Reads the next cell. Returns 1; 0 after the last row; or a negative status. */
int ga_csv_cell(ga_csv_cells *c, ga_err *e);

/* Fails with `path:line: column N: found FOUND`. */
int ga_csv_refuse(const ga_csv_cells *c, const char *found, ga_err *e);

/* Parses the finite number [text, text + n): [+-] digits [. digits] [e [+-] digits], nothing around it.
 * Correctly rounded up to 15 digits with |exponent| <= 22, else within one unit in the last place. */
bool ga_number_parse(const char *text, size_t n, double *out);

/* -- rows -------------------------------------------------------------------------------------- */

/* A text of a category, and the number that stands for it. */
typedef struct ga_csv_value {
    const char *text;
    int32_t id;
} ga_csv_value;

/* One column of a file. */
typedef struct ga_csv_column {
    const char *name;          /* expected in the header; NULL: any */
    int64_t input;             /* place among the inputs, from 0; -1: none of them */
    int field;                 /* of a category that is a field of its own: its number, from 1; else 0 */
    const ga_csv_value *value; /* of a category, sorted by the bytes of their texts */
    int values;                /* their number */
    bool category;             /* cells are texts, read as their ids; without `value` as 0 */
    bool unknown;              /* a text that is none of them has the id `values`, else it is refused */
    double mean, std;          /* std > 0: the input is (number - mean) / std */
} ga_csv_column;

typedef struct ga_csv_spec {
    int64_t rows, columns; /* expected; the file must have exactly these */
    int64_t target;        /* column of the target, from 0; `columns`: the file has none */
    int64_t classes;       /* targets must be whole numbers in [0, classes); 0: targets are numbers of
                              `dtype`, not scaled */
    double scale;          /* inputs are multiplied by this, ids are not */
    ga_dtype dtype;        /* of the inputs: GA_F32 or GA_F64 */
    bool header;           /* the first line is a header */
    const ga_csv_column *column; /* of each column; NULL: all but the target are inputs, in order */
    bool real_target;      /* of a scan: targets are no class numbers, even if all are whole */
} ga_csv_spec;

/* Fields of a row: 0 is the input, the last one the target, those between are categories. */
int ga_csv_fields(const ga_csv_spec *s);

/* Elements of field 0. */
int64_t ga_csv_inputs(const ga_csv_spec *s);

/* Bytes of a field of one row: the input and a target without classes are of s->dtype, others int32_t. */
size_t ga_csv_bytes(const ga_csv_spec *s, int field);

typedef struct ga_csv_shape {
    int64_t rows;
    double target_min, target_max;
    int64_t target_min_line, target_max_line; /* where they are first */
    double odd;       /* first target that is no class number: whole, from 0 to 2^31-1 */
    int64_t odd_line; /* its line; 0: all targets are class numbers */
} ga_csv_shape;

/* Reads the whole file once and checks every cell. It ignores rows and classes of s. GA_INPUT if the
 * file is missing or faulty. */
int ga_csv_scan(const char *path, const ga_csv_spec *s, ga_csv_shape *out, ga_err *e);

/* A file that is read row by row. */
typedef struct ga_csv_rows {
    ga_csv_cells cells;
    const ga_csv_spec *spec;
    int64_t rows;        /* read so far */
    double target_value; /* of the last row */
    int64_t target_line;
    void *const *out;    /* destinations of the row being read; NULL: only check */
    int target;          /* number of the target's field */
} ga_csv_rows;

/* Opens a file as ga_csv_read does, but ignores spec->rows. Path and spec are not copied. */
int ga_csv_rows_open(ga_csv_rows *r, const char *path, const ga_csv_spec *s, ga_err *e);
void ga_csv_rows_close(ga_csv_rows *r);

/* Reads the next row to out[f] for each field f; out NULL: only checks it. Returns 1; 0 after the last
 * row, also when called again; or a negative status. */
int ga_csv_row(ga_csv_rows *r, void *const out[], ga_err *e);

/* Fails, since a file has no rows. */
int ga_csv_refuse_empty(const char *path, ga_err *e);

/* Reads the whole file: the rows of field f follow each other from out[f] on. */
int ga_csv_read(const char *path, const ga_csv_spec *s, void *const out[], ga_err *e);

/* A dataset of files whose rows follow each other. A scan says that the target has ids if all its values
 * are whole and not negative, and names no categories. ga_csv_open keeps numbers as the program's real. spec->rows is
 * ignored: each part has its own. */
int ga_csv_scan_parts(const char *const *path, int parts, const ga_csv_spec *s, ga_scan *out,
                      ga_err *e);
int ga_csv_open(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                ga_err *e);

/* The same rows streamed from the files, of any number; paths and spec are copied, spec->column is not. */
int ga_csv_stream(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                  ga_err *e);

/* Rows to predict, streamed from one file with or without the column of the target, which is not read; spec->rows is
 * ignored. Opens the arena. */
int ga_csv_predicted(ga_source *out, const char *path, const ga_csv_spec *s, ga_arena *a, ga_err *e);

#endif
