/* JSON that is read while memory is missing: words and numbers of many lengths, since jansson's blocks of 16, 32, ...
 * characters grow inside of them. */
#include "scratch.h"

/* A reader of its own: that of the library may already be in use, with the usual functions behind it. */
#define ga_json_read own_json_read
#define ga_json_parse own_json_parse
#define ga_json_open own_json_open
#include "files/json_file.c"

/* The allocation that fails, counted down; those behind it too if `on`. */
static long countdown;
static bool on;

static void *failing(size_t n) {
    countdown -= countdown >= 0;
    return countdown == 0 || (on && countdown < 0) ? NULL : malloc(n);
}

static void never(void) {
    countdown = -1;
    on = false;
}

/* Reads `text` with the n-th allocation failing, for all n until none fails. */
static void read_without_memory(const char *text, const json_t *expected) {
    for (int persistent = 0; persistent < 2; persistent++)
        for (long n = 1, failed = 1; failed; n++) {
            ga_err e = {0};
            json_t *root;
            countdown = n;
            on = persistent;
            const int code = ga_json_parse(&root, text, (int64_t)strlen(text), "x.json", &e);
            failed = countdown <= 0;
            never();
            assert_int_equal(code, failed ? GA_ENVIRONMENT : GA_OK);
            if (failed) assert_string_equal(e.msg, "x.json: no memory to read it");
            assert_true(failed ? !root : json_equal(root, expected));
            json_decref(root);
        }
}

static void words(void **state) {
    (void)state;
    char text[512];
    for (int length = 1; length < 140; length++) {
        snprintf(text, sizeof text, "{\"%0*d\": [%0*d.5e3, \"%0*d\", 1%0*d]}", length, 0, 1, 7, length, 1, length % 17, 0);
        never();
        json_t *expected = json_loads(text, 0, NULL);
        assert_non_null(expected);
        read_without_memory(text, expected);
        json_decref(expected);
        snprintf(text, sizeof text, "[0.%0*d, -1.%0*de-5]", length, 3, length + 1, 0);
        expected = json_loads(text, 0, NULL);
        assert_non_null(expected);
        read_without_memory(text, expected);
        json_decref(expected);
    }
}

/* Behind the failure at most 1 KiB more is read, of brackets and objects too. */
static void brackets(void **state) {
    (void)state;
    char text[4096] = "";
    never();
    for (int i = 0; i < 1000; i++) strcat(text, "[");
    for (int i = 0; i < 1000; i++) strcat(text, "]");
    json_t *expected = json_loads(text, 0, NULL);
    read_without_memory(text, expected);
    json_decref(expected);
    strcpy(text, "[{}");
    for (int i = 0; i < 1000; i++) strcat(text, ",{}");
    strcat(text, "]");
    expected = json_loads(text, 0, NULL);
    read_without_memory(text, expected);
    json_decref(expected);
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } table[] = {{"", "x.json: '[' or '{' expected near end of file"},
                 {"{\"a\": 1", "x.json: '}' expected near end of file"},
                 {"{\"a\": 1, \"a\": 2}", "x.json: duplicate object key near '\"a\"'"},
                 {"{} x", "x.json: end of file expected near 'x'"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        ga_err e = {0};
        json_t *root;
        assert_int_equal(ga_json_parse(&root, table[i].text, (int64_t)strlen(table[i].text), "x.json", &e), GA_INPUT);
        assert_string_equal(e.msg, table[i].message);
        assert_null(root);
    }
}

static int use_failing(void **state) {
    (void)state;
    never();
    json_set_alloc_funcs(failing, free);
    return 0;
}

int test_json(void);
int test_json(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(words), cmocka_unit_test(brackets), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests_name("json", tests, use_failing, NULL);
}
