/* Text and tokens: windows, vocabulary, both layouts of token files, tables of refusals. */
#include "scratch.h"

#include "data/windows.h"

enum { CONTEXT = 4 };

static const char first[] = "to be, or not", second[] = " to be";

static void text_values(void **state) {
    scratch *s = *state;
    char a_path[200], b_path[200];
    snprintf(a_path, sizeof a_path, "%s/a.txt", s->path);
    snprintf(b_path, sizeof b_path, "%s/b.txt", s->path);
    put_file(a_path, first, sizeof first - 1);
    put_file(b_path, second, sizeof second - 1);
    const char *path[] = {a_path, b_path};
    ga_scan scan;
    ga_err e;
    assert_int_equal(ga_text_scan(path, 2, NULL, &scan, &e), 0);
    assert_true(scan.count[0] == 13 && scan.count[1] == 6);
    static const unsigned char vocabulary[] = " ,benort"; /* sorted */
    int known = 0;
    for (int i = 0; i < 256; i++) {
        known += scan.seen[i];
        assert_true(scan.seen[i] == (i > 0 && strchr((const char *)vocabulary, i) != NULL));
    }
    assert_int_equal(known, 8);
    assert_true(scan.field[0].ids && scan.field[0].low == 0 && scan.field[0].high == 7);
    const ga_part part[] = {{a_path, 13}, {b_path, 6}};
    const ga_text_spec spec = {part, 2, CONTEXT, vocabulary, 8};
    ga_arena a = open_arena(8192);
    ga_source source;
    assert_int_equal(ga_text_open(&source, &spec, &a, &e), 0);
    assert_int_equal(ga_padded(a.used), scan.bytes);
    assert_int_equal(source.rows, (13 + 6 - 1) / CONTEXT);
    assert_true(source.field[0].type == GA_I32 && source.field[1].width == CONTEXT);
    int32_t input[CONTEXT], target[CONTEXT];
    void *const out[] = {input, target};
    static const char all[] = "to be, or not to be";
    for (int row = 0; row < 4; row++) {
        source.decode(&source, row, NULL, out);
        for (int t = 0; t < CONTEXT; t++) {
            assert_int_equal(vocabulary[input[t]], all[row * CONTEXT + t]);
            assert_int_equal(vocabulary[target[t]], all[row * CONTEXT + t + 1]);
        }
    }
    ga_arena_close(&a);
}

static void text_refusals(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "c.txt");
    static const unsigned char vocabulary[] = "abc";
    const ga_part part = {path, 6};
    const ga_text_spec spec = {&part, 1, 2, vocabulary, 3}, wide = {&part, 1, 6, vocabulary, 3};
    static const struct {
        const char *text;
        const char *says;
    } table[] = {
        {"abcab\x80", "byte 0x80 at offset 5 does not occur in the training text"},
        {"abd", "byte 0x64 at offset 2 does not occur"},
        {"", "empty, expected text"},
        {"\x1f\x8b\x08 zip", "gzip data, expected text: unpack it first"},
    };
    bool allowed[256] = {false};
    for (int i = 0; i < 3; i++) allowed[vocabulary[i]] = true;
    ga_arena a = open_arena(8192);
    ga_source source;
    ga_scan scan;
    ga_err e = {0};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        put_file(path, table[i].text, strlen(table[i].text));
        assert_int_equal(ga_text_scan(&path, 1, allowed, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[i].says);
        a.used = 0;
        assert_int_equal(ga_text_open(&source, &spec, &a, &e), GA_INPUT);
        assert_has(e.msg, path);
    }
    put_file(path, "abcab\x80", 6);
    a.used = 0;
    assert_int_equal(ga_text_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "byte 0x80 at offset 5");
    put_file(path, "abcabca", 7);
    a.used = 0;
    assert_int_equal(ga_text_open(&source, &spec, &a, &e), GA_INPUT);
    assert_has(e.msg, "7 bytes found, 6 expected: is it the file the program was made for?");
    a.used = 0;
    assert_int_equal(ga_text_open(&source, &wide, &a, &e), GA_INPUT);
    assert_has(e.msg, "6 ids give no window of 6 and the one behind it");
    ga_arena_close(&a);
}

