/* Arrays: elements of every type, .npy headers as NumPy and others write them, .safetensors datasets,
 * and tables of refusals. */
#include "scratch.h"

#include "data/arrays.h"

#include <math.h>

static void elements(void **state) {
    (void)state;
    static const unsigned char bytes[16] = {0x00, 0x3c, 0x80, 0xbf, 0xff, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0x7f, 0x00, 0x00, 0x00, 0x80};
    _Alignas(8) unsigned char base[16];
    memcpy(base, bytes, sizeof base);
    static const struct {
        const char *name;
        int64_t at, id;
    } whole[] = {{"U8", 2, 128},  {"I8", 2, -128},        {"BOOL", 4, 255},       {"U16", 1, 49024},
                 {"I16", 1, -16512}, {"U32", 1, 4294967295}, {"I32", 1, -1},      {"I32", 2, 2147483647},
                 {"I32", 3, INT32_MIN}, {"I64", 1, -9223372034707292161}, {"U64", 1, INT64_MAX}};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        ga_element t = ga_element_find(whole[i].name);
        assert_true(t < GA_ELEMENTS && ga_element_whole(t));
        assert_string_equal(ga_element_name(t), whole[i].name);
        if (ga_element_id(base, t, whole[i].at) != whole[i].id) fail_msg("%s", whole[i].name);
        assert_true(ga_element_real(base, t, whole[i].at) == (double)whole[i].id);
    }
    assert_true(ga_element_real(base, GA_ELEMENT_F16, 0) == 1 && !ga_element_whole(GA_ELEMENT_F16));
    assert_true(ga_element_real(base, GA_ELEMENT_BF16, 1) == -1);
    assert_true(isnan(ga_element_real(base, GA_ELEMENT_F32, 1)));
    assert_int_equal(ga_element_find("F8_E4M3"), GA_ELEMENTS);
}

/* Writes a .npy file: version, header text (NULL: made from the type and shape), data. */
static size_t make_npy(unsigned char *out, int version, const char *text, const void *data, size_t n) {
    size_t length = strlen(text), size = version == 1 ? 2 : 4;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version;
    out[7] = 0;
    for (size_t k = 0; k < size; k++) out[8 + k] = (unsigned char)(length >> 8 * k);
    memcpy(out + 8 + size, text, length);
    if (n) memcpy(out + 8 + size + length, data, n);
    return 8 + size + length + n;
}

static const float inputs[] = {1, 2, 3, 4, 5, 6};
static const int64_t targets[] = {0, -100, 2};

static const char input_header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }   \n";
static const char target_header[] = "{\"shape\": (3,), \"descr\": \"<i8\", \"fortran_order\": False}";

typedef struct {
    char input[160], target[160];
} pair;

static pair put_pair(scratch *s, int version) {
    pair p;
    unsigned char data[512];
    snprintf(p.input, sizeof p.input, "%s/input.npy", s->path);
    snprintf(p.target, sizeof p.target, "%s/target.npy", s->path);
    put_file(p.input, data, make_npy(data, version, input_header, inputs, sizeof inputs));
    put_file(p.target, data, make_npy(data, version, target_header, targets, sizeof targets));
    return p;
}

static const double mean[] = {1, 2}, std[] = {2, 4};

static ga_array_field input_field(void) {
    return (ga_array_field){.name = "input", .field = "input", .element = GA_ELEMENT_F32, .rank = 1,
                            .shape = {2}};
}

static ga_array_field target_field(void) {
    return (ga_array_field){.name = "target", .field = "target", .element = GA_ELEMENT_I64,
                            .ids = true, .low = 0, .high = 2, .ignores = true, .ignored = -100};
}

