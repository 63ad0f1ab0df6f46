/* Damaged files: thousands of mutations of a valid file of each format. A reader refuses a file with its
 * path, or accepts it. A file that a scan accepts can be opened with exactly the bytes that the scan says. */
#include "scratch.h"

#include "data/arrays.h"
#include "data/csv.h"
#include "data/images.h"
#include "base/rng.h"
#include "data/windows.h"

enum { MUTATIONS = 1500, ROOM = 8192 };

typedef struct {
    unsigned char bytes[ROOM];
    size_t n;
} content;

static void append(content *c, const void *data, size_t n) {
    memcpy(c->bytes + c->n, data, n);
    c->n += n;
}

static void make_csv(content *c) {
    append(c, "1,2.5,0\n-3,4e-1,2\n.5,6.,1\n", 26);
}

static void make_idx(content *c) {
    append(c, "\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\3abcdefghijklmnopqr", 34);
}

static void make_cifar(content *c) {
    for (int i = 0; i < 2 * 3073; i++) c->bytes[c->n++] = (unsigned char)(i % 3073 ? i * 7 : i / 3073);
}

static void make_text(content *c) {
    append(c, "to be, or not to be", 19);
}

static void make_tokens(content *c) {
    append(c, "\x88\xd8\x34\x01\1\0\0\0\3\0\0\0", 12); /* 20240520, version 1, 3 tokens */
    c->n = 1024;
    append(c, "\1\0\2\0\3\0", 6);
}

static void make_npy(content *c) {
    static const char header[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 1), }\n";
    append(c, "\x93NUMPY\1\0\x3c\0", 10);
    append(c, header, sizeof header - 1);
    append(c, "\1\0\0\0\2\0\0\0\3\0\0\0", 12);
}

static void make_tensors(content *c) {
    static const char header[] = "{\"x\":{\"dtype\":\"I16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
                                 "\"y\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}";
    append(c, "\0\0\0\0\0\0\0\0", 8);
    c->bytes[0] = sizeof header - 1;
    append(c, header, sizeof header - 1);
    append(c, "\1\0\2\0\0\x3c\0\x40", 8);
}

static const char *label_path;

static int scan_idx(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_idx_scan(path, &label_path, 1, GA_F32, s, e);
}
static int scan_cifar(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_cifar_scan(path, 1, GA_F32, s, e);
}
static int scan_csv(const char *const *path, ga_scan *s, ga_err *e) {
    const ga_csv_spec spec = {.columns = 3, .target = 2, .scale = 1, .dtype = GA_F32};
    return ga_csv_scan_parts(path, 1, &spec, s, e);
}
static int scan_text(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_text_scan(path, 1, NULL, s, e);
}
static int scan_tokens(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_tokens_scan(path, 1, s, e);
}
static int scan_npy(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_npy_scan(path, 1, 1, GA_F32, s, e);
}
static int scan_tensors(const char *const *path, ga_scan *s, ga_err *e) {
    return ga_tensors_scan(path, 1, GA_F32, s, e);
}

static int open_csv(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    const int64_t columns = s->field[0].shape[0] + 1;
    const ga_csv_spec spec = {0, columns, columns - 1, s->field[1].ids ? s->field[1].high + 1 : 0, 1,
                              GA_F32, false, NULL, false};
    return ga_csv_open(out, p, 1, &spec, a, e);
}

static ga_images_spec images_of(const ga_part *p, const ga_scan *s) {
    static const double zero[GA_CHANNELS], one = 1;
    static double ones[GA_CHANNELS];
    for (int i = 0; i < GA_CHANNELS; i++) ones[i] = one;
    const int64_t *shape = s->field[0].shape;
    return (ga_images_spec){.images = p, .parts = 1, .channels = (int)shape[0],
                            .height = (int)shape[1], .width = (int)shape[2],
                            .classes = s->field[1].high + 1, .scale = 1, .mean = zero, .std = ones,
                            .real = GA_F32};
}

static int open_idx(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    const ga_part label = {label_path, p->count};
    ga_images_spec spec = images_of(p, s);
    spec.labels = &label;
    return ga_idx_open(out, &spec, a, e);
}

static int open_cifar(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    const ga_images_spec spec = images_of(p, s);
    return ga_cifar_open(out, &spec, a, e);
}

static int open_text(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    unsigned char vocabulary[256];
    int n = 0;
    for (int i = 0; i < 256; i++)
        if (s->seen[i]) vocabulary[n++] = (unsigned char)i;
    const ga_text_spec spec = {p, 1, 1, vocabulary, n};
    return ga_text_open(out, &spec, a, e);
}

static int open_tokens(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    const ga_tokens_spec spec = {p, 1, 1, s->field[0].element, s->field[0].high + 1};
    return ga_tokens_open(out, &spec, a, e);
}

static ga_arrays_spec arrays_of(const ga_part *p, const ga_scan *s, ga_array_field *field) {
    for (int i = 0; i < s->fields; i++) {
        const ga_scan_field *f = &s->field[i];
        field[i] = (ga_array_field){.name = f->name, .field = f->name, .rank = f->rank,
                                    .element = (ga_element)f->element, .ids = f->ids,
                                    .low = f->low, .high = f->high};
        memcpy(field[i].shape, f->shape, sizeof f->shape);
    }
    return (ga_arrays_spec){field, s->fields, p, 1, GA_F32};
}

