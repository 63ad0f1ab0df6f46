/* csv_source.c: CSV files as a dataset, either kept in memory as parsed numbers or streamed. */
#include "data/csv.h"

#include "data/paths.h"

#include <string.h>

typedef struct record {
    int fields;
    char *base[GA_FIELDS];
    size_t bytes[GA_FIELDS]; /* of one row */
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
    for (int f = 0; f < r->fields; f++)
        memcpy(out[f], r->base[f] + (size_t)row * r->bytes[f], r->bytes[f]);
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
    f->part = part;
    ga_scan_id(f, (int64_t)shape->target_min, shape->target_min_line);
    ga_scan_id(f, (int64_t)shape->target_max, shape->target_max_line);
}

int ga_csv_scan_parts(const char *const *path, int parts, const ga_csv_spec *s, ga_scan *out,
                      ga_err *e) {
    const int fields = ga_csv_fields(s);
    *out = (ga_scan){.parts = parts, .fields = fields};
    out->field[0] = (ga_scan_field){.name = "input", .rank = 1, .shape = {ga_csv_inputs(s)}};
    for (int f = 1; f < fields; f++) ga_scan_ids(&out->field[f]);
    ga_scan_field *target = &out->field[fields - 1];
    memcpy(target->name, "target", sizeof "target");
    target->ids = !s->real_target;
    size_t rows = 0;
    for (int i = 0; i < parts; i++) {
        ga_csv_shape shape;
        GA_TRY(ga_csv_scan(path[i], s, &shape, e));
        add_target(target, &shape, i);
        out->count[i] = shape.rows;
        rows += (size_t)shape.rows;
    }
    ga_csv_spec found = *s;
    found.classes = target->ids;
    out->stream_bytes = ga_padded(sizeof(streamed)) + ga_paths_bytes(parts);
    out->bytes = ga_padded(sizeof(record));
    for (int f = 0; f < fields; f++) out->bytes += ga_padded(rows * ga_csv_bytes(&found, f));
    return GA_OK;
}

static void name_fields(ga_source *out, const ga_csv_spec *s) {
    out->fields = ga_csv_fields(s);
    out->field[0] = (ga_field){"input", s->dtype, ga_csv_inputs(s)};
    for (int64_t i = 0; s->column && i < s->columns; i++)
        if (s->column[i].field) out->field[s->column[i].field] = (ga_field){s->column[i].name, GA_I32, 1};
    out->field[out->fields - 1] = (ga_field){"target", s->classes ? GA_I32 : s->dtype, 1};
}

int ga_csv_open(ga_source *out, const ga_part *part, int parts, const ga_csv_spec *s, ga_arena *a,
                ga_err *e) {
    void *to[GA_FIELDS];
    size_t rows = 0;
    for (int i = 0; i < parts; i++) rows += (size_t)part[i].count;
    record *r = ga_take(a, sizeof *r, 64, e);
    if (!r) return GA_BUG;
    *out = (ga_source){.rows = (int64_t)rows, .decode = decode, .self = r};
    name_fields(out, s);
    r->fields = out->fields;
    for (int f = 0; f < r->fields; f++) {
        r->bytes[f] = ga_csv_bytes(s, f);
        to[f] = r->base[f] = ga_take(a, rows * r->bytes[f], 64, e);
        if (!to[f]) return GA_BUG;
    }
    for (int i = 0; i < parts; i++) {
        ga_csv_spec one = *s;
        one.rows = part[i].count;
        GA_TRY(ga_csv_read(part[i].path, &one, to, e));
        for (int f = 0; f < r->fields; f++)
            to[f] = (char *)to[f] + (size_t)one.rows * r->bytes[f];
    }
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
        const int code = ga_csv_row(&p->rows, out, e);
        if (code != 0) return code;
        if (p->rows.rows == 0) return ga_csv_refuse_empty(p->paths.path[p->at], e);
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

/* -- rows to predict --------------------------------------------------------------------------- */

/* How many columns the first line of a file has. */
static int64_t count_columns(const char *path, ga_err *e) {
    ga_csv_cells c;
    GA_TRY(ga_csv_cells_open(&c, path, e));
    int code;
    do code = ga_csv_cell(&c, e);
    while (code > 0 && c.more);
    ga_csv_cells_close(&c);
    GA_TRY(code);
    return code == 0 ? ga_csv_refuse_empty(path, e) : c.column;
}

/* Column `at` of a file with all columns, or of one without the target, which is never an input. */
static ga_csv_column column_to_predict(const ga_csv_spec *s, int64_t at) {
    ga_csv_column c = {.input = at - (at > s->target)};
    if (s->column) c = s->column[at];
    if (at != s->target) return c;
    return (ga_csv_column){.name = c.name, .input = -1};
}

int ga_csv_predicted(ga_source *out, const char *path, const ga_csv_spec *s, ga_arena *a, ga_err *e) {
    const int64_t found = count_columns(path, e);
    if (found < 0) return (int)found;
    if (found != s->columns && found != s->columns - 1)
        return ga_fail(e, GA_INPUT, "%s: %lld columns found, expected %lld, or %lld without the target", path,
                       (long long)found, (long long)s->columns, (long long)s->columns - 1);
    const size_t table = (size_t)found * sizeof(ga_csv_column);
    GA_TRY(ga_arena_open_for(a, "rows to predict", ga_padded(sizeof(streamed)) + ga_paths_bytes(1) + table, e));
    const ga_part part = {.path = path};
    GA_TRY(ga_csv_stream(out, &part, 1, s, a, e));
    streamed *p = out->feed.self;
    ga_csv_column *column = ga_take(a, table, 64, e);
    if (!column) return GA_BUG;
    for (int64_t i = 0; i < found; i++) column[i] = column_to_predict(s, i + (found < s->columns && i >= s->target));
    p->spec.columns = p->spec.target = found;
    p->spec.column = column;
    return out->feed.rewind(p, e);
}