static void npy_values(void **state) {
    for (int version = 1; version <= 3; version++) {
        const pair p = put_pair(*state, version);
        const char *path[] = {p.input, p.input, p.target, p.target};
        ga_scan scan;
        ga_err e;
        assert_int_equal(ga_npy_scan(path, 2, 2, GA_F32, &scan, &e), 0);
        assert_true(scan.parts == 2 && scan.count[0] == 3 && scan.count[1] == 3);
        const ga_scan_field *f = scan.field;
        assert_true(!f[0].ids && f[0].rank == 1 && f[0].shape[0] == 2);
        assert_true(f[1].ids && f[1].rank == 0 && f[1].low == -100 && f[1].high == 2);
        assert_int_equal(f[1].largest_negative, -100);
        assert_true(f[0].element == GA_ELEMENT_F32 && f[1].element == GA_ELEMENT_I64);
        ga_array_field field[] = {input_field(), target_field()};
        field[0].scale = 3;
        field[0].mean = mean;
        field[0].std = std;
        field[0].channels = 2;
        const ga_part part[] = {{p.input, 3}, {p.input, 3}, {p.target, 3}, {p.target, 3}};
        const ga_arrays_spec spec = {field, 2, part, 2, GA_F64};
        ga_arena a = open_arena(8192);
        ga_source source;
        assert_int_equal(ga_npy_open(&source, &spec, &a, &e), 0);
        assert_int_equal(ga_padded(a.used), scan.bytes);
        assert_true(source.rows == 6 && source.fields == 2 && source.field[0].type == GA_F64);
        assert_true(source.field[1].type == GA_I32 && source.field[1].width == 1);
        double input[2];
        int32_t target;
        void *const out[] = {input, &target};
        for (int row = 0; row < 6; row++) {
            source.decode(&source, row, NULL, out);
            assert_int_equal(target, targets[row % 3]);
            for (int i = 0; i < 2; i++)
                assert_true(input[i] == (inputs[row % 3 * 2 + i] * 3.0 - mean[i]) / std[i]);
        }
        ga_arena_close(&a);
    }
}

