/* Streamed files: their rows against those of the same files kept in memory, row by row; faults,
 * truncated gzip files, files of another length. */
#include "scratch.h"

#include "data/csv.h"
#include "data/windows.h"

typedef struct files {
    char path[3][300];
    ga_part part[3];
} files;

/* Writes files of these texts; names that end in .gz are compressed. */
static void write_files(files *f, const scratch *s, const char *const name[], const char *const text[],
                        int n) {
    for (int i = 0; i < n; i++) {
        snprintf(f->path[i], sizeof f->path[i], "%s/%s", s->path, name[i]);
        const size_t length = strlen(name[i]);
        if (length > 3 && strcmp(name[i] + length - 3, ".gz") == 0) {
            gzFile z = gzopen(f->path[i], "wb");
            assert_int_equal(gzwrite(z, text[i], (unsigned)strlen(text[i])), strlen(text[i]));
            gzclose(z);
        } else {
            put_file(f->path[i], text[i], strlen(text[i]));
        }
    }
    for (int i = 0; i < n; i++) f->part[i] = (ga_part){.path = f->path[i]};
}

enum { WIDTH_MAX = 6000 };

/* Checks, in two passes, that the rows of the feed are those of `kept`. */
static void check_feed(const ga_source *stream, const ga_source *kept) {
    static double input[2][WIDTH_MAX], target[2][WIDTH_MAX];
    void *const a[] = {input[0], target[0]}, *const b[] = {input[1], target[1]};
    const ga_feed *f = &stream->feed;
    ga_err e;
    assert_int_equal(stream->fields, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(stream->field[i].width == kept->field[i].width && kept->field[i].width <= WIDTH_MAX);
        assert_true(stream->field[i].type == kept->field[i].type);
    }
    for (int pass = 0; pass < 3; pass++) {
        assert_int_equal(f->rewind(f->self, &e), 0);
        const int64_t until = pass == 1 ? kept->rows / 2 : kept->rows;
        for (int64_t row = 0; row < until; row++) {
            const bool over = pass == 2 && row % 3 == 1; /* skipped */
            memset(input, 0, sizeof input);
            memset(target, 0, sizeof target);
            assert_int_equal(f->next(f->self, over ? NULL : b, &e), 1);
            if (over) continue;
            kept->decode(kept, row, NULL, a);
            assert_memory_equal(input[0], input[1], sizeof input[0]);
            assert_memory_equal(target[0], target[1], sizeof target[0]);
        }
        if (pass != 1)
            for (int again = 0; again < 2; again++) assert_int_equal(f->next(f->self, b, &e), 0);
    }
    f->close(f->self);
    f->close(f->self);
}

/* Reads the feed up to the faulty row; checks the number of rows and the message. */
static int64_t rows_before(const ga_source *stream, bool over, ga_err *e) {
    static double input[WIDTH_MAX], target[WIDTH_MAX];
    void *const out[] = {input, target};
    const ga_feed *f = &stream->feed;
    int64_t n = 0;
    int code = f->rewind(f->self, e);
    while (code == 0 && (code = f->next(f->self, over ? NULL : out, e)) == 1) n++, code = 0;
    f->close(f->self);
    assert_true(code < 0 || (code == 0 && (e->msg[0] = 0) == 0));
    return n;
}

static void csv_files(void **state) {
    scratch *s = *state;
    static const char *const name[] = {"a.csv", "b.csv.gz", "c.csv"};
    char text[3][600] = {"p,q,r\n", "p,q,r\n", "p,q,r\n"};
    for (int i = 0; i < 40; i++) {
        char *to = text[i < 7 ? 0 : i < 33 ? 1 : 2];
        sprintf(to + strlen(to), "%d.25,%d,%g\n", i, i % 3, -i / 7.0);
    }
    files f;
    write_files(&f, s, name, (const char *const[]){text[0], text[1], text[2]}, 3);
    const char *path[] = {f.path[0], f.path[1], f.path[2]};
    for (int real = GA_F32; real <= GA_F64; real++) {
        const ga_csv_spec spec = {.columns = 3, .target = 1, .classes = 3, .scale = 0.3,
                                  .dtype = (ga_dtype)real, .header = true};
        ga_part part[3];
        ga_scan scan;
        ga_err e;
        assert_int_equal(ga_csv_scan_parts(path, 3, &spec, &scan, &e), 0);
        for (int i = 0; i < 3; i++) part[i] = (ga_part){path[i], scan.count[i]};
        ga_arena a = open_arena(scan.bytes), b = open_arena(scan.stream_bytes);
        ga_source kept, stream;
        assert_int_equal(ga_csv_open(&kept, part, 3, &spec, &a, &e), 0);
        assert_int_equal(ga_csv_stream(&stream, f.part, 3, &spec, &b, &e), 0);
        assert_int_equal(ga_padded(b.used), scan.stream_bytes);
        assert_int_equal(kept.rows, 40);
        check_feed(&stream, &kept);
        ga_arena_close(&a);
        ga_arena_close(&b);
    }
}

