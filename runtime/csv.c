/* csv.c: a byte stream (plain or gzip), cells, numbers; the two readers are handlers over the same
 * walk. */
#include "csv.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 16, CELL_MAX = 63, END = 256 };

typedef struct {
    const char *path;
    int fd;
    bool zipped, ended; /* ended: the last gzip member, or the plain file, is complete */
    z_stream z;
    size_t at, have; /* of out */
    unsigned char in[CHUNK], out[CHUNK];
} stream;

typedef struct {
    stream *s;
    int64_t line, column; /* from 1, of the cell being read */
    char cell[CELL_MAX + 1];
    size_t length;
    int64_t columns; /* expected; 0: as many as the first line has */
    /* Takes the value in column `column` of line `line`. */
    int (*take)(void *arg, int64_t line, int64_t column, double value, ga_err *e);
    void *arg;
    ga_err *e;
} walk;

static int stream_fail(stream *s, ga_err *e, const char *what) {
    return ga_fail(e, GA_INPUT, "%s: %s", s->path, what);
}

static int stream_open(stream *s, const char *path, ga_err *e) {
    struct stat st;
    size_t n = strlen(path);
    *s = (stream){.path = path, .zipped = n > 3 && strcmp(path + n - 3, ".gz") == 0};
    s->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (s->fd < 0) return ga_fail(e, GA_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(s->fd, &st) || !S_ISREG(st.st_mode))
        ga_fail(e, GA_INPUT, "%s: not a regular file", path);
    else if (s->zipped && inflateInit2(&s->z, 16 + MAX_WBITS) != Z_OK)
        ga_fail(e, GA_ENVIRONMENT, "%s: zlib found no memory", path);
    else
        return GA_OK;
    close(s->fd);
    return GA_INPUT;
}

static void stream_close(stream *s) {
    if (s->zipped) inflateEnd(&s->z);
    close(s->fd);
}

static int read_some(stream *s, void *to, ga_err *e) {
    for (;;) {
        ssize_t n = read(s->fd, to, CHUNK);
        if (n >= 0) return (int)n;
        if (errno != EINTR)
            return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", s->path, strerror(errno));
    }
}

/* After the end of a gzip member: another member, the end of the file, or bytes that do not belong.
 */
static int member_end(stream *s, ga_err *e) {
    if (s->z.avail_in == 0) {
        int n = read_some(s, s->in, e);
        GA_TRY(n);
        s->z.next_in = s->in;
        s->z.avail_in = (unsigned)n;
    }
    if (s->z.avail_in == 0) {
        s->ended = true;
        return GA_OK;
    }
    if (s->z.next_in[0] != 0x1f)
        return stream_fail(s, e, "bytes after the end of the gzip data, expected none");
    return inflateReset(&s->z) == Z_OK ? GA_OK : stream_fail(s, e, "damaged gzip data");
}

static int fill_zipped(stream *s, ga_err *e) {
    s->z.next_out = s->out;
    s->z.avail_out = CHUNK;
    while (s->z.avail_out == CHUNK && !s->ended) {
        if (s->z.avail_in == 0) {
            int n = read_some(s, s->in, e);
            GA_TRY(n);
            if (n == 0)
                return stream_fail(s, e, "gzip data ends early: the file is cut off or empty");
            s->z.next_in = s->in;
            s->z.avail_in = (unsigned)n;
        }
        int rc = inflate(&s->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            GA_TRY(member_end(s, e));
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return ga_fail(e, GA_INPUT, "%s: damaged or no gzip data (%s)", s->path,
                           s->z.msg ? s->z.msg : "zlib");
    }
    s->have = CHUNK - s->z.avail_out;
    return GA_OK;
}

/* Next byte, END after the last one, or a negative status. */
static int next_byte(stream *s, ga_err *e) {
    if (s->at == s->have) {
        s->at = s->have = 0;
        if (s->zipped) {
            if (!s->ended) GA_TRY(fill_zipped(s, e));
        } else {
            int n = read_some(s, s->out, e);
            GA_TRY(n);
            s->have = (size_t)n;
        }
        if (s->have == 0) return END;
    }
    return s->out[s->at++];
}

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
        char text[CELL_MAX + 64];
        snprintf(text, sizeof text, "'%s', expected a finite decimal number", w->cell);
        return refuse(w, text);
    }
    w->length = 0;
    return w->take(w->arg, w->line, w->column, value, w->e);
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