/* Scan and open both refuse a changed file of inputs. */
static void npy_refusals(void **state) {
    static const float odd[] = {1, 2, NAN, 4, 5, 6}, large[] = {1, 2, 3, 4, INFINITY, 6};
    static const struct {
        const char *text;
        const void *data;
        int bytes;
        const char *says;
    } table[] = {
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", inputs, 24,
         "fortran_order is not False: save the array in C order"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2), }", inputs, 24,
         "type '>f4' (big-endian), expected <f4, <f8"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3, 2), }", inputs, 24,
         "type '|O' (Python objects)"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (3, 2), }", inputs, 24, "type '<c8', exp"},
        {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (3,), }", inputs, 12,
         "structured arrays are not taken"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)", inputs, 24, "not end with '}'"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2", inputs, 24, "shape does not end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 3, }", inputs, 24, "shape is no tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, -2), }", inputs, 24,
         "something else than whole numbers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2.0), }", inputs, 24, "does not end"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", inputs, 4, "a single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }", inputs, 0, "an extent is 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0), }", inputs, 0, "an extent is 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }", inputs,
         24, "too large a product"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000000000000, 2), }", inputs, 24,
         "something else than whole numbers"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (900000000000000000, 2), }", inputs, 24,
         "too large a product"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", inputs, 4,
         "more axes than 6"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (3, 2), }", inputs, 24, "key 'descr' twice"},
        {"{'descr': '<f4', 'order': False, 'shape': (3, 2), }", inputs, 24, "key 'order', expected"},
        {"{'descr': '<f4', 'shape': (3, 2), }", inputs, 24, "fortran_order or shape is missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), } x", inputs, 24, "text after"},
        {"__import__('os')", inputs, 24, "does not begin with '{'"},
        {"", inputs, 24, "does not begin with '{'"},
        {"{", inputs, 24, "expected a key"},
        {"{'descr", inputs, 24, "expected a key"},
        {input_header, inputs, 23, "ends after 23 of the 24 bytes of the array: it is cut off"},
        {input_header, inputs, 25, "bytes after the array, expected the end of the file"},
        {input_header, odd, 24, "row 2, element 1: nan found, expected a finite number that F32 holds"},
        {input_header, large, 24, "row 3, element 1: inf found"},
    };
    const pair p = put_pair(*state, 1);
    const ga_array_field field[] = {input_field(), target_field()};
    const ga_part part[] = {{p.input, 3}, {p.target, 3}};
    const ga_arrays_spec spec = {field, 2, part, 1, GA_F32};
    const char *path[] = {p.input, p.target};
    ga_arena a = open_arena(8192);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        unsigned char data[512], values[32] = {0};
        memcpy(values, table[i].data, 24);
        size_t n = make_npy(data, 1, table[i].text, values, (size_t)table[i].bytes);
        put_file(p.input, data, n);
        ga_source source;
        ga_scan scan;
        ga_err e = {0};
        assert_int_equal(ga_npy_scan(path, 2, 1, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, p.input);
        a.used = 0;
        assert_int_equal(ga_npy_open(&source, &spec, &a, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
    }
    ga_arena_close(&a);
}

/* Wrong first bytes, cuts at every byte, and headers that only gagen refuses. */
static void npy_differences(void **state) {
    const pair p = put_pair(*state, 1);
    ga_array_field field[] = {input_field(), target_field()};
    ga_part part[] = {{p.input, 3}, {p.target, 3}};
    const ga_arrays_spec spec = {field, 2, part, 1, GA_F32};
    const char *path[] = {p.input, p.target};
    unsigned char data[512];
    ga_arena a = open_arena(8192);
    ga_source source;
    ga_scan scan;
    ga_err e = {0};
    size_t n = make_npy(data, 1, input_header, inputs, sizeof inputs);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(p.input, data, cut);
        if (ga_npy_scan(path, 2, 1, GA_F32, &scan, &e) != GA_INPUT) fail_msg("cut at %zu taken", cut);
    }
    static const struct {
        int at, byte;
        const char *says;
    } start[] = {{0, 'N', "not a .npy file: it does not begin with 93 'NUMPY'"},
                 {6, 4, ".npy version 4.0, expected 1.0, 2.0 or 3.0"},
                 {7, 1, ".npy version 1.1"},
                 {9, 0xff, ".npy header of 65343 bytes, expected at most 4096"},
                 {9, 1, "the .npy header: it is cut off"}};
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
        make_npy(data, 1, input_header, inputs, sizeof inputs);
        data[start[i].at] = (unsigned char)start[i].byte;
        put_file(p.input, data, n);
        assert_int_equal(ga_npy_scan(path, 2, 1, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, start[i].says);
    }
    put_pair(*state, 2);
    field[1].high = 1;
    assert_int_equal(ga_npy_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "target.npy: row 3, element 1: 2 found, expected a whole number in 0..1");
    field[1] = target_field();
    field[1].ignores = false;
    a.used = 0;
    assert_int_equal(ga_npy_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "row 2, element 1: -100 found, expected a whole number in 0..2");
    field[1] = target_field();
    field[0].element = GA_ELEMENT_F64;
    a.used = 0;
    assert_int_equal(ga_npy_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "input.npy: 3 rows of 2 F32, expected 3 of 2 F64, of the same shape: is it the");
    field[0] = input_field();
    part[0].count = part[1].count = 4;
    a.used = 0;
    assert_int_equal(ga_npy_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "3 rows of 2 F32, expected 4 of 2 F32");
    put_file(p.target, data, make_npy(data, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}",
                                      targets, 16));
    assert_int_equal(ga_npy_scan(path, 2, 1, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "target.npy: 2 rows, the input has 3: expected as many");
    const int64_t far = (int64_t)1 << 31;
    put_file(p.target, data, make_npy(data, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}",
                                      &far, 8));
    const char *alone[] = {p.target};
    assert_int_equal(ga_npy_scan(alone, 1, 1, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "row 1, element 1: 2147483648 found, expected a whole number in -2147483648..");
    const double wide = 1e300;
    put_file(p.target, data, make_npy(data, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
                                      &wide, 8));
    assert_int_equal(ga_npy_scan(alone, 1, 1, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "expected a finite number that F32 holds");
    assert_int_equal(ga_npy_scan(alone, 1, 1, GA_F64, &scan, &e), 0);
    ga_arena_close(&a);
}

/* Writes a .safetensors file: the header, padded with blanks, and the data. */
static void put_tensors(const char *path, const char *header, const void *data, size_t n) {
    unsigned char out[1024] = {0};
    size_t length = strlen(header);
    out[0] = (unsigned char)length;
    out[1] = (unsigned char)(length >> 8);
    memcpy(out + 8, header, length);
    if (n) memcpy(out + 8 + length, data, n);
    put_file(path, out, 8 + length + n);
}

/* ids (2, 3) of U8, label (2) of I32, score (2) of F16, in an order other than by name or offset. */
static const char header[] =
    "{\"__metadata__\":{\"made\":\"here\"},"
    "\"score\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[14,18]},"
    "\"label\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[6,14]},"
    "\"ids\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}";
static const unsigned char values[] = {7, 8, 9, 10, 11, 12, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x3c, 0, 0xc0};

static void tensor_values(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "set.safetensors"), *twice[] = {path, path};
    put_tensors(path, header, values, sizeof values);
    ga_scan scan;
    ga_err e;
    assert_int_equal(ga_tensors_scan(twice, 2, GA_F32, &scan, &e), 0);
    assert_true(scan.fields == 3 && scan.count[0] == 2 && scan.count[1] == 2);
    const ga_scan_field *f = scan.field;
    assert_string_equal(f[0].name, "ids");
    assert_string_equal(f[1].name, "label");
    assert_string_equal(f[2].name, "score");
    assert_true(f[0].ids && f[0].low == 7 && f[0].high == 12 && f[0].rank == 1 && f[0].shape[0] == 3);
    assert_true(f[1].ids && f[1].low == 0 && f[1].high == 1 && f[1].rank == 0);
    assert_true(!f[2].ids && f[2].element == GA_ELEMENT_F16);
    const ga_array_field field[] = {
        {.name = "score", .field = "score", .element = GA_ELEMENT_F16},
        {.name = "ids", .field = "ids", .element = GA_ELEMENT_U8, .rank = 1, .shape = {3},
         .ids = true, .low = 0, .high = 12},
        {.name = "label", .field = "target", .element = GA_ELEMENT_I32, .ids = true, .high = 1}};
    const ga_part part[] = {{path, 2}, {path, 2}};
    const ga_arrays_spec spec = {field, 3, part, 2, GA_F32};
    ga_arena a = open_arena(8192);
    ga_source source;
    assert_int_equal(ga_tensors_open(&source, &spec, &a, &e), 0);
    assert_int_equal(ga_padded(a.used), scan.bytes);
    assert_true(source.rows == 4 && source.fields == 3);
    assert_string_equal(source.field[2].name, "target");
    float score;
    int32_t ids[3], target;
    void *const out[] = {&score, ids, &target};
    for (int row = 0; row < 4; row++) {
        source.decode(&source, row, NULL, out);
        assert_true(score == (row % 2 ? -2.0f : 1.0f) && target == (row % 2 ? 0 : 1));
        for (int i = 0; i < 3; i++) assert_int_equal(ids[i], values[row % 2 * 3 + i]);
    }
    ga_arena_close(&a);
}