static int open_npy(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    ga_array_field field[GA_FIELDS];
    const ga_arrays_spec spec = arrays_of(p, s, field);
    return ga_npy_open(out, &spec, a, e);
}

static int open_tensors(ga_source *out, const ga_part *p, const ga_scan *s, ga_arena *a, ga_err *e) {
    ga_array_field field[GA_FIELDS];
    const ga_arrays_spec spec = arrays_of(p, s, field);
    return ga_tensors_open(out, &spec, a, e);
}

typedef struct {
    const char *name;
    void (*make)(content *);
    int (*scan)(const char *const *, ga_scan *, ga_err *);
    int (*open)(ga_source *, const ga_part *, const ga_scan *, ga_arena *, ga_err *);
} format;

/* Decodes the first and the last row, so that a sanitizer finds reads outside the source. */
static void decode_ends(const ga_source *s) {
    void *out[GA_FIELDS];
    for (int f = 0; f < s->fields; f++)
        out[f] = malloc((size_t)s->field[f].width * ga_dtype_bytes(s->field[f].type));
    s->decode(s, 0, NULL, out);
    s->decode(s, s->rows - 1, NULL, out);
    for (int f = 0; f < s->fields; f++) free(out[f]);
}

/* Whether the file was accepted. */
static bool check(const format *f, const char *path) {
    ga_scan scan;
    ga_err e = {0};
    ga_source source;
    int code = f->scan(&path, &scan, &e);
    if (code < 0) {
        assert_int_equal(code, GA_INPUT);
        assert_has(e.msg, path);
        return false;
    }
    const ga_part part = {path, scan.count[0]};
    ga_arena a = open_arena(scan.bytes);
    code = f->open(&source, &part, &scan, &a, &e);
    if (code < 0) /* a sequence may be too short for its window */
        assert_has(e.msg, "give no window");
    else
        assert_int_equal(ga_padded(a.used), scan.bytes);
    if (code == GA_OK) decode_ends(&source);
    ga_arena_close(&a);
    return true;
}

static void mutate(content *c, uint64_t key) {
    int changes = 1 + (int)(ga_rng_at(key, 0) % 3);
    for (int i = 0; i < changes; i++) {
        uint64_t what = ga_rng_at(key, 3 * (uint64_t)i + 1), at = ga_rng_at(key, 3 * (uint64_t)i + 2);
        unsigned char byte = (unsigned char)ga_rng_at(key, 3 * (uint64_t)i + 3);
        size_t start = at % 4 == 0 ? 0 : c->n > 100 ? at / 4 % 100 : 0; /* mostly in the header */
        size_t place = c->n ? (start + at / 1024 % (at % 4 ? 1 : c->n)) % c->n : 0;
        if (c->n == 0 || what % 8 == 0)
            c->n = at % (c->n + 1);
        else if (what % 8 == 1)
            append(c, &byte, 1);
        else if (what % 8 == 2)
            c->bytes[place] ^= (unsigned char)(1 << byte % 8);
        else if (what % 8 == 3)
            c->bytes[place] = (unsigned char)("0129-.,:{}[]()'\"\n\xff"[byte % 18]);
        else
            c->bytes[place] = byte;
    }
}

static void damaged(void **state) {
    static const format formats[] = {
        {"csv", make_csv, scan_csv, open_csv},
        {"idx", make_idx, scan_idx, open_idx},
        {"cifar", make_cifar, scan_cifar, open_cifar},
        {"text", make_text, scan_text, open_text},
        {"tokens", make_tokens, scan_tokens, open_tokens},
        {"npy", make_npy, scan_npy, open_npy},
        {"tensors", make_tensors, scan_tensors, open_tensors},
    };
    scratch *s = *state;
    char labels[200], path[200];
    snprintf(labels, sizeof labels, "%s/labels", s->path);
    put_file(labels, "\0\0\10\1\0\0\0\3\2\0\1", 11);
    label_path = labels;
    const char *more = getenv("GAGEN_FUZZ_FILES"); /* mutations per format, instead of the default */
    const int mutations = more ? atoi(more) : MUTATIONS;
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const format *f = &formats[k];
        snprintf(path, sizeof path, "%s/%s", s->path, f->name);
        int taken = 0;
        for (int i = -1; i < mutations; i++) {
            static content c;
            memset(&c, 0, sizeof c);
            f->make(&c);
            if (i >= 0) mutate(&c, ga_rng_key((uint64_t)i, k));
            put_file(path, c.bytes, c.n);
            bool good = check(f, path);
            if (i < 0) assert_true(good);
            taken += good;
        }
        if (taken < 2 || taken > mutations) fail_msg("%s: %d of %d taken", f->name, taken, mutations);
    }
}

int test_readers(void);
int test_readers(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged)};
    return cmocka_run_group_tests_name("readers", tests, scratch_setup, scratch_teardown);
}
