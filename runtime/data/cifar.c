/* cifar.c: CIFAR-10's binary files: records of a label byte and 3072 bytes, the planes red, green
 * and blue of 32 x 32. */
#include "data/images.h"
#include "data/stream.h"

enum { RECORD = 3073, CLASSES = 10 };

typedef struct labels {
    const char *path;
    int64_t classes;
    ga_scan_field *field; /* filled in; NULL: only check */
} labels;

/* Checks the labels, at offsets 0, RECORD, 2 RECORD, ... */
static int take_labels(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                       ga_err *e) {
    const labels *l = arg;
    for (int64_t record = (first + RECORD - 1) / RECORD; record * RECORD < first + count; record++) {
        int label = bytes[record * RECORD - first];
        if (label >= l->classes)
            return ga_fail(e, GA_INPUT, "%s: label %d of record %lld, expected 0..%lld", l->path,
                           label, (long long)record + 1, (long long)l->classes - 1);
        if (l->field) ga_scan_id(l->field, label, record + 1);
    }
    return GA_OK;
}

static int open_file(ga_stream *s, const char *path, int64_t *rows, ga_err *e) {
    GA_TRY(ga_stream_open(s, path, GA_PLAIN, e));
    *rows = s->bytes / RECORD;
    if (*rows > 0 && s->bytes % RECORD == 0) return GA_OK;
    ga_stream_close(s);
    return ga_fail(e, GA_INPUT,
                   "%s: %lld bytes, expected records of %d: it is cut off, or not a binary CIFAR-10 "
                   "file",
                   path, (long long)s->bytes, RECORD);
}

int ga_cifar_scan(const char *const *images, int parts, ga_dtype real, ga_scan *out, ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = 2};
    out->field[0] = (ga_scan_field){.name = "input", .rank = 3, .shape = {3, 32, 32}};
    out->field[1] = (ga_scan_field){.name = "target"};
    ga_scan_ids(&out->field[1]);
    size_t rows = 0;
    for (int i = 0; i < parts; i++) {
        ga_stream s;
        labels l = {images[i], CLASSES, &out->field[1]};
        l.field->part = i;
        GA_TRY(open_file(&s, images[i], &out->count[i], e));
        int code = ga_stream_walk(&s, s.bytes, "the records", take_labels, &l, e);
        ga_stream_close(&s);
        GA_TRY(code);
        rows += (size_t)out->count[i];
    }
    out->bytes = ga_padded(rows * RECORD) + ga_images_bytes(3, real);
    return GA_OK;
}

/* classes: 0: labels are not checked. */
static int read_file(const ga_part *part, int64_t classes, unsigned char *to, ga_err *e) {
    ga_stream s;
    labels l = {part->path, classes, NULL};
    int64_t rows;
    GA_TRY(open_file(&s, part->path, &rows, e));
    int code;
    if (rows != part->count)
        code = ga_fail(e, GA_INPUT,
                       "%s: %lld records found, %lld expected: is it the file the program was made "
                       "for?",
                       part->path, (long long)rows, (long long)part->count);
    else
        code = ga_stream_read(&s, to, rows * RECORD, "the records", e);
    if (code == GA_OK && classes > 0) code = take_labels(&l, to, rows * RECORD, 0, e);
    ga_stream_close(&s);
    return code;
}

int ga_cifar_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e) {
    int64_t rows = 0;
    for (int i = 0; i < s->parts; i++) rows += s->images[i].count;
    unsigned char *base = ga_take(a, (size_t)rows * RECORD, 64, e), *to = base;
    if (!base) return GA_BUG;
    for (int i = 0; i < s->parts; i++, to += s->images[i - 1].count * RECORD)
        GA_TRY(read_file(&s->images[i], s->classes, to, e));
    const ga_image_bytes all = {base + 1, base, rows, RECORD, RECORD};
    return ga_images_source(out, s, &all, a, e);
}

int ga_cifar_predicted(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e) {
    ga_part part = s->images[0];
    ga_stream stream;
    GA_TRY(open_file(&stream, part.path, &part.count, e));
    ga_stream_close(&stream);
    const size_t bytes = (size_t)part.count * RECORD;
    GA_TRY(ga_arena_open_for(a, "rows to predict", ga_padded(bytes) + ga_images_bytes(s->channels, s->real), e));
    unsigned char *base = ga_take(a, bytes, 64, e);
    if (!base) return GA_BUG;
    GA_TRY(read_file(&part, 0, base, e));
    const ga_image_bytes all = {base + 1, base, part.count, RECORD, RECORD};
    return ga_images_source(out, s, &all, a, e);
}