#define ONE(name, dtype, shape, range)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" range "}"

static void tensor_refusals(void **state) {
    scratch *s = *state;
    static const struct {
        const char *text;
        int bytes;
        const char *says;
    } table[] = {
        {"{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[2]", "[1,3]") "}", 3, "overlap"},
        {"{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[2]", "[3,5]") "}", 5, "leave a hole"},
        {"{" ONE("a", "U8", "[2]", "[0,2]") "}", 3, "bytes after the last tensor"},
        {"{" ONE("a", "U8", "[3]", "[0,3]") "}", 2, "data reaches beyond the end of the file"},
        {"{" ONE("a", "U8", "[4294967296,4294967296,4294967296]", "[0,0]") "}", 0,
         "shape and dtype do not give the size"},
        {"{" ONE("a", "U8", "[2]", "[2,0]") "}", 2, "begin after their end"},
        {"{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("a", "U8", "[2]", "[2,4]") "}", 4, "duplicate"},
        {"{" ONE("a", "U9", "[2]", "[0,2]") "}", 2, "dtype 'U9' is unknown"},
        {"{" ONE("a", "F8_E4M3", "[2]", "[0,2]") "}", 2, "elements of type F8_E4M3 are not taken"},
        {"{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[1]", "[2,3]") "}", 3,
         "tensor 'b' has 1 rows, 'a' has 2: expected as many"},
        {"{" ONE("a", "U8", "[]", "[0,1]") "}", 1, "tensor 'a': a single number, expected rows"},
        {"{" ONE("a", "U8", "[0,2]", "[0,0]") "}", 0, "an extent is 0"},
        {"{" ONE("a", "U8", "[1,1,1,1,1,1,1]", "[0,1]") "}", 1, "more axes than 6"},
        {"{" ONE("a.b", "U8", "[1]", "[0,1]") "}", 1, "expected letters, digits and _ in its name"},
        {"{" ONE("1a", "U8", "[1]", "[0,1]") "}", 1, "a letter first"},
        {"{" ONE("_a", "U8", "[1]", "[0,1]") "}", 1, "a letter first"},
        {"{\"__metadata__\":{}}", 0, "no tensors, expected the fields of a row"},
        {"{" ONE("a", "F32", "[1]", "[0,4]") "}", 4, "tensor 'a': row 1, element 1: nan found"},
        {"{" ONE("a", "U32", "[1]", "[0,4]") "}", 4, "4294967295 found, expected a whole number"},
        {"[]", 0, "the header does not start with '{'"},
        {"{" ONE("a", "U8", "[1]", "[0,1]") "," ONE("b", "U8", "[1]", "[1,2]") "," ONE(
             "c", "U8", "[1]", "[2,3]") "," ONE("d", "U8", "[1]", "[3,4]") "," ONE("e", "U8", "[1]",
             "[4,5]") "," ONE("f", "U8", "[1]", "[5,6]") "," ONE("g", "U8", "[1]", "[6,7]") "," ONE(
             "h", "U8", "[1]", "[7,8]") "," ONE("i", "U8", "[1]", "[8,9]") "}",
         9, "more than 8 tensors"},
    };
    const char *path = scratch_path(s, "bad.safetensors");
    unsigned char ones[16];
    memset(ones, 0xff, sizeof ones);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_scan scan;
        ga_err e = {0};
        put_tensors(path, table[i].text, ones, (size_t)table[i].bytes);
        assert_int_equal(ga_tensors_scan(&path, 1, GA_F32, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, path);
    }
    size_t n;
    ga_scan scan;
    ga_err e;
    put_tensors(path, header, values, sizeof values);
    char *whole = get_file(path, &n);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(path, whole, cut);
        if (ga_tensors_scan(&path, 1, GA_F32, &scan, &e) != GA_INPUT) fail_msg("cut at %zu", cut);
    }
    whole[2] = 1; /* a header longer by 64 KiB */
    put_file(path, whole, n);
    assert_int_equal(ga_tensors_scan(&path, 1, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "not a safetensors file, or cut off");
    free(whole);
}

