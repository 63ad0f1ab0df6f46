/* CSV: values, the table of refusals, and gzip files cut, damaged or continued at every byte. */
#include "scratch.h"

#include "data/csv.h"

#include <math.h>
#include <zlib.h>

static const char good[] = "1,2.5,0\n-3,4e-1,2\n.5,6.,1\n";

static const ga_csv_spec any = {.columns = 3, .target = 2, .scale = 1, .dtype = GA_F64};

static size_t zip(const char *text, size_t n, unsigned char *out, size_t room) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n = z.total_out;
    deflateEnd(&z);
    return n;
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } table[] = {{"0", 0},
                 {"-0.0", -0.0},
                 {"+7", 7},
                 {"12.75", 12.75},
                 {".5", .5},
                 {"5.", 5},
                 {"1e22", 1e22},
                 {"1E-3", 1e-3},
                 {"0.1", 0.1},
                 {"123456789012345", 123456789012345.0},
                 {"3.0e+0", 3},
                 {"1e308", 1e308},
                 {"1e-400", 0},
                 {"0e999999999", 0},
                 {"2.2250738585072014e-308", 0x1p-1022},
                 {"0.30000000000000000000000000000000000004", 0.3}};
    static const char *const bad[] = {
        "",    "-",  "+",  ".",   "e5",    "1e",    "1e+", "0x10", "nan",           "inf",
        "1,5", " 1", "1 ", "--1", "1.2.3", "1e400", "1d5", "1_0",  "1e999999999999"};
    double v;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_true(ga_number_parse(table[i].text, strlen(table[i].text), &v));
        if (v != table[i].value || signbit(v) != signbit(table[i].value))
            fail_msg("%s", table[i].text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (ga_number_parse(bad[i], strlen(bad[i]), &v)) fail_msg("'%s' taken as %g", bad[i], v);
    for (int i = 0; i < 20000; i++) { /* 9 digits written by printf give the same float */
        char text[40];
        float f = (float)ldexp(rand() - RAND_MAX / 2, rand() % 40 - 50);
        snprintf(text, sizeof text, "%.9g", f);
        assert_true(ga_number_parse(text, strlen(text), &v) && (float)v == f);
    }
}

static void values(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "good.csv");
    put_file(path, good, sizeof good - 1);
    ga_csv_shape shape;
    ga_err e;
    assert_int_equal(ga_csv_scan(path, &any, &shape, &e), 0);
    assert_int_equal(shape.rows, 3);
    assert_true(shape.target_min == 0 && shape.target_max == 2 && shape.odd_line == 0);
    ga_csv_spec spec = {3, 3, 2, 3, 0.5, GA_F32, false, NULL, false};
    float f[6];
    int32_t target[3];
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), 0);
    static const float expect[] = {0.5f, 1.25f, -1.5f, 0.2f, 0.25f, 3.0f};
    assert_memory_equal(f, expect, sizeof f);
    static const int32_t targets[] = {0, 2, 1};
    assert_memory_equal(target, targets, sizeof targets);
    put_file(path, good, sizeof good - 2); /* no newline at the end */
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), 0);
}

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static void refusals(void **state) {
    scratch *s = *state;
    static const struct {
        const char *text;
        size_t n; /* 0: strlen */
        const char *says;
    } table[] = {
        {"1,2\r,0\r\n", 0, ":1: column 2: found a carriage return without a line feed"},
        {"1,2,0\r", 0, ":1: column 3: found a carriage return without a line feed"},
        {"1,2\"2,0\n", 0, ":1: column 2: found a quote inside a cell"},
        {"1,\"2\"2,0\n", 0, ":1: column 2: found text behind a closing quote"},
        {"1,2,0\r\n1,\"2,0\n1,2,0\n", 0, ":2: column 2: found a quote that is never closed"},
        {"1,2,0\n\"1\n\",2,0\n", 0, ":3: column 1: found '1?', expected a finite decimal number"},
        {"1,\xef\xbb\xbf"
         "2,0\n",
         0, ":1: column 2: found '\xef\xbb\xbf"
            "2', expected a finite"},
        {"1,,0\n", 0, ":1: column 2: found an empty cell"},
        {"1,2,0\n\n1,2,0\n", 0, ":2: column 1: found an empty cell"},
        {"1,2,0\n1,2\n", 0, ":2: 2 columns found, 3 expected"},
        {"1,2,0\n1,2,0,4\n", 0, ":2: more than 3 columns found, 3 expected"},
        {"1,2,0\n0x1f,2,0\n", 0, ":2: column 1: found '0x1f', expected a finite decimal number"},
        {"1,nan,0\n", 0, ":1: column 2: found 'nan'"},
        {"1, 2,0\n", 0, ":1: column 2: found ' 2'"},
        {"1,2,0\n1,\0,0\n", 12, ":2: column 2: found a zero byte"},
        {"x,y,target\n1,2,0\n", 0, ":1: column 1: found 'x'"},
        {"1,2,0\n1,2,0\n1,2,3\n", 0,
         ":3: column 3: target 3, expected a whole number in 0..2"},
        {"1,2,0\n1,2,-1\n", 0, ":2: column 3: target -1"},
        {"1,2,0.5\n", 0, ":1: column 3: target 0.5"},
        {"1,1e39,0\n", 0, "too large for F32"},
        {"1,2,0\n", 0, "1 rows found, 3 expected"},
        {"1,2,0\n1,2,0\n1,2,0\n1,2,0\n1,2,0\n", 0, "5 rows found, 3 expected"},
        {"", 0, "0 rows found, 3 expected"},
        {"1,2," ZEROS ZEROS ZEROS ZEROS "\n", 0, "more than 255 bytes"},
    };
    ga_csv_spec spec = {3, 3, 2, 3, 1, GA_F32, false, NULL, false};
    float f[6];
    int32_t target[3];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_err e = {0};
        const char *path = scratch_path(s, "bad.csv");
        put_file(path, table[i].text, table[i].n ? table[i].n : strlen(table[i].text));
        assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, path);
    }
    ga_err e = {0};
    ga_csv_shape shape;
    assert_int_equal(ga_csv_scan(scratch_path(s, "missing.csv"), &any, &shape, &e), GA_INPUT);
    assert_int_equal(ga_csv_scan(s->path, &any, &shape, &e), GA_INPUT);
    assert_has(e.msg, "not a regular file");
    assert_int_equal(mkfifo(scratch_path(s, "fifo.csv"), 0600), 0);
    assert_int_equal(ga_csv_scan(s->file, &any, &shape, &e), GA_INPUT); /* refused without waiting */
}

