/* csv.c: cells and numbers; scanning and reading are handlers of one walk over the cells. */
#include "data/csv.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL_MAX = GA_CSV_CELL_MAX };

typedef ga_csv_rows walk;

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

/* The reason to refuse a byte in a file of plain numbers; NULL if it may be part of a number. */
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
    return ga_fail(w->e, GA_INPUT, "%s:%lld: column %lld: found %s", w->s.path, (long long)w->line,
                   (long long)w->column, found);
}

/* Parses the cell that ends here and passes its value to `take`. */
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
        return ga_fail(w->e, GA_INPUT, "%s:%lld: %lld columns found, %lld expected", w->s.path,
                       (long long)w->line, (long long)w->column, (long long)w->columns);
    w->line++;
    w->column = 1;
    return GA_OK;
}

/* Skips a header line; commas between quotes do not separate. Refuses a line of numbers. */
static int skip_header(walk *w) {
    bool quoted = false, numbers = true;
    for (;;) {
        double value;
        int byte = ga_stream_byte(&w->s, w->e);
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

/* Calls `take` for every cell of the next line. Returns 1, or 0 at the end of the file. */
static int walk_row(walk *w) {
    const int64_t limit = w->columns ? w->columns : GA_CSV_COLUMNS_MAX;
    for (;;) {
        int byte = ga_stream_byte(&w->s, w->e);
        GA_TRY(byte);
        if (byte == GA_STREAM_END && w->column == 1 && w->length == 0) return 0;
        if (byte == ',' || byte == '\n' || byte == GA_STREAM_END) {
            GA_TRY(end_of_cell(w));
            if (byte != ',') {
                GA_TRY(end_of_line(w));
                return 1;
            }
            if (++w->column > limit)
                return ga_fail(w->e, GA_INPUT,
                               "%s:%lld: more than %lld columns found, %lld expected", w->s.path,
                               (long long)w->line, (long long)limit, (long long)limit);
            continue;
        }
        const char *reason = refuse_byte(w, byte);
        if (reason) return refuse(w, reason);
        w->cell[w->length++] = (char)byte;
    }
}

/* Number of rows before the present line. */
static int64_t rows_done(const walk *w) {
    return w->line - 1 - w->header;
}

static int open_walk(walk *w, const char *path, bool header, ga_err *e) {
    const size_t n = strlen(path);
    const bool zipped = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    w->line = w->column = 1;
    w->columns = 0;
    w->length = 0;
    w->header = header;
    w->e = e;
    return ga_stream_open(&w->s, path, zipped ? GA_GZIP : GA_PLAIN, e);
}

/* Checks that a number fits the program's type; the message names line and column. */
static int check_size(const char *path, const ga_csv_spec *s, int64_t row, int64_t column,
                      double value, ga_err *e) {
    if (fabs(value) <= (s->dtype == GA_F32 ? FLT_MAX : DBL_MAX)) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s:%lld: column %lld: %.9g is too large for %s", path,
                   (long long)row + s->header, (long long)column, value, ga_dtype_name(s->dtype));
}

/* Holds each cell back by one: only the next cell shows whether it was in the last column, the target. */
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
    const bool class = c->value >= 0 && c->value <= INT32_MAX && c->value == floor(c->value);
    if (!class && shape->odd_line == 0) {
        shape->odd = c->value;
        shape->odd_line = c->row + s->header;
    }
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
    *out = (ga_csv_shape){0};
    scan c = {.path = path, .spec = s, .shape = out};
    walk w;
    GA_TRY(open_walk(&w, path, s->header, e));
    w.take = scan_take;
    w.arg = &c;
    int code = s->header ? skip_header(&w) : GA_OK;
    if (code == GA_OK)
        do code = walk_row(&w);
        while (code == 1);
    ga_stream_close(&w.s);
    GA_TRY(code);
    out->rows = rows_done(&w);
    out->columns = w.columns;
    if (out->rows == 0)
        return ga_fail(e, GA_INPUT, "%s: no rows found, at least one expected", path);
    return scan_before(&c, true, e);
}

static int take_target(const walk *w, int64_t row, int64_t column, double value, ga_err *e) {
    if (!(value >= 0 && value < (double)w->spec->classes && value == floor(value)))
        return ga_fail(
            e, GA_INPUT,
            "%s:%lld: column %lld: target %.9g of sample %lld, expected a whole number in 0..%lld",
            w->s.path, (long long)row + w->header, (long long)column, value, (long long)row,
            (long long)w->spec->classes - 1);
    if (w->target) *(int32_t *)w->target = (int32_t)value;
    return GA_OK;
}

static int read_take(void *arg, int64_t row, int64_t column, double value, ga_err *e) {
    const walk *w = arg;
    const ga_csv_spec *spec = w->spec;
    int64_t at = column - 1;
    if (at == spec->target && spec->classes) return take_target(w, row, column, value, e);
    if (at != spec->target) value *= spec->scale;
    GA_TRY(check_size(w->s.path, spec, row, column, value, e));
    if (!w->input) return GA_OK;
    if (at == spec->target)
        ga_set(w->target, spec->dtype, 0, value);
    else
        ga_set(w->input, spec->dtype, at - (spec->target >= 0 && at > spec->target), value);
    return GA_OK;
}

int ga_csv_rows_open(ga_csv_rows *r, const char *path, const ga_csv_spec *s, ga_err *e) {
    GA_TRY(open_walk(r, path, s->header, e));
    r->columns = s->columns;
    r->take = read_take;
    r->arg = r;
    r->spec = s;
    const int code = s->header ? skip_header(r) : GA_OK;
    if (code < 0) ga_stream_close(&r->s);
    return code;
}

void ga_csv_rows_close(ga_csv_rows *r) {
    ga_stream_close(&r->s);
}

int ga_csv_row(ga_csv_rows *r, void *input, void *target, ga_err *e) {
    r->input = input;
    r->target = target;
    r->e = e;
    return walk_row(r);
}

int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, void *target, ga_err *e) {
    const size_t width = (size_t)(s->columns - (s->target >= 0)) * ga_dtype_bytes(s->dtype);
    const size_t target_width = ga_dtype_bytes(s->classes ? GA_I32 : s->dtype);
    ga_csv_rows r;
    GA_TRY(ga_csv_rows_open(&r, path, s, e));
    char *to_input = input, *to_target = target;
    int code = 1;
    for (int64_t row = 0; code == 1; row++) {
        const bool kept = row < s->rows; /* further rows are only counted, for the message */
        code = ga_csv_row(&r, kept ? to_input : NULL, kept ? to_target : NULL, e);
        if (kept) to_input += width;
        if (kept && target) to_target += target_width;
    }
    ga_csv_rows_close(&r);
    GA_TRY(code);
    if (rows_done(&r) == s->rows) return GA_OK;
    return ga_fail(
        e, GA_INPUT,
        "%s: %lld rows found, %lld expected: is it the file the program was made for?", path,
        (long long)rows_done(&r), (long long)s->rows);
}