static void tensor_differences(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "other.safetensors");
    const ga_part part = {path, 2};
    const ga_array_field label = {
        .name = "label", .field = "target", .element = GA_ELEMENT_I32, .ids = true, .high = 1};
    const ga_array_field score = {.name = "score", .field = "score", .element = GA_ELEMENT_F16};
    const ga_array_field ids = {.name = "ids", .field = "ids", .element = GA_ELEMENT_U8, .rank = 1,
                                .shape = {3}, .ids = true, .high = 11};
    ga_array_field wrong = ids, field[3] = {score, ids, label};
    wrong.name = "nothing";
    const struct {
        ga_array_field ids;
        int fields;
        const char *says;
    } table[] = {
        {ids, 3, "tensor 'ids': row 2, element 3: 12 found, expected a whole number in 0..11"},
        {ids, 2, "3 tensors, expected 2: is it the file the program was made for?"},
        {wrong, 3, "has no tensor 'nothing': is it the file the program was made for?"},
    };
    ga_arena a = open_arena(8192);
    put_tensors(path, header, values, sizeof values);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_source source;
        ga_err e = {0};
        field[1] = table[i].ids;
        const ga_arrays_spec spec = {field, table[i].fields, &part, 1, GA_F32};
        a.used = 0;
        assert_int_equal(ga_tensors_open(&source, &spec, &a, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
    }
    field[1] = ids;
    field[1].shape[0] = 4;
    const ga_arrays_spec spec = {field, 3, &part, 1, GA_F32};
    ga_source source;
    ga_scan scan;
    ga_err e;
    a.used = 0;
    assert_int_equal(ga_tensors_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "tensor 'ids': 2 rows of 3 U8, expected 2 of 4 U8, of the same shape");
    char more[200];
    snprintf(more, sizeof more, "%s/more.safetensors", s->path);
    put_tensors(more, "{" ONE("ids", "U8", "[2,4]", "[0,8]") "}", values, 8);
    const char *both[] = {path, more}, *swapped[] = {more, path};
    assert_int_equal(ga_tensors_scan(both, 2, GA_F32, &scan, &e), GA_INPUT);
    assert_has(e.msg, "more.safetensors: 1 tensors, the first file has 3");
    assert_int_equal(ga_tensors_scan(swapped, 2, GA_F32, &scan, &e), GA_INPUT);
    ga_arena_close(&a);
}

int test_arrays(void);
int test_arrays(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements),        cmocka_unit_test(npy_values),
        cmocka_unit_test(npy_refusals),    cmocka_unit_test(npy_differences),
        cmocka_unit_test(tensor_values),   cmocka_unit_test(tensor_refusals),
        cmocka_unit_test(tensor_differences)};
    return cmocka_run_group_tests_name("arrays", tests, scratch_setup, scratch_teardown);
}