/* Every truncation and every flipped bit of a gzip file is refused, except in the flags and time of its
 * header. */
static void zipped(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "x.csv.gz");
    unsigned char data[256], copy[256];
    size_t n = zip(good, sizeof good - 1, data, sizeof data);
    ga_csv_shape shape;
    ga_err e;
    put_file(path, data, n);
    assert_int_equal(ga_csv_scan(path, &any, &shape, &e), 0);
    assert_int_equal(shape.rows, 3);
    for (size_t cut = 0; cut < n; cut++) {
        put_file(path, data, cut);
        if (ga_csv_scan(path, &any, &shape, &e) != GA_INPUT) fail_msg("cut at %zu of %zu taken", cut, n);
    }
    for (size_t i = 10; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, data, n);
            copy[i] ^= (unsigned char)(1 << bit);
            put_file(path, copy, n);
            if (ga_csv_scan(path, &any, &shape, &e) != GA_INPUT) fail_msg("flip of byte %zu taken", i);
        }
    memcpy(copy, data, n);
    memcpy(copy + n, "more", 4);
    put_file(path, copy, n + 4);
    assert_int_equal(ga_csv_scan(path, &any, &shape, &e), GA_INPUT);
    assert_has(e.msg, "after the end of the gzip data");
    memcpy(copy + n, data, n); /* two members are one file */
    put_file(path, copy, 2 * n);
    assert_int_equal(ga_csv_scan(path, &any, &shape, &e), 0);
    assert_int_equal(shape.rows, 6);
    put_file(path, good, sizeof good - 1);
    assert_int_equal(ga_csv_scan(path, &any, &shape, &e), GA_INPUT);
    assert_has(e.msg, "no gzip data");
}

