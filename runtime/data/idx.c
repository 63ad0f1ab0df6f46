/* idx.c: IDX files: two zero bytes, the type (08: unsigned bytes), the number of axes, the extent of each
 * as a big-endian u32, then the bytes. */
#include "data/images.h"
#include "data/stream.h"

#include <stdio.h>

enum { AXES = 4 };

typedef struct header {
    int axes;
    int64_t extent[AXES], row; /* bytes of one row */
} header;

/* Reads the header of a file with `least` to `most` axes. */
static int read_header(ga_stream *s, int least, int most, header *h, ga_err *e) {
    unsigned char start[4], extent[4];
    GA_TRY(ga_stream_read(s, start, 4, "an IDX header", e));
    if (start[0] != 0 || start[1] != 0)
        return ga_fail(e, GA_INPUT,
                       "%s: not an IDX file: it begins with %02x %02x %02x %02x, expected 00 00 08 %02x",
                       s->path, start[0], start[1], start[2], start[3], (unsigned)least);
    if (start[2] != 8)
        return ga_fail(e, GA_INPUT, "%s: IDX type %02x, expected 08 (unsigned bytes)", s->path,
                       start[2]);
    if (start[3] < least || start[3] > most)
        return ga_fail(e, GA_INPUT, "%s: IDX of %d axes, expected %d%s (%s)", s->path, start[3],
                       least, least < most ? " or 4" : "", least == 1 ? "labels" : "images");
    *h = (header){.axes = start[3], .row = 1};
    for (int i = 0; i < h->axes; i++) {
        GA_TRY(ga_stream_read(s, extent, 4, "an extent", e));
        h->extent[i] = (int64_t)extent[0] << 24 | extent[1] << 16 | extent[2] << 8 | extent[3];
        if (h->extent[i] == 0)
            return ga_fail(e, GA_INPUT, "%s: empty IDX file (axis %d is 0)", s->path,
                           i + 1);
        if (i > 0 && !ga_product(h->row, h->extent[i], &h->row)) h->row = 0;
    }
    int64_t all;
    bool large = h->axes > 1 && (h->row == 0 || h->extent[h->axes - 1] > GA_SIDE ||
                                 h->extent[h->axes - 2] > GA_SIDE ||
                                 (h->axes == 4 && h->extent[1] > GA_CHANNELS));
    if (large || !ga_product(h->extent[0], h->row, &all))
        return ga_fail(e, GA_INPUT,
                       "%s: images of %lld x %lld: expected at most %d x %d, and %d channels",
                       s->path, (long long)h->extent[h->axes - 2], (long long)h->extent[h->axes - 1],
                       GA_SIDE, GA_SIDE, GA_CHANNELS);
    return GA_OK;
}

static int open_file(ga_stream *s, const char *path, int least, int most, header *h, ga_err *e) {
    GA_TRY(ga_stream_open(s, path, GA_BY_CONTENT, e));
    int code = read_header(s, least, most, h, e);
    if (code < 0) ga_stream_close(s);
    return code;
}

static int check_pair(const char *images, int64_t rows, const char *labels, int64_t count,
                      ga_err *e) {
    if (rows == count) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: %lld images, but %.200s has %lld labels: expected as many",
                   images, (long long)rows, labels, (long long)count);
}

static int scan_label(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                      ga_err *e) {
    (void)e;
    for (int64_t i = 0; i < count; i++) ga_scan_id(arg, bytes[i], first + i + 1);
    return GA_OK;
}

static int scan_file(const char *path, int least, int most, ga_take_bytes take, void *arg,
                     header *h, ga_err *e) {
    ga_stream s;
    GA_TRY(open_file(&s, path, least, most, h, e));
    const char *what = least == 1 ? "the labels" : "the images";
    int code = ga_stream_walk(&s, h->extent[0] * h->row, what, take, arg, e);
    if (code == GA_OK) code = ga_stream_expect_end(&s, what, e);
    ga_stream_close(&s);
    return code;
}

/* The shape of an image of h as (channels, height, width). */
static void image_shape(const header *h, int64_t shape[3]) {
    shape[0] = h->axes == 4 ? h->extent[1] : 1;
    shape[1] = h->extent[h->axes - 2];
    shape[2] = h->extent[h->axes - 1];
}

static int scan_pair(const char *images, const char *labels, int part, ga_scan *out, ga_err *e) {
    header h, l;
    int64_t shape[3], *known = out->field[0].shape;
    GA_TRY(scan_file(images, 3, 4, NULL, NULL, &h, e));
    out->field[1].part = part;
    GA_TRY(scan_file(labels, 1, 1, scan_label, &out->field[1], &l, e));
    GA_TRY(check_pair(images, h.extent[0], labels, l.extent[0], e));
    image_shape(&h, shape);
    for (int i = 0; i < 3; i++) {
        if (part == 0) known[i] = shape[i];
        if (known[i] != shape[i])
            return ga_fail(e, GA_INPUT,
                           "%s: images of %lld x %lld x %lld, the first file has %lld x %lld x %lld",
                           images, (long long)shape[0], (long long)shape[1], (long long)shape[2],
                           (long long)known[0], (long long)known[1], (long long)known[2]);
    }
    out->count[part] = h.extent[0];
    return GA_OK;
}