/* A token file: header words first (none for raw ones), then the tokens as little-endian numbers. */
static size_t make_tokens(unsigned char *out, uint32_t magic, uint32_t version, uint32_t count,
                          const uint32_t *tokens, int n, int width) {
    const uint32_t words[] = {magic, version, count};
    size_t at = 0;
    if (magic) {
        memset(out, 0, 1024);
        for (int w = 0; w < 3; w++)
            for (int k = 0; k < 4; k++) out[4 * w + k] = (unsigned char)(words[w] >> 8 * k);
        at = 1024;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < width; k++) out[at++] = (unsigned char)(tokens[i] >> 8 * k);
    return at;
}

static void token_values(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "tokens.bin");
    static const uint32_t tokens[] = {50256, 0, 17, 65535, 300, 5, 6, 7, 128000, 9};
    static const struct {
        uint32_t magic, version;
        int n, width;
    } table[] = {{0, 0, 8, 2}, {20240520, 1, 8, 2}, {20240801, 7, 10, 4}};
    unsigned char data[2048];
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        const int n = table[k].n, width = table[k].width;
        put_file(path, data,
                 make_tokens(data, table[k].magic, table[k].version, (uint32_t)n, tokens, n, width));
        ga_scan scan;
        ga_err e;
        const char *twice[] = {path, path};
        assert_int_equal(ga_tokens_scan(twice, 2, &scan, &e), 0);
        assert_true(scan.count[0] == n && scan.count[1] == n && scan.field[0].element == width);
        assert_true(scan.field[0].low == 0 && scan.field[0].high == (width == 2 ? 65535 : 128000));
        const ga_part part[] = {{path, n}, {path, n}};
        const ga_tokens_spec spec = {part, 2, CONTEXT, width, scan.field[0].high + 1};
        ga_arena a = open_arena(8192);
        ga_source source;
        assert_int_equal(ga_tokens_open(&source, &spec, &a, &e), 0);
        assert_int_equal(ga_padded(a.used), scan.bytes);
        assert_int_equal(source.rows, (2 * n - 1) / CONTEXT);
        int32_t input[CONTEXT], target[CONTEXT];
        void *const out[] = {input, target};
        for (int row = 0; row < (int)source.rows; row++) {
            source.decode(&source, row, NULL, out);
            for (int t = 0; t < CONTEXT; t++) {
                assert_int_equal(input[t], tokens[(row * CONTEXT + t) % n]);
                assert_int_equal(target[t], tokens[(row * CONTEXT + t + 1) % n]);
            }
        }
        ga_arena_close(&a);
    }
}

/* A raw file longer than a header, and longer than the read buffer. */
static void long_tokens(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "long.bin");
    for (int n = 600; n <= 60000; n += 59400) {
        unsigned char *data = malloc((size_t)n * 2);
        for (int i = 0; i < 2 * n; i++) data[i] = (unsigned char)(i * 13 + i / 256);
        put_file(path, data, (size_t)n * 2);
        const ga_part part = {path, n};
        const ga_tokens_spec spec = {&part, 1, n / 3, 2, 65536};
        ga_arena a = open_arena((size_t)n * 2 + 8192);
        ga_source source;
        ga_scan scan;
        ga_err e;
        assert_int_equal(ga_tokens_scan(&path, 1, &scan, &e), 0);
        assert_int_equal(scan.count[0], n);
        assert_int_equal(ga_tokens_open(&source, &spec, &a, &e), 0);
        assert_int_equal(source.rows, 2);
        int32_t *input = malloc((size_t)n * sizeof *input), *target = input + n / 2;
        void *const out[] = {input, target};
        for (int row = 0; row < 2; row++) {
            source.decode(&source, row, NULL, out);
            for (int t = 0; t < n / 3; t++) {
                int place = 2 * (row * (n / 3) + t);
                assert_int_equal(input[t], data[place] + 256 * data[place + 1]);
                assert_int_equal(target[t], data[place + 2] + 256 * data[place + 3]);
            }
        }
        free(input);
        free(data);
        ga_arena_close(&a);
    }
}