/* Calls take for every cell; returns the number of lines. */
static int64_t walk_cells(walk *w) {
    int64_t limit = w->columns ? w->columns : GA_CSV_COLUMNS_MAX;
    for (;;) {
        int byte = next_byte(w->s, w->e);
        GA_TRY(byte);
        if (byte == END && w->column == 1 && w->length == 0) return w->line - 1;
        if (byte == ',' || byte == '\n' || byte == END) {
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

static int64_t walk_file(const char *path, int64_t columns,
                         int (*take)(void *, int64_t, int64_t, double, ga_err *), void *arg,
                         int64_t *width, ga_err *e) {
    stream s;
    GA_TRY(stream_open(&s, path, e));
    walk w = {
        .s = &s, .line = 1, .column = 1, .columns = columns, .take = take, .arg = arg, .e = e};
    int64_t rows = walk_cells(&w);
    stream_close(&s);
    *width = w.columns;
    return rows;
}

/* The last value of a line is known to be the last only when the next line starts. */
typedef struct {
    int64_t line;
    double value;
    ga_csv_shape *shape;
} scan;

static void scan_last(scan *c) {
    ga_csv_shape *shape = c->shape;
    if (c->line == 1 || c->value < shape->last_min) shape->last_min = c->value;
    if (c->line == 1 || c->value > shape->last_max) shape->last_max = c->value;
    if (c->value != floor(c->value)) shape->last_integer = false;
}

static int scan_take(void *arg, int64_t line, int64_t column, double value, ga_err *e) {
    scan *c = arg;
    (void)e;
    if (column == 1 && line > 1) scan_last(c);
    c->line = line;
    c->value = value;
    return GA_OK;
}

int ga_csv_scan(const char *path, ga_csv_shape *out, ga_err *e) {
    *out = (ga_csv_shape){.last_integer = true};
    scan c = {.shape = out};
    int64_t rows = walk_file(path, 0, scan_take, &c, &out->columns, e);
    if (rows < 0) return (int)rows;
    if (rows == 0) return ga_fail(e, GA_INPUT, "%s: no rows found, at least one expected", path);
    scan_last(&c);
    out->rows = rows;
    return GA_OK;
}

typedef struct {
    const char *path;
    const ga_csv_spec *spec;
    void *input;
    int32_t *target;
    int64_t width; /* inputs per row */
} reading;

static int take_target(reading *r, int64_t line, int64_t column, double value, ga_err *e) {
    if (!(value >= 0 && value < (double)r->spec->classes && value == floor(value)))
        return ga_fail(
            e, GA_INPUT,
            "%s:%lld: column %lld: target %.9g of sample %lld, expected a whole number in 0..%lld",
            r->path, (long long)line, (long long)column, value, (long long)line,
            (long long)r->spec->classes - 1);
    r->target[line - 1] = (int32_t)value;
    return GA_OK;
}

static int read_take(void *arg, int64_t line, int64_t column, double value, ga_err *e) {
    reading *r = arg;
    const ga_csv_spec *spec = r->spec;
    int64_t at = column - 1;
    if (line > spec->rows) return GA_OK; /* only counted, for the message */
    if (at == spec->target) return take_target(r, line, column, value, e);
    if (spec->target >= 0 && at > spec->target) at--;
    value *= spec->scale;
    if (fabs(value) > (spec->dtype == GA_F32 ? FLT_MAX : DBL_MAX))
        return ga_fail(e, GA_INPUT, "%s:%lld: column %lld: %.9g is too large for %s", r->path,
                       (long long)line, (long long)column, value, ga_dtype_name(spec->dtype));
    ga_set(r->input, spec->dtype, (line - 1) * r->width + at, value);
    return GA_OK;
}

int ga_csv_read(const char *path, const ga_csv_spec *s, void *input, int32_t *target, ga_err *e) {
    reading r = {path, s, input, target, s->columns - (s->target >= 0)};
    int64_t columns, rows = walk_file(path, s->columns, read_take, &r, &columns, e);
    if (rows < 0) return (int)rows;
    if (rows != s->rows)
        return ga_fail(
            e, GA_INPUT,
            "%s: %lld rows found, %lld expected: is it the file the program was made for?", path,
            (long long)rows, (long long)s->rows);
    return GA_OK;
}
