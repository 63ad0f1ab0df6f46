/* csv.c: cells, numbers; the two readers are handlers over the same walk. */
#include "csv.h"

#include "stream.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL_MAX = 63 };

typedef struct {
    ga_stream *s;
    int64_t line, column; /* from 1, of the cell being read */
    bool header;          /* line 1 is no row */
    char cell[CELL_MAX + 1];
    size_t length;
    int64_t columns; /* expected; 0: as many as the first line has */
    /* Takes the value in column `column` of row `row`, both from 1. */
    int (*take)(void *arg, int64_t row, int64_t column, double value, ga_err *e);
    void *arg;
    ga_err *e;
} walk;

static long double power_of_ten(int n) {
    long double result = 1, base = 10;
    for (; n > 0; n >>= 1, base *= base)
        if (n & 1) result *= base;
    return result;
}

bool ga_number_parse(const char *text, size_t n, double *out) {
    const char *at = text, *end = text + n;
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    uint64_t digits = 0;
    int kept = 0, exponent = 0, seen = 0;
    bool point = false;
    for (; at < end && ((*at >= '0' && *at <= '9') || (*at == '.' && !point)); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        seen++;
        if (kept < 19) {
            digits = digits * 10 + (uint64_t)(*at - '0');
            if (digits) kept++;
            exponent -= point;
        } else {
            exponent += !point;
        }
    }
    if (seen == 0) return false;
    if (at < end && (*at == 'e' || *at == 'E')) {
        int sign = 1, value = 0;
        const char *start;
        at++;
        if (at < end && (*at == '-' || *at == '+')) sign = *at++ == '-' ? -1 : 1;
        for (start = at; at < end && *at >= '0' && *at <= '9'; at++)
            if (value < 10000) value = value * 10 + (*at - '0');
        if (at == start) return false;
        exponent += sign * value;
    }
    if (at != end) return false;
    double result;
    if (digits == 0 || exponent < -400)
        result = 0;
    else if (exponent > 400)
        return false;
    else if (digits < (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22)
        result = exponent < 0 ? (double)digits / (double)power_of_ten(-exponent)
                              : (double)digits * (double)power_of_ten(exponent);
    else
        result = (double)(exponent < 0 ? (long double)digits / power_of_ten(-exponent)
                                       : (long double)digits * power_of_ten(exponent));
    *out = negative ? -result : result;
    return isfinite(result);
}

/* Why a byte cannot be in a file of plain numbers; NULL if it may be part of one. */
static const char *refuse_byte(const walk *w, int byte) {
    if (byte == 0xef && w->line == 1 && w->column == 1 && w->length == 0)
        return "a byte order mark; save the file without it";
    if (byte == '\r') return "a carriage return; lines must end in LF alone";
    if (byte == '"') return "a quote; cells must be plain numbers";
    if (byte == 0) return "a zero byte; the file is not text";
    if (w->length == CELL_MAX) return "a cell of more than 63 bytes; expected a number";
    return NULL;
}

static int refuse(walk *w, const char *found) {
    return ga_fail(w->e, GA_INPUT, "%s:%lld: column %lld: found %s", w->s->path, (long long)w->line,
                   (long long)w->column, found);
}

static int end_of_cell(walk *w) {
    double value;
    if (w->length == 0) return refuse(w, "an empty cell, expected a number");
    w->cell[w->length] = 0;
    if (!ga_number_parse(w->cell, w->length, &value)) {
        char text[CELL_MAX + 128];
        snprintf(text, sizeof text, "'%s', expected a finite decimal number%s", w->cell,
                 w->line == 1 ? "; if the first line is a header, say header = true" : "");
        return refuse(w, text);
    }
    w->length = 0;
    return w->take(w->arg, w->line - w->header, w->column, value, w->e);
}

static int end_of_line(walk *w) {
    if (w->columns == 0) w->columns = w->column;
    if (w->column != w->columns)
        return ga_fail(w->e, GA_INPUT, "%s:%lld: %lld columns found, %lld expected", w->s->path,
                       (long long)w->line, (long long)w->column, (long long)w->columns);
    w->line++;
    w->column = 1;
    return GA_OK;
}

/* Line 1 of names: commas between quotes do not count. It may not be a row of numbers. */
static int skip_header(walk *w) {
    bool quoted = false, numbers = true;
    for (;;) {
        double value;
        int byte = ga_stream_byte(w->s, w->e);
        GA_TRY(byte);
        if (byte == '"') quoted = !quoted;
        if (byte == '\r') return refuse(w, "a carriage return; lines must end in LF alone");
        if (byte == 0) return refuse(w, "a zero byte; the file is not text");
        if (byte != '\n' && byte != GA_STREAM_END && (byte != ',' || quoted)) {
            if (w->length < CELL_MAX) w->cell[w->length++] = (char)byte;
            continue;
        }
        numbers = numbers && ga_number_parse(w->cell, w->length, &value);
        w->length = 0;
        if (byte != ',') break;
        if (++w->column > GA_CSV_COLUMNS_MAX) return refuse(w, "too many columns in the header");
    }
    if (numbers) return refuse(w, "a line of numbers, but header = true says that it is a header");
    return end_of_line(w);
}

/* Calls take for every cell; returns the number of lines. */
static int64_t walk_cells(walk *w) {
    int64_t limit = w->columns ? w->columns : GA_CSV_COLUMNS_MAX;
    for (;;) {
        int byte = ga_stream_byte(w->s, w->e);
        GA_TRY(byte);
        if (byte == GA_STREAM_END && w->column == 1 && w->length == 0)
            return w->line - 1 - w->header;
        if (byte == ',' || byte == '\n' || byte == GA_STREAM_END) {
            GA_TRY(end_of_cell(w));
            if (byte != ',') {
                GA_TRY(end_of_line(w));
            } else if (++w->column > limit) {
                return ga_fail(w->e, GA_INPUT,
                               "%s:%lld: more than %lld columns found, %lld expected", w->s->path,
                               (long long)w->line, (long long)limit, (long long)limit);
            }
            continue;
        }
        const char *reason = refuse_byte(w, byte);
        if (reason) return refuse(w, reason);
        w->cell[w->length++] = (char)byte;
    }
}

static int64_t walk_file(const char *path, bool header, int64_t columns,
                         int (*take)(void *, int64_t, int64_t, double, ga_err *), void *arg,
                         int64_t *width, ga_err *e) {
    ga_stream s;
    size_t n = strlen(path);
    bool zipped = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    GA_TRY(ga_stream_open(&s, path, zipped ? GA_GZIP : GA_PLAIN, e));
    walk w = {.s = &s, .line = 1, .column = 1, .columns = columns, .take = take, .arg = arg, .e = e,
              .header = header};
    int64_t rows = header ? skip_header(&w) : GA_OK;
    if (rows == GA_OK) rows = walk_cells(&w);
    ga_stream_close(&s);
    *width = w.columns;
    return rows;
}

/* Whether a number of column `column` fits the program's type; messages name line and column. */
static int check_size(const char *path, const ga_csv_spec *s, int64_t row, int64_t column,
                      double value, ga_err *e) {
    if (fabs(value) <= (s->dtype == GA_F32 ? FLT_MAX : DBL_MAX)) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s:%lld: column %lld: %.9g is too large for %s", path,
                   (long long)row + s->header, (long long)column, value, ga_dtype_name(s->dtype));
}

