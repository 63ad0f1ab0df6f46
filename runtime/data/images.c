/* images.c: decodes stored bytes to a row of a batch: normalisation table, crop, flip. */
#include "data/images.h"

#include "base/rng.h"

#include <string.h>

typedef struct record {
    ga_image_bytes bytes;
    int channels, height, width, crop, padding;
    bool flip;
    ga_dtype real;
    const void *table; /* channels x 256 normalised values */
} record;

/* Part of the stored image that becomes the input. */
typedef struct window {
    int top, left; /* may lie outside the image */
    bool flipped;
} window;

size_t ga_images_bytes(int channels, ga_dtype real) {
    return ga_padded(sizeof(record)) + ga_padded((size_t)channels * 256 * ga_dtype_bytes(real));
}

static int drawn(const uint64_t *draw, uint64_t element, int choices) {
    return (int)(ga_uniform(ga_rng_at(*draw, element)) * choices);
}

static window window_of(const record *r, const uint64_t *draw) {
    int rows = r->height + 2 * r->padding - r->crop, columns = r->width + 2 * r->padding - r->crop;
    window w = {0, 0, draw && r->flip && drawn(draw, 2, 2) == 0};
    if (r->crop) {
        w.top = (draw ? drawn(draw, 0, rows + 1) : rows / 2) - r->padding;
        w.left = (draw ? drawn(draw, 1, columns + 1) : columns / 2) - r->padding;
    }
    return w;
}

static int limited(int x, int most) { return x < 0 ? 0 : x > most ? most : x; }

/* Writes the values of n bytes, each `step` from the one before, and returns where the next value goes. Four floats are
 * stored at once: their line is in the cache of the core that has read it, and few stores can wait for lines. */
static inline char *put_values(char *to, const char *table, const unsigned char *from, int step, int n, size_t size) {
    typedef float four __attribute__((vector_size(4 * sizeof(float))));
    int x = 0;
    for (const float *t = (const float *)table; size == sizeof *t && x + 4 <= n; x += 4, to += sizeof(four)) {
        const unsigned char *at = from + x * step;
        const four values = {t[at[0]], t[at[step]], t[at[2 * step]], t[at[3 * step]]};
        memcpy(to, &values, sizeof values);
    }
    for (; x < n; x++, to += size) memcpy(to, table + from[x * step] * size, size);
    return to;
}

/* Writes a line of `count` values from the bytes from[left ...] of a line of `width`; bytes outside it,
 * and all bytes if `from` is NULL, are 0. `size`, bytes of a value, is a constant at each call. */
static inline void put_line(char *to, const char *table, const unsigned char *from, int width,
                            window w, int count, size_t size) {
    const int first = w.flipped ? w.left + count - width : -w.left, step = w.flipped ? -1 : 1;
    const int begin = from ? limited(first, count) : count, end = from ? limited(first + width, count) : count;
    const char *behind = to + (size_t)count * size;
    for (int x = 0; x < begin; x++, to += size) memcpy(to, table, size);
    const int at = w.left + (w.flipped ? count - 1 - begin : begin);
    if (begin < end) to = put_values(to, table, from + at, step, end - begin, size);
    for (; to < behind; to += size) memcpy(to, table, size);
}

static void decode(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    const record *r = s->self;
    const unsigned char *pixels = r->bytes.pixels + row * r->bytes.pixel_step;
    const window w = window_of(r, draw);
    const int height = r->crop ? r->crop : r->height, count = r->crop ? r->crop : r->width;
    char *to = out[0];
    for (int c = 0; c < r->channels; c++, pixels += (size_t)r->height * (size_t)r->width) {
        const char *table = (const char *)r->table + (size_t)c * 256 * ga_dtype_bytes(r->real);
        for (int y = 0; y < height; y++) {
            int line = w.top + y;
            bool inside = line >= 0 && line < r->height;
            const unsigned char *from = inside ? pixels + (size_t)line * (size_t)r->width : NULL;
            if (r->real == GA_F32)
                put_line(to, table, from, r->width, w, count, sizeof(float));
            else
                put_line(to, table, from, r->width, w, count, sizeof(double));
            to += (size_t)count * ga_dtype_bytes(r->real);
        }
    }
    *(int32_t *)out[1] = r->bytes.labels[row * r->bytes.label_step];
}

int ga_images_source(ga_source *out, const ga_images_spec *s, const ga_image_bytes *b, ga_arena *a,
                     ga_err *e) {
    record *r = ga_take(a, sizeof *r, 64, e);
    void *table = r ? ga_take(a, (size_t)s->channels * 256 * ga_dtype_bytes(s->real), 64, e) : NULL;
    if (!table) return GA_BUG;
    for (int c = 0; c < s->channels; c++)
        for (int byte = 0; byte < 256; byte++)
            ga_set(table, s->real, c * 256 + byte, (byte * s->scale - s->mean[c]) / s->std[c]);
    *r = (record){*b,      s->channels, s->height, s->width, s->crop,
                  s->padding, s->flip,     s->real,   table};
    int64_t height = s->crop ? s->crop : s->height, width = s->crop ? s->crop : s->width;
    *out = (ga_source){.rows = b->rows, .fields = 2, .decode = decode, .self = r};
    out->field[0] = (ga_field){"input", s->real, s->channels * height * width};
    out->field[1] = (ga_field){"target", GA_I32, 1};
    return GA_OK;
}