int ga_idx_scan(const char *const *images, const char *const *labels, int parts, ga_dtype real,
                ga_scan *out, ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = 2};
    out->field[0] = (ga_scan_field){.name = "input", .rank = 3};
    out->field[1] = (ga_scan_field){.name = "target"};
    ga_scan_ids(&out->field[1]);
    const int64_t *shape = out->field[0].shape;
    size_t rows = 0;
    for (int i = 0; i < parts; i++) {
        GA_TRY(scan_pair(images[i], labels[i], i, out, e));
        rows += (size_t)out->count[i];
    }
    out->bytes = ga_padded(rows * (size_t)(shape[0] * shape[1] * shape[2])) + ga_padded(rows) +
                 ga_images_bytes((int)shape[0], real);
    return GA_OK;
}

/* Reads the rows of one file to `to`; refuses a file of another shape or number of rows. */
static int read_file(const ga_part *part, int least, int most, const int64_t shape[3],
                     unsigned char *to, ga_err *e) {
    ga_stream s;
    header h;
    GA_TRY(open_file(&s, part->path, least, most, &h, e));
    const char *what = least == 1 ? "the labels" : "the images";
    int64_t found[3] = {1, 1, 1};
    if (least > 1) image_shape(&h, found);
    int code;
    if (h.extent[0] != part->count || found[0] != shape[0] || found[1] != shape[1] ||
        found[2] != shape[2])
        code = ga_fail(e, GA_INPUT,
                       "%s: %lld rows of %lld x %lld x %lld, expected %lld of %lld x %lld x %lld: is "
                       "it the file the program was made for?",
                       part->path, (long long)h.extent[0], (long long)found[0], (long long)found[1],
                       (long long)found[2], (long long)part->count, (long long)shape[0],
                       (long long)shape[1], (long long)shape[2]);
    else
        code = ga_stream_read(&s, to, h.extent[0] * h.row, what, e);
    if (code == GA_OK) code = ga_stream_expect_end(&s, what, e);
    ga_stream_close(&s);
    return code;
}

static int check_labels(const ga_part *part, const unsigned char *labels, int64_t classes,
                        ga_err *e) {
    for (int64_t i = 0; i < part->count; i++)
        if (labels[i] >= classes)
            return ga_fail(e, GA_INPUT, "%s: label %d of image %lld, expected 0..%lld", part->path,
                           labels[i], (long long)i + 1, (long long)classes - 1);
    return GA_OK;
}

int ga_idx_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e) {
    const int64_t shape[3] = {s->channels, s->height, s->width}, one[3] = {1, 1, 1};
    const int64_t size = shape[0] * shape[1] * shape[2];
    int64_t rows = 0;
    for (int i = 0; i < s->parts; i++) {
        GA_TRY(check_pair(s->images[i].path, s->images[i].count, s->labels[i].path,
                          s->labels[i].count, e));
        rows += s->images[i].count;
    }
    unsigned char *pixels = ga_take(a, (size_t)(rows * size), 64, e);
    unsigned char *labels = pixels ? ga_take(a, (size_t)rows, 64, e) : NULL;
    if (!labels) return GA_BUG;
    const ga_image_bytes all = {pixels, labels, rows, size, 1};
    for (int i = 0; i < s->parts; i++) {
        GA_TRY(read_file(&s->images[i], 3, 4, shape, pixels, e));
        GA_TRY(read_file(&s->labels[i], 1, 1, one, labels, e));
        GA_TRY(check_labels(&s->labels[i], labels, s->classes, e));
        pixels += s->images[i].count * size;
        labels += s->images[i].count;
    }
    return ga_images_source(out, s, &all, a, e);
}

int ga_idx_predicted(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e) {
    const int64_t shape[3] = {s->channels, s->height, s->width}, size = shape[0] * shape[1] * shape[2];
    ga_part part = s->images[0];
    ga_stream stream;
    header h;
    GA_TRY(open_file(&stream, part.path, 3, 4, &h, e));
    ga_stream_close(&stream);
    part.count = h.extent[0];
    GA_TRY(ga_arena_open_for(a, "rows to predict", ga_padded((size_t)(part.count * h.row)) + 64 +
                             ga_images_bytes(s->channels, s->real), e));
    unsigned char *pixels = ga_take(a, (size_t)(part.count * h.row), 64, e);
    unsigned char *label = pixels ? ga_take(a, 1, 64, e) : NULL; /* of all images */
    if (!label) return GA_BUG;
    GA_TRY(read_file(&part, 3, 4, shape, pixels, e));
    const ga_image_bytes all = {pixels, label, part.count, size, 0};
    return ga_images_source(out, s, &all, a, e);
}
