/* Images: values of IDX and CIFAR-10 files, tables of refusals, gzip cut at every byte, crops and
 * flips against their definition. */
#include "scratch.h"

#include "data/images.h"
#include "base/rng.h"

#include <math.h>
#include <zlib.h>

/* 3 images of 2 x 3, and their labels. */
static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0,  2,  0,  0,  0,  3, 0,
                                       1, 2, 3, 4, 5, 250, 251, 252, 253, 254, 255, 9, 8, 7, 6, 5, 4};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1};
static const double zero[16] = {0};
static const double one[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

typedef struct {
    char image[160], label[160];
} pair;

static pair paths_of(scratch *s) {
    pair p;
    snprintf(p.image, sizeof p.image, "%s/images", s->path);
    snprintf(p.label, sizeof p.label, "%s/labels", s->path);
    return p;
}

static int scan_pair(const pair *p, ga_dtype real, ga_scan *out, ga_err *e) {
    const char *image[] = {p->image}, *label[] = {p->label};
    return ga_idx_scan(image, label, 1, real, out, e);
}

static int open_pair(const pair *p, ga_source *out, ga_arena *a, ga_err *e) {
    const ga_part image = {p->image, 3}, label = {p->label, 3};
    const ga_images_spec spec = {.images = &image, .labels = &label, .parts = 1, .channels = 1,
                                 .height = 2, .width = 3, .classes = 3, .scale = 1, .mean = zero,
                                 .std = one, .real = GA_F32};
    return ga_idx_open(out, &spec, a, e);
}

static void idx_values(void **state) {
    const pair p = paths_of(*state);
    put_file(p.image, images, sizeof images);
    put_file(p.label, labels, sizeof labels);
    ga_scan scan;
    ga_err e;
    assert_int_equal(scan_pair(&p, GA_F64, &scan, &e), 0);
    assert_true(scan.parts == 1 && scan.count[0] == 3 && scan.fields == 2);
    assert_true(scan.field[0].rank == 3 && scan.field[0].shape[0] == 1);
    assert_true(scan.field[0].shape[1] == 2 && scan.field[0].shape[2] == 3 && !scan.field[0].ids);
    assert_true(scan.field[1].ids && scan.field[1].low == 0 && scan.field[1].high == 2);
    const ga_part twice[] = {{p.image, 3}, {p.image, 3}}, those[] = {{p.label, 3}, {p.label, 3}};
    const double mean = 0.25, std = 0.5;
    const ga_images_spec spec = {.images = twice, .labels = those, .parts = 2, .channels = 1,
                                 .height = 2, .width = 3, .classes = 3, .scale = 1 / 255.0,
                                 .mean = &mean, .std = &std, .real = GA_F64};
    const char *image[] = {p.image, p.image}, *label[] = {p.label, p.label};
    assert_int_equal(ga_idx_scan(image, label, 2, GA_F64, &scan, &e), 0);
    ga_arena a = open_arena(65536);
    ga_source source;
    assert_int_equal(ga_idx_open(&source, &spec, &a, &e), 0);
    assert_int_equal(ga_padded(a.used), scan.bytes);
    assert_true(source.rows == 6 && source.fields == 2);
    assert_true(source.field[0].width == 6 && source.field[0].type == GA_F64);
    assert_true(source.field[1].width == 1 && source.field[1].type == GA_I32);
    double input[6];
    int32_t target;
    void *const out[] = {input, &target};
    for (int row = 0; row < 6; row++) {
        source.decode(&source, row, NULL, out);
        assert_int_equal(target, labels[8 + row % 3]);
        for (int i = 0; i < 6; i++)
            assert_true(input[i] == (images[16 + row % 3 * 6 + i] * (1 / 255.0) - 0.25) / 0.5);
    }
    ga_arena_close(&a);
}

/* Scan and open both refuse a file with `byte` at offset `at`, with the message `says`. */
static void idx_refusals(void **state) {
    static const struct {
        bool label; /* the file of labels is the changed one */
        int at, byte, bytes; /* at < 0: no change; bytes: length kept, 0: all, -1: one more */
        const char *says;
    } table[] = {
        {false, 0, 0x50, 0, "not an IDX file: it begins with 50 00 08 03, expected 00 00 08 03"},
        {false, 2, 0x0d, 0, "IDX type 0d, expected 08 (unsigned bytes)"},
        {false, 3, 1, 0, "IDX of 1 axes, expected 3 or 4 (images)"},
        {false, 3, 9, 0, "IDX of 9 axes, expected 3 or 4 (images)"},
        {true, 3, 3, 0, "IDX of 3 axes, expected 1 (labels)"},
        {false, 4, 1, 0, "ends after 18 of the 100663314 bytes of the images: it is cut off"},
        {false, 7, 4, 0, "ends after 18 of the 24 bytes"},
        {false, 7, 0, 0, "empty IDX file (axis 1 is 0)"},
        {false, 15, 0, 0, "empty IDX file (axis 3 is 0)"},
        {false, 8, 255, 0, "images of 4278190082 x 3: expected at most 16384 x 16384"},
        {false, 12, 255, 0, "images of 2 x 4278190083: expected at most"},
        {false, -1, 0, 33, "ends after 17 of the 18 bytes of the images"},
        {false, -1, 0, 15, "ends after 3 of the 4 bytes of an extent"},
        {false, -1, 0, 2, "ends after 2 of the 4 bytes of an IDX header"},
        {false, -1, 0, -1, "bytes after the images, expected the end of the file"},
        {true, -1, 0, -1, "bytes after the labels, expected the end of the file"},
        {true, -1, 0, 10, "ends after 2 of the 3 bytes of the labels"},
    };
    const pair p = paths_of(*state);
    ga_arena a = open_arena(1 << 20);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        unsigned char copy[64] = {0};
        const unsigned char *from = table[i].label ? labels : images;
        size_t n = table[i].label ? sizeof labels : sizeof images;
        put_file(p.image, images, sizeof images);
        put_file(p.label, labels, sizeof labels);
        memcpy(copy, from, n);
        if (table[i].at >= 0) copy[table[i].at] = (unsigned char)table[i].byte;
        if (table[i].bytes) n = table[i].bytes < 0 ? n + 1 : (size_t)table[i].bytes;
        put_file(table[i].label ? p.label : p.image, copy, n);
        ga_err e = {0};
        ga_scan scan;
        ga_source source;
        assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, table[i].label ? p.label : p.image);
        a.used = 0;
        assert_int_equal(open_pair(&p, &source, &a, &e), GA_INPUT);
    }
    ga_arena_close(&a);
}

