/* csv.c: rows of numbers and categories, scanned and read by one walk. */
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ga_csv_column *column_of(const ga_csv_rows *r) {
    return r->spec->column ? &r->spec->column[r->cells.column - 1] : NULL;
}

/* Refuses the cell's text: `found 'text', expected ...`. */
static int refuse_text(const ga_csv_rows *r, const char *expected, ga_err *e) {
    char text[2 * GA_CSV_CELL_MAX + 128];
    snprintf(text, sizeof text, "'%s', expected %s", r->cells.cell, expected);
    return ga_csv_refuse(&r->cells, text, e);
}

static int number_of(const ga_csv_rows *r, double *out, ga_err *e) {
    const ga_csv_cells *c = &r->cells;
    if (c->length == 0) return ga_csv_refuse(c, "an empty cell, expected a number", e);
    if (c->length > GA_CSV_CELL_MAX)
        return ga_csv_refuse(c, "a cell of more than 255 bytes; expected a number", e);
    if (ga_number_parse(c->cell, c->length, out)) return GA_OK;
    return refuse_text(r, r->rows == 0 && !r->spec->header
                              ? "a finite decimal number; if the first line is a header, say header = true"
                              : "a finite decimal number; a column of text is one of category or drop", e);
}

static int by_text(const void *a, const void *b) {
    return strcmp(((const ga_csv_value *)a)->text, ((const ga_csv_value *)b)->text);
}

static int category_of(const ga_csv_rows *r, const ga_csv_column *c, double *out, ga_err *e) {
    *out = 0;
    if (r->cells.length > GA_CSV_CELL_MAX)
        return ga_csv_refuse(&r->cells, "a text of more than 255 bytes; expected a category", e);
    if (!c->value) return GA_OK;
    const ga_csv_value key = {r->cells.cell, 0};
    const ga_csv_value *found = bsearch(&key, c->value, (size_t)c->values, sizeof key, by_text);
    if (!found && !c->unknown)
        return refuse_text(r, "a category of the training rows; unknown = true has an id for others", e);
    *out = found ? found->id : c->values;
    return GA_OK;
}

/* Checks that a number fits the program's type. */
static int check_size(const ga_csv_rows *r, double value, ga_err *e) {
    if (fabs(value) <= (r->spec->dtype == GA_F32 ? FLT_MAX : DBL_MAX)) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s:%lld: column %lld: %.9g is too large for %s", r->cells.s.path,
                   (long long)r->cells.line, (long long)r->cells.column, value,
                   ga_dtype_name(r->spec->dtype));
}

static int take_target(ga_csv_rows *r, double value, ga_err *e) {
    const ga_csv_spec *s = r->spec;
    r->target_value = value;
    r->target_line = r->cells.line;
    if (s->classes == 0) {
        GA_TRY(check_size(r, value, e));
        if (r->out) ga_set(r->out[r->target], s->dtype, 0, value);
        return GA_OK;
    }
    if (!(value >= 0 && value < (double)s->classes && value == floor(value)))
        return ga_fail(e, GA_INPUT,
                       "%s:%lld: column %lld: target %.9g, expected a whole number in 0..%lld",
                       r->cells.s.path, (long long)r->cells.line, (long long)r->cells.column, value,
                       (long long)s->classes - 1);
    if (r->out) *(int32_t *)r->out[r->target] = (int32_t)value;
    return GA_OK;
}

static int take_cell(ga_csv_rows *r, ga_err *e) {
    const ga_csv_spec *s = r->spec;
    const ga_csv_column *c = column_of(r);
    const int64_t at = r->cells.column - 1, input = c ? c->input : at - (at > s->target);
    const bool category = c && c->category;
    double value;
    const int field = c ? c->field : 0;
    if (input < 0 && field == 0 && at != s->target) return GA_OK;
    GA_TRY(category ? category_of(r, c, &value, e) : number_of(r, &value, e));
    if (at == s->target) return take_target(r, value, e);
    if (field > 0) {
        if (r->out) *(int32_t *)r->out[field] = (int32_t)value;
        return GA_OK;
    }
    if (!category) value *= s->scale;
    if (c && c->std > 0) value = (value - c->mean) / c->std;
    GA_TRY(check_size(r, value, e));
    if (r->out) ga_set(r->out[0], s->dtype, input, value);
    return GA_OK;
}

/* Checks a cell of the header against the column's name. */
static int check_name(ga_csv_rows *r, ga_err *e) {
    const ga_csv_column *c = column_of(r);
    char expected[GA_CSV_CELL_MAX + 64];
    if (!c || !c->name || strcmp(c->name, r->cells.cell) == 0) return GA_OK;
    snprintf(expected, sizeof expected, "'%s': is it the file the program was made for?", c->name);
    return refuse_text(r, expected, e);
}