/* A header line, a target that is not the last column, real targets, several files. */
static void dataset(void **state) {
    scratch *s = *state;
    char other[200];
    snprintf(other, sizeof other, "%s/other.csv", s->path);
    const char *path = scratch_path(s, "named.csv"), *both[] = {path, other};
    static const char named[] = "\"a, quoted\",class,b\n1,2,3\n4,0,6\n", more[] = "a,c,b\n7,1,9\n";
    put_file(path, named, sizeof named - 1);
    put_file(other, more, sizeof more - 1);
    ga_csv_spec spec = {0, 3, 1, 3, 0.5, GA_F64, true, NULL, false};
    ga_scan scan;
    ga_err e;
    assert_int_equal(ga_csv_scan_parts(both, 2, &spec, &scan, &e), 0);
    assert_true(scan.count[0] == 2 && scan.count[1] == 1 && scan.field[0].shape[0] == 2);
    assert_true(scan.field[1].ids && scan.field[1].low == 0 && scan.field[1].high == 2);
    const ga_part part[] = {{path, 2}, {other, 1}};
    ga_arena a = open_arena(8192);
    ga_source source;
    assert_int_equal(ga_csv_open(&source, part, 2, &spec, &a, &e), 0);
    assert_int_equal(ga_padded(a.used), scan.bytes);
    assert_true(source.rows == 3 && source.field[0].width == 2 && source.field[1].type == GA_I32);
    double input[2], number;
    int32_t class;
    void *const out[] = {input, &class}, *const real[] = {input, &number};
    static const double expect[3][2] = {{0.5, 1.5}, {2, 3}, {3.5, 4.5}};
    static const int classes[] = {2, 0, 1};
    for (int row = 0; row < 3; row++) {
        source.decode(&source, row, NULL, out);
        assert_true(input[0] == expect[row][0] && input[1] == expect[row][1]);
        assert_int_equal(class, classes[row]);
    }
    spec.classes = 0; /* the third column is a number, not scaled */
    spec.target = 2;
    a.used = 0;
    assert_int_equal(ga_csv_open(&source, part, 2, &spec, &a, &e), 0);
    assert_true(source.field[1].type == GA_F64);
    source.decode(&source, 2, NULL, real);
    assert_true(number == 9 && input[0] == 3.5 && input[1] == 0.5);
    ga_arena_close(&a);
    const ga_csv_spec first = {.columns = 3, .target = 0, .scale = 1, .dtype = GA_F32};
    put_file(other, "0.5,2,1\n", 8);
    assert_int_equal(ga_csv_scan_parts(&both[1], 1, &first, &scan, &e), 0);
    assert_false(scan.field[1].ids);
    put_file(other, "-1,2,1\n", 7);
    assert_int_equal(ga_csv_scan_parts(&both[1], 1, &first, &scan, &e), 0);
    assert_false(scan.field[1].ids);
}

/* As spreadsheets write files: a mark, CR LF, quotes; the same numbers as from the plain file. */
static void quoted(void **state) {
    scratch *s = *state;
    static const char *const texts[] = {
        "\xef\xbb\xbf" "1,2.5,0\r\n-3,4e-1,2\r\n.5,6.,1\r\n",
        "\xef\xbb\xbf" "\"1\",2.5,\"0\"\r\n-3,\"4e-1\",2\r\n\".5\",6.,1",
        "\"a\"\"b\",\"x, y\",\"two\nlines\"\r\n1,2.5,0\n-3,4e-1,2\r\n.5,6.,\"1\"\n"};
    static const double expect[] = {1, 2.5, -3, 0.4, 0.5, 6};
    static const int32_t targets[] = {0, 2, 1};
    const char *path = scratch_path(s, "quoted.csv");
    for (int i = 0; i < 3; i++) {
        const ga_csv_column named[] = {{.name = "a\"b", .input = 0}, {.name = "x, y", .input = 1},
                                       {.name = "two\nlines", .input = -1}};
        const ga_csv_spec spec = {3, 3, 2, 3, 1, GA_F64, i == 2, i == 2 ? named : NULL, false};
        double f[6];
        int32_t target[3];
        ga_csv_shape shape;
        ga_err e = {0};
        put_file(path, texts[i], strlen(texts[i]));
        assert_int_equal(ga_csv_scan(path, &spec, &shape, &e), 0);
        assert_true(shape.rows == 3 && shape.target_max == 2);
        assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), 0);
        assert_memory_equal(f, expect, sizeof f);
        assert_memory_equal(target, targets, sizeof target);
    }
    /* the line of a message is that of an editor, also behind a cell of two lines */
    ga_csv_spec spec = {2, 3, 2, 3, 1, GA_F64, true, NULL, false};
    ga_err e = {0};
    double f[6];
    int32_t target[3];
    const char *text = "\"a\r\nb\",c,d\r\n1,2,0\r\n1,x,0\r\n";
    put_file(path, text, strlen(text));
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), GA_INPUT);
    assert_has(e.msg, "quoted.csv:4: column 2: found 'x'");
    const ga_csv_column other[] = {{.name = "a\nb", .input = 0}, {.name = "C", .input = 1}, {.name = "d", .input = -1}};
    spec.column = other;
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), GA_INPUT);
    assert_has(e.msg, "quoted.csv:2: column 2: found 'c', expected 'C': is it the file the program was made for?");
}