/* The cell before the present one: whether it is the target may be known only now. */
typedef struct {
    const char *path;
    const ga_csv_spec *spec;
    int64_t row, column;
    double value;
    ga_csv_shape *shape;
} scan;

static int scan_before(scan *c, bool last, ga_err *e) {
    const ga_csv_spec *s = c->spec;
    ga_csv_shape *shape = c->shape;
    if (s->target < 0 ? !last : c->column != s->target + 1)
        return check_size(c->path, s, c->row, c->column, c->value * s->scale, e);
    if (c->row == 1 || c->value < shape->target_min) shape->target_min = c->value;
    if (c->row == 1 || c->value > shape->target_max) shape->target_max = c->value;
    if (c->value != floor(c->value)) shape->target_integer = false;
    return check_size(c->path, s, c->row, c->column, c->value, e);
}

static int scan_take(void *arg, int64_t row, int64_t column, double value, ga_err *e) {
    scan *c = arg;
    if (c->row > 0) GA_TRY(scan_before(c, column == 1, e));
    c->row = row;
    c->column = column;
    c->value = value;
    return GA_OK;
}

int ga_csv_scan(const char *path, const ga_csv_spec *s, ga_csv_shape *out, ga_err *e) {
    *out = (ga_csv_shape){.target_integer = true};
    scan c = {.path = path, .spec = s, .shape = out};
    int64_t rows = walk_file(path, s->header, 0, scan_take, &c, &out->columns, e);
    if (rows < 0) return (int)rows;
    if (rows == 0) return ga_fail(e, GA_INPUT, "%s: no rows found, at least one expected", path);
    GA_TRY(scan_before(&c, true, e));
    out->rows = rows;
    return GA_OK;
}

typedef struct {
    const char *path;
    const ga_csv_spec *spec;
    void *input;
    void *target;
    int64_t width; /* inputs per row */
} reading;

static int take_target(reading *r, int64_t row, int64_t column, double value, ga_err *e) {
    if (!(value >= 0 && value < (double)r->spec->classes && value == floor(value)))
        return ga_fail(
            e, GA_INPUT,
            "%s:%lld: column %lld: target %.9g of sample %lld, expected a whole number in 0..%lld",
            r->path, (long long)row + r->spec->header, (long long)column, value, (long long)row,
            (long long)r->spec->classes - 1);
    ((int32_t *)r->target)[row - 1] = (int32_t)value;
    return GA_OK;
}

static int read_take(void *arg, int64_t row, int64_t column, double value, ga_err *e) {
    reading *r = arg;
    const ga_csv_spec *spec = r->spec;
    int64_t at = column - 1;
    if (row > spec->rows) return GA_OK; /* only counted, for the message */
    if (at == spec->target && spec->classes) return take_target(r, row, column, value, e);
    if (at != spec->target) value *= spec->scale;
    if (spec->target >= 0 && at > spec->target) at--;
    GA_TRY(check_size(r->path, spec, row, column, value, e));
    if (column - 1 == spec->target)
        ga_set(r->target, spec->dtype, row - 1, value);
    else
        ga_set(r->input, spec->dtype, (row - 1) * r->width + at, value);
    return GA_OK;
}

int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, void *target, ga_err *e) {
    reading r = {path, s, input, target, s->columns - (s->target >= 0)};
    int64_t columns, rows = walk_file(path, s->header, s->columns, read_take, &r, &columns, e);
    if (rows < 0) return (int)rows;
    if (rows != s->rows)
        return ga_fail(
            e, GA_INPUT,
            "%s: %lld rows found, %lld expected: is it the file the program was made for?", path,
            (long long)rows, (long long)s->rows);
    return GA_OK;
}