/* Faults visible only in the pair of files, or against the program. */
static void idx_differences(void **state) {
    const pair p = paths_of(*state);
    unsigned char copy[64];
    ga_arena a = open_arena(1 << 20);
    ga_err e = {0};
    ga_scan scan;
    ga_source source;
    put_file(p.image, images, sizeof images);
    memcpy(copy, labels, sizeof labels);
    copy[7] = 2;
    put_file(p.label, copy, sizeof labels - 1);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "/images: 3 images, but ");
    assert_has(e.msg, "/labels has 2 labels: expected as many");
    assert_int_equal(open_pair(&p, &source, &a, &e), GA_INPUT);
    assert_has(e.msg, "/labels: 2 rows of 1 x 1 x 1, expected 3 of 1 x 1 x 1: is it the file the");
    copy[7] = 3;
    copy[10] = 3;
    put_file(p.label, copy, sizeof labels);
    a.used = 0;
    assert_int_equal(open_pair(&p, &source, &a, &e), GA_INPUT);
    assert_has(e.msg, "/labels: label 3 of image 3, expected 0..2");
    put_file(p.label, labels, sizeof labels);
    memcpy(copy, images, sizeof images);
    copy[11] = 3;
    copy[15] = 2;
    put_file(p.image, copy, sizeof images);
    a.used = 0;
    assert_int_equal(open_pair(&p, &source, &a, &e), GA_INPUT);
    assert_has(e.msg, "3 rows of 1 x 3 x 2, expected 3 of 1 x 2 x 3");
    char other[170];
    snprintf(other, sizeof other, "%s2", p.image);
    put_file(other, images, sizeof images);
    const char *image[] = {other, p.image}, *label[] = {p.label, p.label};
    assert_int_equal(ga_idx_scan(image, label, 2, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "/images: images of 1 x 3 x 2, the first file has 1 x 2 x 3");
    unlink(p.image);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "cannot be opened: No such file");
    assert_int_equal(mkfifo(p.image, 0600), 0);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "not a regular file");
    unlink(p.image);
    ga_arena_close(&a);
}

static size_t zip(const void *data, size_t n, unsigned char *out, size_t room) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)data;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

/* gzip is recognized by its content. Every truncation and every flipped bit after its header is refused,
 * except the unused bits after the last block. */
