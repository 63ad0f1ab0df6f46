/* safetensors: round trips with conversion, and the table of files that must be refused. */
#include "scratch.h"

#include "../../runtime/safetensors.h"

#include <math.h>

/* Two plain parameters, a scalar, and a region of 3 layers with gaps between them. */
static const ga_param params[] = {
    {"fc1.weight", 0, 1, 2, {2, 3}, 0, 0, 6},
    {"fc1.bias", 0, 1, 1, {2}, 8, 0, 2},
    {"h.%d.ln.weight", 4, 3, 1, {2}, 16, 4, 2},
    {"gain", 0, 1, 0, {0}, 30, 0, 1},
};
enum { PARAMS = 4, SPACE = 32 };

static ga_array array_of(void *base, ga_dtype t, const char *suffix) {
    return (ga_array){
        .params = params, .count = PARAMS, .suffix = suffix, .dtype = t, .base = base};
}

static void layout(void **state) {
    (void)state;
    char name[GA_NAME_MAX];
    int p, l;
    assert_string_equal(ga_param_name(&params[2], 1, ".m", name), "h.5.ln.weight.m");
    assert_string_equal(ga_param_name(&params[0], 0, "", name), "fc1.weight");
    assert_true(ga_layout_find(params, PARAMS, "h.6.ln.weight", &p, &l));
    assert_true(p == 2 && l == 2);
    assert_int_equal(ga_layout_index(&params[2], 2, 1), 25);
    assert_false(ga_layout_find(params, PARAMS, "h.7.ln.weight", &p, &l));
    assert_int_equal(ga_layout_names(params, PARAMS), 6);
    ga_param other[PARAMS];
    memcpy(other, params, sizeof params);
    other[0].shape[0] = 3;
    assert_true(ga_layout_hash(params, PARAMS, GA_LAYOUT_HASH) !=
                ga_layout_hash(other, PARAMS, GA_LAYOUT_HASH));
}

static void round_trip(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "a.safetensors");
    float f[SPACE], g[SPACE] = {0};
    double d[SPACE] = {0};
    ga_err e;
    for (int i = 0; i < SPACE; i++) f[i] = (float)sin(i + 1);
    f[9] = NAN; /* --save-init and --dump write what is there */
    ga_array a = array_of(f, GA_F32, ""), b = array_of(g, GA_F32, ""),
             wide = array_of(d, GA_F64, "");
    assert_int_equal(ga_safetensors_save(path, &a, 1, &e), 0);
    assert_int_equal(ga_safetensors_load(path, &b, 1, NULL, 0, &e), 0);
    assert_int_equal(ga_safetensors_load(path, &wide, 1, NULL, 0, &e), 0);
    for (int i = 0; i < PARAMS; i++)
        for (int l = 0; l < params[i].count; l++)
            for (int64_t k = 0; k < params[i].n; k++) {
                int64_t at = ga_layout_index(&params[i], l, k);
                assert_memory_equal(&f[at], &g[at], 4);
                assert_true(d[at] == (double)f[at] || at == 9);
            }
    assert_true(g[6] == 0 && g[18] == 0); /* nothing outside */
    struct stat st;
    stat(path, &st);
    assert_int_equal(st.st_size, ga_safetensors_bytes(&a, 1, NULL, 0));
    assert_int_equal(ga_safetensors_save(path, &wide, 1, &e), 0); /* F64 file into F32 memory */
    assert_int_equal(ga_safetensors_load(path, &b, 1, NULL, 0, &e), 0);
    assert_true(g[25] == f[25]);
    assert_int_equal(ga_safetensors_save("/nowhere/x", &a, 1, &e), GA_ENVIRONMENT);
}

static void notes_and_checksums(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "n.safetensors");
    static float big[3 << 20]; /* 12 MiB: three blocks and a bit */
    ga_param one = {"big", 0, 1, 1, {3 << 20}, 0, 0, 3 << 20};
    ga_array a = {&one, 1, "", GA_F32, big};
    ga_note notes[2] = {{"weight", "64"}, {"loss_sum", "0.1"}},
            back[2] = {{.key = "loss_sum"}, {.key = "none"}};
    uint32_t sums[4];
    ga_written w = {.checksums = sums, .blocks = 4};
    ga_err e;
    for (int i = 0; i < 3 << 20; i++) big[i] = (float)i;
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    assert_int_equal(ga_safetensors_write(fd, path, &a, 1, notes, 2, true, &w, &e), 0);
    assert_int_equal(w.blocks, 4);
    assert_int_equal(w.bytes, ga_safetensors_bytes(&a, 1, notes, 2));
    w.blocks = 3;
    assert_int_equal(ga_safetensors_write(fd, path, &a, 1, notes, 2, true, &w, &e), GA_BUG);
    big[77] = INFINITY;
    assert_int_equal(ga_safetensors_write(fd, path, &a, 1, notes, 2, true, NULL, &e), GA_NONFINITE);
    assert_has(e.msg, "big holds a value that is not finite");
    close(fd);
    fd = open(path, O_RDWR | O_TRUNC);
    big[77] = 77;
    assert_int_equal(ga_safetensors_write(fd, path, &a, 1, notes, 2, true, NULL, &e), 0);
    close(fd);
    big[5] = 0;
    assert_int_equal(ga_safetensors_load(path, &a, 1, back, 2, &e), 0);
    assert_true(big[5] == 5);
    assert_string_equal(back[0].value, "0.1");
    assert_string_equal(back[1].value, "");
}

