/* npy.c: NumPy's array files: "\x93NUMPY", version, length of the header, the header, the elements. The
 * header is the text of a Python dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), };
 * it is parsed, never evaluated. */
#include "data/arrays.h"
#include "data/stream.h"

#include <stdio.h>
#include <string.h>

enum { HEADER_MAX = 4096 };

typedef struct header {
    ga_element element;
    int rank; /* including the axis of rows */
    int64_t shape[GA_FIELD_RANK + 1], width;
} header;

/* Position in the text of the header while it is parsed. */
typedef struct cursor {
    const char *path, *at, *end;
    ga_err *e;
} cursor;

static int refuse(const cursor *c, const char *what) {
    return ga_fail(c->e, GA_INPUT, "%s: .npy header: %s", c->path, what);
}

static void skip_blanks(cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n')) c->at++;
}

static bool take(cursor *c, const char *text) {
    size_t n = strlen(text);
    skip_blanks(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0) return false;
    c->at += n;
    return true;
}

/* Parses a quoted text of fewer than `size` bytes. */
static bool take_text(cursor *c, char *out, size_t size) {
    skip_blanks(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    size_t n = 0;
    while (c->at < c->end && *c->at != quote && n + 1 < size) out[n++] = *c->at++;
    out[n] = 0;
    if (c->at == c->end || *c->at != quote) return false;
    c->at++;
    return true;
}

static bool take_number(cursor *c, int64_t *out) {
    skip_blanks(c);
    const char *start = c->at;
    int64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (c->at - start >= 18) return false;
        else value = value * 10 + (*c->at - '0');
    *out = value;
    return c->at > start;
}

static int take_shape(cursor *c, header *h) {
    if (!take(c, "(")) return refuse(c, "the shape is no tuple");
    for (h->rank = 0; !take(c, ")"); h->rank++) {
        if (h->rank > GA_FIELD_RANK) return refuse(c, "more axes than 6");
        if (!take_number(c, &h->shape[h->rank]))
            return refuse(c, "the shape holds something else than whole numbers");
        if (!take(c, ",")) {
            h->rank++;
            if (!take(c, ")")) return refuse(c, "the shape does not end");
            break;
        }
    }
    return GA_OK;
}

static const struct {
    const char *descr;
    ga_element element;
} types[] = {
    {"<f4", GA_ELEMENT_F32}, {"<f8", GA_ELEMENT_F64}, {"<i4", GA_ELEMENT_I32},
    {"<i8", GA_ELEMENT_I64}, {"<u1", GA_ELEMENT_U8},  {"|u1", GA_ELEMENT_U8},
    {"<u2", GA_ELEMENT_U16},
};

static int take_type(cursor *c, header *h) {
    char descr[16];
    if (!take_text(c, descr, sizeof descr))
        return refuse(c, "descr is no type by name: structured arrays are not taken");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].descr, descr) == 0) {
            h->element = types[i].element;
            return GA_OK;
        }
    }
    return ga_fail(c->e, GA_INPUT,
                   "%s: .npy header: type '%s'%s, expected <f4, <f8, <i4, <i8, <u1 or <u2", c->path,
                   descr,
                   descr[0] == '>'   ? " (big-endian)"
                   : strchr(descr, 'O') ? " (Python objects)"
                                        : "");
}

static int take_entry(cursor *c, header *h, unsigned *seen) {
    char key[16];
    if (!take_text(c, key, sizeof key) || !take(c, ":")) return refuse(c, "expected a key");
    unsigned bit = strcmp(key, "descr") == 0           ? 1
                   : strcmp(key, "fortran_order") == 0 ? 2
                   : strcmp(key, "shape") == 0         ? 4
                                                       : 0;
    if (bit == 0 || (*seen & bit) != 0)
        return ga_fail(c->e, GA_INPUT, "%s: .npy header: key '%s'%s", c->path, key,
                       bit ? " twice" : ", expected descr, fortran_order and shape");
    *seen |= bit;
    if (bit == 1) return take_type(c, h);
    if (bit == 4) return take_shape(c, h);
    if (take(c, "False")) return GA_OK;
    return refuse(c, "fortran_order is not False: save the array in C order "
                     "(numpy.ascontiguousarray)");
}

static int parse(cursor *c, header *h) {
    unsigned seen = 0;
    if (!take(c, "{")) return refuse(c, "does not begin with '{'");
    while (!take(c, "}")) {
        GA_TRY(take_entry(c, h, &seen));
        if (take(c, ",")) continue;
        if (!take(c, "}")) return refuse(c, "does not end with '}'");
        break;
    }
    skip_blanks(c);
    if (c->at != c->end) return refuse(c, "text after the closing '}'");
    if (seen != 7) return refuse(c, "descr, fortran_order or shape is missing");
    if (h->rank == 0) return refuse(c, "a single number, expected rows");
    h->width = ga_row_width(h->shape + 1, h->rank - 1);
    if (h->width < 0 || h->shape[0] == 0 || h->shape[0] > ((int64_t)1 << 57) / h->width)
        return refuse(c, "an extent is 0, or all of them give too large a product");
    return GA_OK;
}