/* Dropped columns of any text, inputs in another order, categories and standardized numbers. */
static void columns(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "columns.csv");
    const char *text = "id,city,area,price\n" ZEROS ZEROS ZEROS ZEROS "z,Rome,4,10\n,\"Bonn, D\",8,20\nx,,1,30\n";
    static const ga_csv_value city[] = {{"", 2}, {"Bonn, D", 1}, {"Rome", 0}};
    ga_csv_column column[] = {{.name = "id", .input = -1},
                              {.name = "city", .input = 1, .category = true, .value = city, .values = 3},
                              {.name = "area", .input = 0, .mean = 2, .std = 4},
                              {.name = "price", .input = -1}};
    const ga_csv_spec spec = {3, 4, 3, 0, 1, GA_F64, true, column, false};
    static const double expect[] = {0.5, 0, 1.5, 1, -0.25, 2}, prices[] = {10, 20, 30};
    double f[6], target[3];
    ga_err e = {0};
    put_file(path, text, strlen(text));
    assert_int_equal(ga_csv_inputs(&spec), 2);
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), 0);
    assert_memory_equal(f, expect, sizeof f);
    assert_memory_equal(target, prices, sizeof target);
    column[1].value = &city[1]; /* "" is no longer known */
    column[1].values = 2;
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), GA_INPUT);
    assert_has(e.msg, "columns.csv:4: column 2: found '', expected a category of the training rows");
    column[1].unknown = true;
    assert_int_equal(ga_csv_read(path, &spec, (void *[]){f, target}, &e), 0);
    assert_true(f[1] == 0 && f[3] == 1 && f[5] == 2);
}

static void dataset_refusals(void **state) {
    scratch *s = *state;
    static const struct {
        const char *text;
        bool header;
        const char *says;
    } table[] = {
        {"1,2,3\n4,5,6\n", true, ":1: column 3: found a line of numbers, but header = true says"},
        {"a,b,c\n4,5\n", true, ":2: 2 columns found, 3 expected"},
        {"a,b\r,c\n4,5,6\n", true, ":1: column 2: found a carriage return without"},
        {"a,b,c\n", true, "no rows found, at least one expected"},
        {"", true, "no rows found, at least one expected"},
        {"a,b,c\n1,2,3\n", false, "found 'a', expected a finite decimal number; if the first line is a "
                              "header, say header = true"},
        {"1,2,3\n1,b,3\n", false, ":2: column 2: found 'b', expected a finite decimal number"},
        {"1,2,3\n4e37,2,3\n", false, ":2: column 1: 4e+38 is too large for F32"},
        {"1,2,3\n1,2,4e38\n", false, ":2: column 3: 4e+38 is too large for F32"},
    };
    ga_csv_spec spec = {.columns = 3, .target = 2, .scale = 10, .dtype = GA_F32};
    char first[200];
    snprintf(first, sizeof first, "%s/first.csv", s->path);
    put_file(first, "1,2,3\n", 6);
    const char *path = scratch_path(s, "bad.csv"), *both[] = {first, path};
    ga_scan scan;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_err e = {0};
        put_file(path, table[i].text, strlen(table[i].text));
        spec.header = table[i].header;
        assert_int_equal(ga_csv_scan_parts(&path, 1, &spec, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, path);
    }
    ga_err e = {0};
    put_file(path, "1,2,3,4\n", 8);
    assert_int_equal(ga_csv_scan_parts(both, 2, &spec, &scan, &e), GA_INPUT);
    assert_has(e.msg, "bad.csv:1: more than 3 columns found, 3 expected");
}

static void digits(void **state) {
    (void)state;
    const char *path = "specs/data/digits/digits.csv.gz"; /* shipped with the project */
    ga_csv_shape shape;
    ga_err e;
    const ga_csv_spec spec = {.columns = 65, .target = 64, .scale = 1, .dtype = GA_F64};
    assert_int_equal(ga_csv_scan(path, &spec, &shape, &e), 0);
    assert_int_equal(shape.rows, 1797);
    assert_true(shape.target_min == 0 && shape.target_max == 9 && shape.odd_line == 0);
}

int test_csv(void);
int test_csv(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(values),
                                       cmocka_unit_test(refusals), cmocka_unit_test(zipped),
                                       cmocka_unit_test(digits), cmocka_unit_test(dataset),
                                       cmocka_unit_test(dataset_refusals), cmocka_unit_test(quoted),
                                       cmocka_unit_test(columns)};
    return cmocka_run_group_tests_name("csv", tests, scratch_setup, scratch_teardown);
}