static void put_raw(const char *path, uint64_t length, const char *header, size_t data) {
    char bytes[4096] = {0};
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> 8 * i);
    memcpy(bytes + 8, header, n);
    put_file(path, bytes, 8 + n + data);
}

#define X "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static void refusals(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "bad.safetensors");
    static const ga_param x[] = {{"x", 0, 1, 1, {2}, 0, 0, 2}};
    static const struct {
        const char *header, *says;
        size_t data;
        int64_t length; /* 0: true one */
    } table[] = {
        {"{" X "}", NULL, 8, 0}, /* the good one */
        {"{" X "}", "header of 9223372036854775807 bytes", 8, INT64_MAX},
        {"{" X "}", "header of 18446744073709551615 bytes", 8, -1},
        {"{" X "}", "header of 1 bytes", 8, 1},
        {"{" X "}", "header of 500 bytes", 8, 500},
        {"[1]        ", "does not start with '{'", 8, 0},
        {"{" X, "header: ", 8, 0},
        {"{" X "} x", "header: ", 8, 0},
        {"{" X "," X "}", "header: duplicate", 8, 0},
        {"{\"x\xff\":1}", "header: ", 8, 0},
        {"{\"x\":{\"dtype\":\"Q9\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "tensor 'x': no known dtype", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
         "begin after their end", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}",
         "begin after their end", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "not two whole numbers",
         8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]}}",
         "not two whole numbers", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "do not give the size",
         8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
         "do not give the size", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         "do not give the size", 0, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", "do not give the size", 8, 0},
        {"{\"x\":7}", "tensor 'x': no known dtype", 8, 0},
        {"{" X "}", "beyond the end of the file", 4, 0},
        {"{" X "}", "bytes after the last tensor", 12, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", "overlap", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "overlaps another tensor", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[12,16]}}", "leave a hole",
         16, 0},
        {"{" X ",\"__metadata__\":3}", "__metadata__ is not an object", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}",
         "'y' is not wanted", 12, 0},
        {"{\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "'x' is missing, 'y' is not wanted", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}",
         "'x' is of another rank", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
         "'x' is of another shape", 12, 0},
        {"{\"x\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "'x' is neither F32 nor F64", 8, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        float memory[2] = {7, 8};
        ga_array a = {x, 1, "", GA_F32, memory};
        ga_err e = {0};
        int64_t length = table[i].length ? table[i].length : (int64_t)strlen(table[i].header);
        put_raw(path, (uint64_t)length, table[i].header, table[i].data);
        int code = ga_safetensors_load(path, &a, 1, NULL, 0, &e);
        assert_int_equal(code, table[i].says ? GA_INPUT : 0);
        if (!table[i].says) continue;
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, path);
        assert_true(memory[0] == 7 && memory[1] == 8); /* nothing loaded */
    }
}

static void kinds(void **state) {
    scratch *s = *state;
    float memory[SPACE];
    ga_array a = array_of(memory, GA_F32, "");
    ga_err e;
    assert_int_equal(ga_safetensors_load(scratch_path(s, "none"), &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(ga_safetensors_load(s->path, &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(mkfifo(scratch_path(s, "fifo"), 0600), 0);
    assert_int_equal(ga_safetensors_load(s->file, &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(symlink("loop", scratch_path(s, "loop")), 0);
    assert_int_equal(ga_safetensors_load(s->file, &a, 1, NULL, 0, &e), GA_INPUT);
    char *deep = malloc(60000);
    memset(deep, '[', 60000);
    memcpy(deep, "\x50\xc3\0\0\0\0\0\0{\"x\":", 13); /* 50,000 bytes of header: a depth bomb */
    put_file(scratch_path(s, "deep"), deep, 60000);
    assert_int_equal(ga_safetensors_load(s->file, &a, 1, NULL, 0, &e), GA_INPUT);
    free(deep);
}

/* A whole file with one byte less at a time: every prefix is refused and nothing reads beyond
 * it. */
static void cuts(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "cut.safetensors");
    float memory[SPACE] = {0};
    ga_array a = array_of(memory, GA_F32, "");
    size_t n;
    assert_int_equal(ga_safetensors_save(path, &a, 1, NULL), 0);
    char *data = get_file(path, &n);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(path, data, cut);
        assert_int_equal(ga_safetensors_load(path, &a, 1, NULL, 0, NULL), GA_INPUT);
    }
    free(data);
}

int test_safetensors(void);
int test_safetensors(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layout),
                                       cmocka_unit_test(round_trip),
                                       cmocka_unit_test(notes_and_checksums),
                                       cmocka_unit_test(refusals),
                                       cmocka_unit_test(kinds),
                                       cmocka_unit_test(cuts)};
    return cmocka_run_group_tests_name("safetensors", tests, scratch_setup, scratch_teardown);
}