/* Passes the cells of the next line to `take`. Returns 1, or 0 at the end of the file. */
static int walk_line(ga_csv_rows *r, int (*take)(ga_csv_rows *, ga_err *), ga_err *e) {
    const int64_t columns = r->spec->columns;
    do {
        const int code = ga_csv_cell(&r->cells, e);
        if (code <= 0) return code;
        if (r->cells.column > columns)
            return ga_fail(e, GA_INPUT, "%s:%lld: more than %lld columns found, %lld expected",
                           r->cells.s.path, (long long)r->cells.line, (long long)columns,
                           (long long)columns);
        GA_TRY(take(r, e));
    } while (r->cells.more);
    if (r->cells.column == columns) return 1;
    return ga_fail(e, GA_INPUT, "%s:%lld: %lld column%s found, %lld expected", r->cells.s.path,
                   (long long)r->cells.line, (long long)r->cells.column, r->cells.column == 1 ? "" : "s",
                   (long long)columns);
}

/* Takes a cell of the header; target_value counts those that are no numbers. */
static int take_name(ga_csv_rows *r, ga_err *e) {
    double value;
    const bool number = ga_number_parse(r->cells.cell, strlen(r->cells.cell), &value);
    r->target_value += !number;
    return check_name(r, e);
}

/* Reads the header. Refuses a line of numbers. */
static int skip_header(ga_csv_rows *r, ga_err *e) {
    const int code = walk_line(r, take_name, e);
    if (code <= 0 || r->target_value > 0) return code;
    return ga_csv_refuse(&r->cells, "a line of numbers, but header = true says that it is a header", e);
}

int ga_csv_rows_open(ga_csv_rows *r, const char *path, const ga_csv_spec *s, ga_err *e) {
    r->spec = s;
    r->rows = 0;
    r->target_value = 0;
    r->target = ga_csv_fields(s) - 1;
    GA_TRY(ga_csv_cells_open(&r->cells, path, e));
    const int code = s->header ? skip_header(r, e) : GA_OK;
    if (code < 0) ga_csv_rows_close(r);
    return code < 0 ? code : GA_OK;
}

void ga_csv_rows_close(ga_csv_rows *r) {
    ga_csv_cells_close(&r->cells);
}

int ga_csv_row(ga_csv_rows *r, void *const out[], ga_err *e) {
    r->out = out;
    const int code = walk_line(r, take_cell, e);
    r->rows += code > 0;
    return code;
}

int ga_csv_fields(const ga_csv_spec *s) {
    int fields = 2;
    for (int64_t i = 0; s->column && i < s->columns; i++) fields += s->column[i].field > 0;
    return fields;
}

size_t ga_csv_bytes(const ga_csv_spec *s, int field) {
    if (field == 0) return (size_t)ga_csv_inputs(s) * ga_dtype_bytes(s->dtype);
    return ga_dtype_bytes(field == ga_csv_fields(s) - 1 && s->classes == 0 ? s->dtype : GA_I32);
}

int64_t ga_csv_inputs(const ga_csv_spec *s) {
    int64_t inputs = 0;
    if (!s->column) return s->columns - (s->target < s->columns);
    for (int64_t i = 0; i < s->columns; i++) inputs += s->column[i].input >= 0;
    return inputs;
}

int ga_csv_refuse_empty(const char *path, ga_err *e) {
    return ga_fail(e, GA_INPUT, "%s: no rows found, at least one expected", path);
}

int ga_csv_scan(const char *path, const ga_csv_spec *s, ga_csv_shape *out, ga_err *e) {
    ga_csv_spec any = *s;
    ga_csv_rows r;
    int code;
    any.classes = 0;
    *out = (ga_csv_shape){0};
    GA_TRY(ga_csv_rows_open(&r, path, &any, e));
    while ((code = ga_csv_row(&r, NULL, e)) == 1) {
        const double value = r.target_value;
        if (r.rows == 1 || value < out->target_min) {
            out->target_min = value;
            out->target_min_line = r.target_line;
        }
        if (r.rows == 1 || value > out->target_max) {
            out->target_max = value;
            out->target_max_line = r.target_line;
        }
        if (out->odd_line > 0 || (value >= 0 && value <= INT32_MAX && value == floor(value))) continue;
        out->odd = value;
        out->odd_line = r.target_line;
    }
    ga_csv_rows_close(&r);
    GA_TRY(code);
    out->rows = r.rows;
    return r.rows > 0 ? GA_OK : ga_csv_refuse_empty(path, e);
}

int ga_csv_read(const char *path, const ga_csv_spec *s, void *const out[], ga_err *e) {
    const int fields = ga_csv_fields(s);
    size_t bytes[GA_FIELDS];
    void *to[GA_FIELDS];
    ga_csv_rows r;
    for (int f = 0; f < fields; f++) {
        bytes[f] = ga_csv_bytes(s, f);
        to[f] = out[f];
    }
    GA_TRY(ga_csv_rows_open(&r, path, s, e));
    int code = 1;
    for (int64_t row = 0; code == 1; row++) {
        const bool kept = row < s->rows; /* further rows are only counted, for the message */
        code = ga_csv_row(&r, kept ? to : NULL, e);
        for (int f = 0; f < fields && kept; f++) to[f] = (char *)to[f] + bytes[f];
    }
    ga_csv_rows_close(&r);
    GA_TRY(code);
    if (r.rows == s->rows) return GA_OK;
    return ga_fail(
        e, GA_INPUT,
        "%s: %lld rows found, %lld expected: is it the file the program was made for?", path,
        (long long)r.rows, (long long)s->rows);
}