/* Files that are faulty by themselves: scan and open refuse them. */
static void token_refusals(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "bad.bin");
    static const uint32_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 0xffffffff};
    static const struct {
        uint32_t magic, version, count;
        int n, width, cut;
        const char *says;
    } table[] = {
        {0, 0, 0, 0, 2, 0, "0 bytes, expected 16-bit tokens: the file is empty"},
        {0, 0, 0, 7, 2, 1, "13 bytes, expected 16-bit tokens: an odd number is cut off"},
        {20240520, 2, 7, 7, 2, 0, "token file of version 2, expected 1"},
        {20240801, 1, 7, 7, 4, 0, "token file of version 1, expected 7"},
        {20240520, 1, 8, 7, 2, 0, "the header says 8 tokens, the file has bytes for 7: it is cut off"},
        {20240520, 1, 6, 7, 2, 0, "the header says 6 tokens, the file has bytes for 7"},
        {20240520, 1, 0, 0, 2, 0, "the header says 0 tokens"},
        {20240520, 1, 0xffffffff, 7, 2, 0, "the header says 4294967295 tokens"},
        {20240520, 1, 7, 7, 2, 1, "the header says 7 tokens, the file has bytes for 6 and a part of one: it is"},
        {20240520, 1, 7, 7, 2, -1, "the header says 7 tokens, the file has bytes for 7 and a part of one: it is"},
        {20240801, 7, 7, 7, 4, -3, "the header says 7 tokens, the file has bytes for 7 and a part of one: it is"},
        {20240801, 7, 8, 8, 4, 0, "token 4294967295 at place 7, expected 0..2147483646"},
    };
    unsigned char data[2048] = {0};
    ga_arena a = open_arena(8192);
    const ga_part part = {path, 7};
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        size_t n = make_tokens(data, table[k].magic, table[k].version, table[k].count, tokens,
                               table[k].n, table[k].width);
        put_file(path, data, n - (size_t)table[k].cut);
        const ga_tokens_spec spec = {&part, 1, 2, table[k].width, 100};
        ga_source source;
        ga_scan scan;
        ga_err e = {0};
        assert_int_equal(ga_tokens_scan(&path, 1, &scan, &e), GA_INPUT);
        assert_has(e.msg, table[k].says);
        a.used = 0;
        assert_int_equal(ga_tokens_open(&source, &spec, &a, &e), GA_INPUT);
        assert_has(e.msg, path);
    }
    ga_arena_close(&a);
}

/* Valid files that differ from the program's. */
static void token_differences(void **state) {
    scratch *s = *state;
    char wide[200];
    snprintf(wide, sizeof wide, "%s/wide.bin", s->path);
    const char *path = scratch_path(s, "raw.bin");
    static const uint32_t tokens[] = {1, 2, 3, 99, 5, 6};
    unsigned char data[2048];
    ga_arena a = open_arena(8192);
    ga_source source;
    ga_scan scan;
    ga_err e = {0};
    put_file(wide, data, make_tokens(data, 20240801, 7, 6, tokens, 6, 4));
    put_file(path, data, make_tokens(data, 0, 0, 0, tokens, 6, 2));
    const char *both[] = {path, wide};
    assert_int_equal(ga_tokens_scan(both, 2, &scan, &e), GA_INPUT);
    assert_has(e.msg, "wide.bin: tokens of 4 bytes, the first file has 2");
    const ga_part part = {path, 6}, more = {path, 7}, other = {wide, 6};
    const struct {
        ga_tokens_spec spec;
        const char *says;
    } table[] = {
        {{&part, 1, 2, 2, 99}, "raw.bin: token 99 at place 3, expected 0..98"},
        {{&more, 1, 2, 2, 100}, "6 tokens found, 7 expected: is it the file the program was"},
        {{&other, 1, 2, 2, 100}, "32-bit tokens found, 16-bit tokens expected: is it the file the program was made for"},
        {{&part, 1, 6, 2, 100}, "6 ids give no window of 6"},
    };
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        a.used = 0;
        assert_int_equal(ga_tokens_open(&source, &table[k].spec, &a, &e), GA_INPUT);
        assert_has(e.msg, table[k].says);
    }
    ga_arena_close(&a);
}

int test_windows(void);
int test_windows(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_values),    cmocka_unit_test(text_refusals),
        cmocka_unit_test(token_values),   cmocka_unit_test(token_refusals),
        cmocka_unit_test(token_differences), cmocka_unit_test(long_tokens)};
    return cmocka_run_group_tests_name("windows", tests, scratch_setup, scratch_teardown);
}