static void idx_zipped(void **state) {
    const pair p = paths_of(*state);
    unsigned char data[256], copy[256];
    size_t n = zip(images, sizeof images, data, sizeof data);
    ga_scan scan;
    ga_err e;
    put_file(p.label, labels, sizeof labels);
    put_file(p.image, data, n);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), 0);
    assert_true(scan.count[0] == 3 && scan.field[0].shape[2] == 3);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(p.image, data, cut);
        if (scan_pair(&p, GA_F32, &scan, &e) != GA_INPUT) fail_msg("cut at %zu of %zu taken", cut, n);
    }
    put_file(p.image, data, n - 3);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "gzip data ends early: the file is cut off");
    for (size_t i = 10; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, data, n);
            copy[i] ^= (unsigned char)(1 << bit);
            put_file(p.image, copy, n);
            if (scan_pair(&p, GA_F32, &scan, &e) != GA_INPUT && i != n - 9)
                fail_msg("flip of byte %zu taken", i);
        }
    memcpy(copy, data, n);
    copy[n - 8] ^= 1;
    put_file(p.image, copy, n);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "incorrect data check");
    memcpy(copy, data, n);
    copy[n] = 'x';
    put_file(p.image, copy, n + 1);
    assert_int_equal(scan_pair(&p, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "bytes after the end of the gzip data");
}

enum { RECORD = 3073 };

static unsigned char pixel(int record, int i) {
    return (unsigned char)(record * 31 + i * 7 + i / 1024);
}

static void put_cifar(const char *path, int first, int records, int label) {
    unsigned char *data = malloc((size_t)records * RECORD + 1);
    for (int r = 0; r < records; r++) {
        data[r * RECORD] = (unsigned char)((first + r + label) % 10);
        for (int i = 0; i < 3072; i++) data[r * RECORD + 1 + i] = pixel(first + r, i);
    }
    put_file(path, data, (size_t)records * RECORD);
    free(data);
}

static const double means[] = {0.4914, 0.4822, 0.4465}, stds[] = {0.2023, 0.1994, 0.2010};

static ga_images_spec cifar_spec(const ga_part *part, int parts) {
    return (ga_images_spec){.images = part, .parts = parts, .channels = 3, .height = 32, .width = 32,
                            .classes = 10, .scale = 1 / 255.0, .mean = means, .std = stds,
                            .real = GA_F32};
}

static void cifar_values(void **state) {
    const pair p = paths_of(*state);
    put_cifar(p.image, 0, 25, 0);
    put_cifar(p.label, 25, 3, 0);
    const char *path[] = {p.image, p.label};
    const ga_part part[] = {{p.image, 25}, {p.label, 3}};
    ga_scan scan;
    ga_err e;
    assert_int_equal(ga_cifar_scan(path, 2, GA_F32, &scan, &e), 0);
    assert_true(scan.count[0] == 25 && scan.count[1] == 3 && scan.field[1].high == 9);
    assert_true(scan.field[0].shape[0] == 3 && scan.field[0].shape[1] == 32);
    ga_arena a = open_arena(1 << 20);
    ga_source source;
    const ga_images_spec spec = cifar_spec(part, 2);
    assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), 0);
    assert_int_equal(ga_padded(a.used), scan.bytes);
    assert_int_equal(source.rows, 28);
    static float input[3072];
    int32_t target;
    void *const out[] = {input, &target};
    for (int row = 0; row < 28; row += 9) {
        source.decode(&source, row, NULL, out);
        assert_int_equal(target, row % 10);
        for (int i = 0; i < 3072; i++) {
            double value = (pixel(row, i) / 255.0 - means[i / 1024]) / stds[i / 1024];
            if (fabsf(input[i] - (float)value) > 1e-6f) fail_msg("row %d, value %d", row, i);
        }
    }
    ga_arena_close(&a);
}