static void csv_faults(void **state) {
    scratch *s = *state;
    static const char *const name[] = {"a.csv", "b.csv"};
    static const struct {
        const char *text;
        int64_t rows;
        const char *says;
    } table[] = {
        {"5,6,1\n7,8,2\n", 4, ""},
        {"5,6,1\n7,8\n", 3, "b.csv:2: 2 columns found, 3 expected"},
        {"5,6,1\n7,8,1,1\n", 3, "b.csv:2: more than 3 columns found, 3 expected"},
        {"5,6,3\n", 2, "b.csv:1: column 3: target 3, expected a whole number in 0..2"},
        {"5,x,1\n", 2, "b.csv:1: column 2: found 'x', expected a finite decimal number"},
        {"5,6,1\n5,1e39,1\n", 3, "b.csv:2: column 2: 1e+39 is too large for F32"},
        {"", 2, "b.csv: no rows found, at least one expected"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        files f;
        write_files(&f, s, name, (const char *const[]){"1,2,0\n3,4,1\n", table[i].text}, 2);
        const ga_csv_spec spec = {.columns = 3, .target = 2, .classes = 3, .scale = 1, .dtype = GA_F32};
        ga_arena a = open_arena(1 << 20);
        ga_source stream;
        ga_err e = {0};
        assert_int_equal(ga_csv_stream(&stream, f.part, 2, &spec, &a, &e), 0);
        for (int over = 0; over < 2; over++) { /* skipped rows are checked too */
            assert_int_equal(rows_before(&stream, over, &e), table[i].rows);
            assert_has(e.msg, table[i].says);
            if (*table[i].says == 0) assert_int_equal(e.msg[0], 0);
        }
        unlink(f.path[1]);
        assert_int_equal(rows_before(&stream, false, &e), 2);
        assert_has(e.msg, "b.csv: ");
        ga_arena_close(&a);
    }
}

/* A gzip file truncated anywhere gives whole rows, then an error. */
static void cut_gzip(void **state) {
    scratch *s = *state;
    static const char *const name[] = {"a.csv.gz"};
    char text[4000] = "";
    for (int i = 0; i < 300; i++) sprintf(text + strlen(text), "%d,%d,%d\n", i * i % 97, i, i % 3);
    files f;
    write_files(&f, s, name, (const char *const[]){text}, 1);
    size_t n;
    char *whole = get_file(f.path[0], &n);
    const ga_csv_spec spec = {.columns = 3, .target = 2, .classes = 3, .scale = 1, .dtype = GA_F32};
    ga_arena a = open_arena(1 << 20);
    ga_source stream;
    ga_err e = {0};
    assert_int_equal(ga_csv_stream(&stream, f.part, 1, &spec, &a, &e), 0);
    assert_int_equal(rows_before(&stream, false, &e), 300);
    int64_t last = 0;
    for (size_t cut = 1; cut < n; cut += 41) {
        put_file(f.path[0], whole, cut);
        const int64_t rows = rows_before(&stream, false, &e);
        assert_true(rows >= last && rows < 300);
        assert_has(e.msg, "a.csv.gz: gzip data ends early");
        last = rows;
    }
    put_file(f.path[0], whole, n - 1);
    assert_int_equal(rows_before(&stream, false, &e), 300);
    assert_has(e.msg, "gzip data ends early");
    free(whole);
    ga_arena_close(&a);
}

static void text_files(void **state) {
    scratch *s = *state;
    static const char *const name[] = {"a.txt", "b.txt", "c.txt"};
    static const unsigned char vocabulary[] = "abcdefghijklmnop";
    static char text[3][9000];
    static const int length[] = {5, 8000, 4099};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < length[i]; k++) text[i][k] = (char)('a' + (k * k + k / 7 + i) % 16);
    files f;
    write_files(&f, s, name, (const char *const[]){text[0], text[1], text[2]}, 3);
    static const int context[] = {1, 4, 7, 1024, 5000, 12103, 12104};
    const char *path[] = {f.path[0], f.path[1], f.path[2]};
    for (size_t i = 0; i < sizeof context / sizeof *context; i++) {
        ga_part part[3];
        for (int k = 0; k < 3; k++) part[k] = (ga_part){path[k], length[k]};
        const ga_text_spec spec = {part, 3, context[i], vocabulary, 16};
        ga_scan scan;
        ga_err e;
        assert_int_equal(ga_text_scan(path, 3, NULL, &scan, &e), 0);
        ga_arena a = open_arena(scan.bytes), b = open_arena(scan.stream_bytes);
        ga_source kept, stream;
        const bool fits = ga_text_open(&kept, &spec, &a, &e) == 0;
        assert_int_equal(fits, context[i] < 12104);
        assert_int_equal(ga_text_stream(&stream, &spec, &b, &e), 0);
        assert_int_equal(ga_padded(b.used), scan.stream_bytes);
        if (context[i] <= WIDTH_MAX) check_feed(&stream, &kept);
        else assert_int_equal(rows_before(&stream, true, &e), fits);
        ga_arena_close(&a);
        ga_arena_close(&b);
    }
    text[2][4000] = 'z';
    put_file(f.path[2], text[2], 4099);
    const ga_text_spec spec = {f.part, 3, 100, vocabulary, 16};
    ga_arena a = open_arena(1 << 20);
    ga_source stream;
    ga_err e = {0};
    assert_int_equal(ga_text_stream(&stream, &spec, &a, &e), 0);
    assert_int_equal(rows_before(&stream, false, &e), (5 + 8000 + 4000 - 1) / 100);
    assert_has(e.msg, "c.txt: byte 0x7a at offset 4000 does not occur");
    ga_arena_close(&a);
}

