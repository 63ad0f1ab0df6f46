/* csv_source.c: CSV files as a dataset, either kept in memory as parsed numbers or streamed. */
#include "data/csv.h"

#include "data/paths.h"

#include <string.h>

typedef struct record {
    char *input, *target;
    size_t row_bytes, target_bytes; /* of one row */
} record;

/* Streamed rows: file number `at`, counted from 0, is open. */
typedef struct streamed {
    ga_csv_spec spec;
    ga_paths paths;
    int at;
    bool open;
    ga_csv_rows rows;
} streamed;

static void decode(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    const record *r = s->self;
    (void)draw;
    memcpy(out[0], r->input + (size_t)row * r->row_bytes, r->row_bytes);
    memcpy(out[1], r->target + (size_t)row * r->target_bytes, r->target_bytes);
}

/* Widens the field's range by the targets of file number `part`. */
static void add_target(ga_scan_field *f, const ga_csv_shape *shape, int part) {
    if (f->ids && shape->odd_line) {
        f->ids = false;
        f->odd = shape->odd;
        f->odd_line = shape->odd_line;
        f->odd_part = part;
    }
    if (!f->ids) return;
    ga_scan_id(f, (int64_t)shape->target_min);
    ga_scan_id(f, (int64_t)shape->target_max);
}

int ga_csv_scan_parts(const char *const *path, int parts, const ga_csv_spec *s, ga_scan *out,
                      ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = 2};
    out->field[0] = (ga_scan_field){.name = "input", .rank = 1};
    out->field[1] = (ga_scan_field){.name = "target"};
    ga_scan_ids(&out->field[1]);
    const size_t width = (size_t)ga_csv_inputs(s);
    size_t rows = 0;
    for (int i = 0; i < parts; i++) {
        ga_csv_shape shape;
        GA_TRY(ga_csv_scan(path[i], s, &shape, e));
        add_target(&out->field[1], &shape, i);
        out->count[i] = shape.rows;
        rows += (size_t)shape.rows;
    }
    out->field[0].shape[0] = (int64_t)width;
    out->stream_bytes = ga_padded(sizeof(streamed)) + ga_paths_bytes(parts);
    out->bytes = ga_padded(sizeof(record)) + ga_padded(rows * width * ga_dtype_bytes(s->dtype)) +
                 ga_padded(rows * ga_dtype_bytes(out->field[1].ids ? GA_I32 : s->dtype));
    return GA_OK;
}

static void name_fields(ga_source *out, const ga_csv_spec *s) {
    out->fields = 2;
    out->field[0] = (ga_field){"input", s->dtype, ga_csv_inputs(s)};
    out->field[1] = (ga_field){"target", s->classes ? GA_I32 : s->dtype, 1};
}

int ga_csv_open(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                ga_err *e) {
    const int64_t width = ga_csv_inputs(s);
    int64_t rows = 0;
    for (int i = 0; i < parts; i++) rows += part[i].count;
    record *r = ga_take(a, sizeof *r, 64, e);
    if (!r) return GA_BUG;
    r->row_bytes = (size_t)width * ga_dtype_bytes(s->dtype);
    r->target_bytes = ga_dtype_bytes(s->classes ? GA_I32 : s->dtype);
    r->input = ga_take(a, (size_t)rows * r->row_bytes, 64, e);
    r->target = r->input ? ga_take(a, (size_t)rows * r->target_bytes, 64, e) : NULL;
    if (!r->target) return GA_BUG;
    int64_t first = 0;
    for (int i = 0; i < parts; i++) {
        ga_csv_spec one = *s;
        one.rows = part[i].count;
        GA_TRY(ga_csv_read(part[i].path, &one, r->input + (size_t)first * r->row_bytes,
                           r->target + (size_t)first * r->target_bytes, e));
        first += one.rows;
    }
    *out = (ga_source){.rows = rows, .decode = decode, .self = r};
    name_fields(out, s);
    return GA_OK;
}

/* -- streamed rows ----------------------------------------------------------------------------- */

static void close_stream(void *self) {
    streamed *p = self;
    if (p->open) ga_csv_rows_close(&p->rows);
    p->open = false;
}

static int rewind_stream(void *self, ga_err *e) {
    streamed *p = self;
    (void)e;
    close_stream(p);
    p->at = 0;
    return GA_OK;
}

static int next_stream(void *self, void *const out[], ga_err *e) {
    streamed *p = self;
    while (p->at < p->paths.count) {
        if (!p->open) GA_TRY(ga_csv_rows_open(&p->rows, p->paths.path[p->at], &p->spec, e));
        p->open = true;
        const int code = ga_csv_row(&p->rows, out ? out[0] : NULL, out ? out[1] : NULL, e);
        if (code != 0) return code;
        close_stream(p);
        p->at++;
    }
    return 0;
}

int ga_csv_stream(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                  ga_err *e) {
    streamed *p = ga_take(a, sizeof *p, 64, e);
    if (!p) return GA_BUG;
    p->spec = *s;
    GA_TRY(ga_paths_keep(&p->paths, part, parts, a, e));
    *out = (ga_source){.feed = {rewind_stream, next_stream, close_stream, p}};
    name_fields(out, s);
    return GA_OK;
}