static void cifar_refusals(void **state) {
    const pair p = paths_of(*state);
    const char *path[] = {p.image};
    const ga_part part = {p.image, 25};
    ga_images_spec spec = cifar_spec(&part, 1);
    ga_arena a = open_arena(1 << 20);
    ga_source source;
    ga_scan scan;
    ga_err e = {0};
    size_t n;
    put_cifar(p.image, 0, 25, 0);
    char *data = get_file(p.image, &n);
    for (size_t bytes = n - 1; bytes <= n; bytes++) { /* one byte short, then a label of 10 */
        if (bytes == n) data[23 * RECORD] = 10;
        put_file(p.image, data, bytes);
        const char *says = bytes < n ? ": 76824 bytes, expected records of 3073: it is cut off"
                                     : ": label 10 of record 24, expected 0..9";
        assert_int_equal(ga_cifar_scan(path, 1, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, says);
        a.used = 0;
        assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), GA_INPUT);
        assert_has(e.msg, says);
    }
    data[23 * RECORD] = 0;
    for (int record = 0; record < 25; record++) { /* at any place in a piece that is read */
        char says[64];
        snprintf(says, sizeof says, ": label 99 of record %d, expected 0..9", record + 1);
        const char label = data[record * RECORD];
        data[record * RECORD] = 99;
        put_file(p.image, data, n);
        assert_int_equal(ga_cifar_scan(path, 1, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, says);
        data[record * RECORD] = label;
    }
    free(data);
    put_file(p.image, "", 0);
    assert_int_equal(ga_cifar_scan(path, 1, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "0 bytes, expected records");
    put_cifar(p.image, 0, 24, 0);
    a.used = 0;
    assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "24 records found, 25 expected: is it the file the program was made for?");
    put_cifar(p.image, 0, 25, 0);
    spec.classes = 4;
    a.used = 0;
    assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "label 4 of record 5, expected 0..3");
    a.used = a.bytes - 100; /* the plan is too small */
    spec.classes = 10;
    assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), GA_BUG);
    ga_arena_close(&a);
}

/* The value of element (c, y, x) of a crop by its definition, from the stored bytes. */
static unsigned char cropped(int row, int c, int y, int x, int top, int left, int size, bool flip) {
    int line = top + y, column = left + (flip ? size - 1 - x : x);
    if (line < 0 || line > 31 || column < 0 || column > 31) return 0;
    return pixel(row, c * 1024 + line * 32 + column);
}

static void crops(void **state) {
    const pair p = paths_of(*state);
    const ga_part part = {p.image, 2};
    static const struct {
        int size, padding, middle; /* middle: begin of the crop in evaluation */
    } table[] = {{32, 4, 0}, {24, 0, 4}, {36, 2, -2}, {21, 3, 5}};
    put_cifar(p.image, 0, 2, 0);
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        ga_images_spec spec = cifar_spec(&part, 1);
        const int size = table[k].size, choices = 32 + 2 * table[k].padding - size + 1;
        spec.crop = size;
        spec.padding = table[k].padding;
        spec.flip = true;
        ga_arena a = open_arena(1 << 18);
        ga_source source;
        ga_err e;
        assert_int_equal(ga_cifar_open(&source, &spec, &a, &e), 0);
        assert_int_equal(source.field[0].width, 3 * size * size);
        float *input = malloc((size_t)(3 * size * size) * sizeof *input);
        int32_t target;
        void *const out[] = {input, &target};
        int flips = 0, tops[64] = {0}, lefts[64] = {0};
        for (int n = -1; n < 200; n++) {
            const uint64_t key = ga_draw_key(7, ga_rng_stream("augment"), 0, 3, (uint64_t)n);
            const bool drawn = n >= 0;
            int row = n < 0 ? 1 : n % 2, top = table[k].middle, left = table[k].middle;
            bool flip = drawn && ga_uniform(ga_rng_at(key, 2)) < 0.5;
            if (drawn) {
                top = (int)floor(ga_uniform(ga_rng_at(key, 0)) * choices);
                left = (int)floor(ga_uniform(ga_rng_at(key, 1)) * choices);
                tops[top]++, lefts[left]++, flips += flip;
                top -= table[k].padding, left -= table[k].padding;
            }
            source.decode(&source, row, drawn ? &key : NULL, out);
            assert_int_equal(target, row);
            for (int i = 0; i < 3 * size * size; i++) {
                int c = i / (size * size), y = i / size % size, x = i % size;
                double byte = cropped(row, c, y, x, top, left, size, flip);
                double value = (byte / 255.0 - means[c]) / stds[c];
                if (fabsf(input[i] - (float)value) > 1e-6f)
                    fail_msg("crop %d, draw %d: channel %d, line %d, column %d", size, n, c, y, x);
            }
        }
        assert_in_range(flips, 70, 130);
        for (int i = 0; i < choices; i++) assert_true(tops[i] > 0 && lefts[i] > 0);
        free(input);
        ga_arena_close(&a);
    }
}

int test_images(void);
int test_images(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idx_values),      cmocka_unit_test(idx_refusals),
        cmocka_unit_test(idx_differences), cmocka_unit_test(idx_zipped),
        cmocka_unit_test(cifar_values),    cmocka_unit_test(cifar_refusals),
        cmocka_unit_test(crops)};
    return cmocka_run_group_tests_name("images", tests, scratch_setup, scratch_teardown);
}