/* Token files of llm.c, with 16 and 32 bits, and raw ones. */
static void token_files(void **state) {
    scratch *s = *state;
    enum { TOKENS = 3000 };
    static unsigned char file[2][1024 + 4 * TOKENS];
    static const char *const name[] = {"a.bin", "b.bin"};
    for (int kind = 0; kind < 3; kind++) {
        const int width = kind == 2 ? 4 : 2, header = kind ? 1024 : 0;
        files f;
        write_files(&f, s, name, (const char *const[]){"", ""}, 2);
        const char *path[] = {f.path[0], f.path[1]};
        for (int i = 0; i < 2; i++) {
            const int32_t head[] = {width == 4 ? 20240801 : 20240520, width == 4 ? 7 : 1, TOKENS};
            memset(file[i], 0, 1024);
            memcpy(file[i], head, header ? sizeof head : 0);
            for (uint32_t k = 0; k < TOKENS; k++) {
                const uint32_t token = (k * k + 3 * k + (uint32_t)i) % 5003;
                memcpy(file[i] + header + (size_t)k * (size_t)width, &token, (size_t)width);
            }
            put_file(path[i], file[i], (size_t)(header + TOKENS * width));
            f.part[i].count = TOKENS;
        }
        const ga_tokens_spec spec = {f.part, 2, 37, width, 5003};
        ga_scan scan;
        ga_err e = {0};
        ga_source kept, stream;
        assert_int_equal(ga_tokens_scan(path, 2, &scan, &e), 0);
        ga_arena a = open_arena(scan.bytes), b = open_arena(scan.stream_bytes);
        assert_int_equal(ga_tokens_open(&kept, &spec, &a, &e), 0);
        assert_int_equal(ga_tokens_stream(&stream, &spec, &b, &e), 0);
        assert_int_equal(ga_padded(b.used), scan.stream_bytes);
        check_feed(&stream, &kept);
        memset(file[1] + header + 50 * width, 0x7f, 2); /* 32639 */
        put_file(path[1], file[1], (size_t)(header + TOKENS * width));
        assert_int_equal(rows_before(&stream, false, &e), (TOKENS + 50 - 1) / 37);
        assert_has(e.msg, "b.bin: token 32639 at place 50, expected 0..5002");
        put_file(path[1], file[1], (size_t)(header + TOKENS * width) - 1);
        assert_int_equal(rows_before(&stream, false, &e), (TOKENS - 1) / 37);
        assert_has(e.msg, kind ? "it is cut off or damaged" : "an odd number is cut off");
        const int32_t other[] = {width == 4 ? 20240520 : 20240801, width == 4 ? 1 : 7, 0};
        memset(file[1], 0, 1024);
        memcpy(file[1], other, sizeof other);
        const int32_t few = 4;
        memcpy(file[1] + 8, &few, sizeof few);
        put_file(path[1], file[1], (size_t)(1024 + few * (6 - width)));
        assert_int_equal(rows_before(&stream, false, &e), (TOKENS - 1) / 37);
        assert_has(e.msg, width == 4 ? "b.bin: 16-bit tokens found, 32-bit tokens" : "b.bin: 32-bit tokens found, 16-bit tokens");
        ga_arena_close(&a);
        ga_arena_close(&b);
    }
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int test_feeds(void);
int test_feeds(void) {
    const struct CMUnitTest tests[] = {WITH_FOLDER(csv_files), WITH_FOLDER(csv_faults),
                                       WITH_FOLDER(cut_gzip), WITH_FOLDER(text_files),
                                       WITH_FOLDER(token_files)};
    return cmocka_run_group_tests_name("feeds", tests, NULL, NULL);
}