static int read_header(ga_stream *s, header *h, ga_err *e) {
    unsigned char start[8], length[4] = {0};
    char text[HEADER_MAX];
    GA_TRY(ga_stream_read(s, start, 8, "a .npy header", e));
    if (memcmp(start, "\x93NUMPY", 6) != 0)
        return ga_fail(e, GA_INPUT, "%s: not a .npy file: it does not begin with 93 'NUMPY'", s->path);
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        return ga_fail(e, GA_INPUT, "%s: .npy version %d.%d, expected 1.0, 2.0 or 3.0", s->path,
                       start[6], start[7]);
    GA_TRY(ga_stream_read(s, length, start[6] == 1 ? 2 : 4, "a .npy header", e));
    int64_t n = (int64_t)length[0] | (int64_t)length[1] << 8 | (int64_t)length[2] << 16 |
                (int64_t)length[3] << 24;
    if (n > HEADER_MAX)
        return ga_fail(e, GA_INPUT, "%s: .npy header of %lld bytes, expected at most %d", s->path,
                       (long long)n, HEADER_MAX);
    GA_TRY(ga_stream_read(s, text, n, "the .npy header", e));
    cursor c = {s->path, text, text + n, e};
    return parse(&c, h);
}

static int open_file(ga_stream *s, const char *path, header *h, ga_err *e) {
    GA_TRY(ga_stream_open(s, path, GA_PLAIN, e));
    int code = read_header(s, h, e);
    if (code < 0) ga_stream_close(s);
    return code;
}

static int scan_part(const char *path, int field, int part, ga_dtype real, ga_scan *out,
                     ga_err *e) {
    ga_stream s;
    header h = {0};
    ga_scan_field *f = &out->field[field];
    GA_TRY(open_file(&s, path, &h, e));
    const bool whole = ga_element_whole(h.element);
    ga_array_field all = {.element = h.element, .ids = whole, .low = INT32_MIN, .high = INT32_MAX};
    ga_array_part p = {path, h.width, &all, real, f};
    const int64_t *shape = h.shape + 1;
    size_t shape_bytes = (size_t)(h.rank - 1) * sizeof *shape;
    int code = GA_OK;
    if (part == 0) {
        *f = (ga_scan_field){.rank = h.rank - 1, .element = (int)h.element};
        if (whole) ga_scan_ids(f);
        memcpy(f->shape, shape, shape_bytes);
        snprintf(f->name, sizeof f->name, "%s", field ? "target" : "input");
    }
    f->part = part;
    if (f->rank != h.rank - 1 || memcmp(f->shape, shape, shape_bytes) != 0 ||
        f->element != (int)h.element)
        code = ga_fail(e, GA_INPUT, "%s: another type or another shape of a row than the first file",
                       path);
    if (field == 0) out->count[part] = h.shape[0];
    if (code == GA_OK && h.shape[0] != out->count[part])
        code = ga_fail(e, GA_INPUT, "%s: %lld rows, the input has %lld: expected as many", path,
                       (long long)h.shape[0], (long long)out->count[part]);
    int64_t bytes = h.shape[0] * h.width * ga_element_bytes(h.element);
    if (code == GA_OK) code = ga_stream_walk(&s, bytes, "the array", ga_array_take, &p, e);
    if (code == GA_OK) code = ga_stream_expect_end(&s, "the array", e);
    ga_stream_close(&s);
    return code;
}

int ga_npy_scan(const char *const *path, int fields, int parts, ga_dtype real, ga_scan *out,
                ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = fields};
    for (int f = 0; f < fields; f++)
        for (int i = 0; i < parts; i++)
            GA_TRY(scan_part(path[f * parts + i], f, i, real, out, e));
    out->bytes = ga_arrays_bytes(out);
    return GA_OK;
}

static int read_part(const ga_part *part, const ga_arrays_spec *spec, int field, unsigned char *to,
                     int64_t *bytes, ga_err *e) {
    ga_stream s;
    header h = {0};
    const ga_array_field *f = &spec->field[field];
    GA_TRY(open_file(&s, part->path, &h, e));
    ga_array_part p = {part->path, h.width, f, spec->real, NULL};
    *bytes = h.shape[0] * h.width * ga_element_bytes(h.element);
    int code;
    if (h.element != f->element || h.rank - 1 != f->rank || h.shape[0] != part->count ||
        memcmp(f->shape, h.shape + 1, (size_t)f->rank * sizeof *f->shape) != 0)
        code = ga_fail(e, GA_INPUT,
                       "%s: %lld rows of %lld %s, expected %lld of %lld %s, of the same shape: is it "
                       "the file the program was made for?",
                       part->path, (long long)h.shape[0], (long long)h.width,
                       ga_element_name(h.element), (long long)part->count,
                       (long long)ga_row_width(f->shape, f->rank), ga_element_name(f->element));
    else
        code = ga_stream_read(&s, to, *bytes, "the array", e);
    if (code == GA_OK) code = ga_stream_expect_end(&s, "the array", e);
    if (code == GA_OK) code = ga_array_take(&p, to, *bytes, 0, e);
    ga_stream_close(&s);
    return code;
}

int ga_npy_open(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e) {
    unsigned char *base[GA_FIELDS];
    GA_TRY(ga_arrays_source(out, s, base, a, e));
    for (int f = 0; f < s->fields; f++)
        for (int i = 0; i < s->parts; i++) {
            int64_t bytes;
            GA_TRY(read_part(&s->part[f * s->parts + i], s, f, base[f], &bytes, e));
            base[f] += bytes;
        }
    return GA_OK;
}

int ga_npy_predicted(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e) {
    unsigned char *base[GA_FIELDS];
    ga_part part = s->part[0];
    ga_stream stream;
    header h;
    int64_t bytes;
    GA_TRY(open_file(&stream, part.path, &h, e));
    ga_stream_close(&stream);
    part.count = h.shape[0];
    GA_TRY(ga_arrays_predicted(out, s, part.count, base, a, e));
    return read_part(&part, s, 0, base[0], &bytes, e);
}
