/* csv_cells.c: the bytes of a CSV file as cells, and the numbers in them. */
#include "data/csv.h"

#include <math.h>
#include <string.h>

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

int ga_csv_cells_open(ga_csv_cells *c, const char *path, ga_err *e) {
    const size_t n = strlen(path);
    const bool zipped = n > 3 && strcmp(path + n - 3, ".gz") == 0;
    c->line = 1;
    c->column = 0;
    c->more = false;
    GA_TRY(ga_stream_open(&c->s, path, zipped ? GA_GZIP : GA_PLAIN, e));
    const int code = ga_stream_fill(&c->s, e);
    if (code < 0)
        ga_stream_close(&c->s);
    else if (c->s.have >= 3 && memcmp(c->s.out, "\xef\xbb\xbf", 3) == 0)
        c->s.at = 3; /* the byte order mark of UTF-8 */
    return code;
}

void ga_csv_cells_close(ga_csv_cells *c) {
    ga_stream_close(&c->s);
}

int ga_csv_refuse(const ga_csv_cells *c, const char *found, ga_err *e) {
    return ga_fail(e, GA_INPUT, "%s:%lld: column %lld: found %s", c->s.path, (long long)c->line,
                   (long long)c->column, found);
}

static void keep(ga_csv_cells *c, int byte) {
    if (c->length < GA_CSV_CELL_MAX) c->cell[c->length] = (char)byte;
    c->length++;
}

static bool is_end(int byte) {
    return byte == ',' || byte == '\n' || byte == GA_STREAM_END;
}

/* The next byte, a line end of CR and LF as LF. */
static int next_byte(ga_csv_cells *c, ga_err *e) {
    int byte = ga_stream_byte(&c->s, e);
    if (byte == 0) return ga_csv_refuse(c, "a zero byte; the file is not text in UTF-8", e);
    if (byte != '\r') return byte;
    byte = ga_stream_byte(&c->s, e);
    GA_TRY(byte);
    if (byte == '\n') return byte;
    return ga_csv_refuse(c, "a carriage return without a line feed; lines end in LF or in CR and LF", e);
}

/* Reads a cell behind its opening quote; returns the byte that ends it. */
static int quoted_cell(ga_csv_cells *c, ga_err *e) {
    const int64_t line = c->line;
    for (;;) {
        int byte = next_byte(c, e);
        GA_TRY(byte);
        if (byte == '"') {
            byte = next_byte(c, e);
            GA_TRY(byte);
            if (is_end(byte)) return byte;
            if (byte != '"')
                return ga_csv_refuse(c, "text behind a closing quote; quotes inside are doubled", e);
        } else if (byte == GA_STREAM_END) {
            c->line = line;
            return ga_csv_refuse(c, "a quote that is never closed", e);
        }
        c->line += byte == '\n';
        keep(c, byte);
    }
}

static int plain_cell(ga_csv_cells *c, int byte, ga_err *e) {
    for (; !is_end(byte); byte = next_byte(c, e)) {
        GA_TRY(byte);
        if (byte == '"')
            return ga_csv_refuse(c, "a quote inside a cell; expected it first, and doubled inside", e);
        keep(c, byte);
    }
    return byte;
}

int ga_csv_cell(ga_csv_cells *c, ga_err *e) {
    c->line += !c->more && c->column > 0;
    c->column = c->more ? c->column + 1 : 1;
    c->length = 0;
    int byte = next_byte(c, e);
    GA_TRY(byte);
    if (byte == GA_STREAM_END && !c->more) return 0;
    byte = byte == '"' ? quoted_cell(c, e) : plain_cell(c, byte, e);
    GA_TRY(byte);
    c->cell[c->length < GA_CSV_CELL_MAX ? c->length : GA_CSV_CELL_MAX] = 0;
    c->more = byte == ',';
    return 1;
}
