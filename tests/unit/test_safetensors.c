/* safetensors: round trips with conversion, and the table of files that must be refused. */
#include "scratch.h"

#include "files/safetensors.h"

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
    f[9] = NAN; /* --save-init and --dump write non-finite values */
    ga_array a = array_of(f, GA_F32, ""), b = array_of(g, GA_F32, ""),
             wide = array_of(d, GA_F64, "");
    assert_int_equal(ga_safetensors_save(path, &a, 1, &e), 0);
    assert_int_equal(ga_safetensors_load(path, NULL, &b, 1, NULL, 0, &e), 0);
    assert_int_equal(ga_safetensors_load(path, NULL, &wide, 1, NULL, 0, &e), 0);
    for (int i = 0; i < PARAMS; i++)
        for (int l = 0; l < params[i].count; l++)
            for (int64_t k = 0; k < params[i].n; k++) {
                int64_t at = ga_layout_index(&params[i], l, k);
                assert_memory_equal(&f[at], &g[at], 4);
                assert_true(d[at] == (double)f[at] || at == 9);
            }
    assert_true(g[6] == 0 && g[18] == 0); /* padding is not written */
    struct stat st;
    stat(path, &st);
    assert_int_equal(st.st_size, ga_safetensors_bytes(&a, 1, NULL, 0));
    assert_int_equal(ga_safetensors_save(path, &wide, 1, &e), 0); /* F64 file into F32 memory */
    assert_int_equal(ga_safetensors_load(path, NULL, &b, 1, NULL, 0, &e), GA_INPUT);
    assert_has(e.msg, "'fc1.weight' is F64, which F32 would round");
    assert_int_equal(ga_safetensors_init(path, &b, 1, NULL, true, &e), 0);
    assert_true(g[25] == f[25]);
    assert_int_equal(ga_safetensors_save("/nowhere/x", &a, 1, &e), GA_INPUT);
}

static void notes_and_checksums(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "n.safetensors");
    static float big[3 << 20]; /* 12 MiB: more than three blocks with the header */
    ga_param one = {"big", 0, 1, 1, {3 << 20}, 0, 0, 3 << 20};
    ga_array a = {&one, 1, "", GA_F32, big, NULL, NULL};
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
    assert_int_equal(ga_safetensors_load(path, NULL, &a, 1, back, 2, &e), 0);
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
        int64_t length; /* 0: the true length */
    } table[] = {
        {"{" X "}", NULL, 8, 0}, /* the valid one */
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
         "tensor 'x': dtype 'Q9' is unknown", 8, 0},
        {"{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "tensor 'x': dtype '' is unknown", 8, 0},
        {"{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}",
         "do not give the size", 1, 0},
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
        {"{\"x\":7}", "tensor 'x': dtype '' is unknown", 8, 0},
        {"{" X "}", "beyond the end of the file", 4, 0},
        {"{" X "}", "bytes after the last tensor", 12, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", "overlap", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
         "overlaps another tensor", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[12,16]}}", "leave a hole",
         16, 0},
        {"{" X ",\"__metadata__\":3}", "__metadata__ is not an object", 8, 0},
        {"{" X ",\"__metadata__\":{\"a\":[]}}", "__metadata__ holds something beside texts", 8, 0},
        {"{" X ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}",
         "'y' is not in the model", 12, 0},
        {"{\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "'x' is missing; 'y' is not in the model", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}",
         "'x' has shape (1, 2), (2) expected", 8, 0},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
         "'x' has shape (3), (2) expected", 12, 0},
        {"{\"x\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "'x' is I32, F16, BF16, F32 or F64 expected", 8, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        float memory[2] = {7, 8};
        ga_array a = {x, 1, "", GA_F32, memory, NULL, NULL};
        ga_err e = {0};
        int64_t length = table[i].length ? table[i].length : (int64_t)strlen(table[i].header);
        put_raw(path, (uint64_t)length, table[i].header, table[i].data);
        int code = ga_safetensors_load(path, NULL, &a, 1, NULL, 0, &e);
        assert_int_equal(code, table[i].says ? GA_INPUT : 0);
        if (!table[i].says) continue;
        assert_has(e.msg, table[i].says);
        assert_has(e.msg, path);
        assert_true(memory[0] == 7 && memory[1] == 8); /* no value was loaded */
    }
}

static void kinds(void **state) {
    scratch *s = *state;
    float memory[SPACE];
    ga_array a = array_of(memory, GA_F32, "");
    ga_err e;
    assert_int_equal(ga_safetensors_load(scratch_path(s, "none"), NULL, &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(ga_safetensors_load(s->path, NULL, &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(mkfifo(scratch_path(s, "fifo"), 0600), 0);
    assert_int_equal(ga_safetensors_load(s->file, NULL, &a, 1, NULL, 0, &e), GA_INPUT);
    assert_int_equal(symlink("loop", scratch_path(s, "loop")), 0);
    assert_int_equal(ga_safetensors_load(s->file, NULL, &a, 1, NULL, 0, &e), GA_INPUT);
    char *deep = malloc(60000);
    memset(deep, '[', 60000);
    memcpy(deep, "\x50\xc3\0\0\0\0\0\0{\"x\":", 13); /* 50,000 bytes of header: a depth bomb */
    put_file(scratch_path(s, "deep"), deep, 60000);
    assert_int_equal(ga_safetensors_load(s->file, NULL, &a, 1, NULL, 0, &e), GA_INPUT);
    free(deep);
}

/* Value of each finite pattern of a 16-bit type, from the pattern below: the values of one exponent have
 * equal distances. */
static double next_value(double value, int bits, int mantissa, int bias) {
    int exponent = bits >> mantissa;
    return value + ldexp(1, (exponent > 1 ? exponent : 1) - bias - mantissa);
}

static void all_patterns(scratch *s, const char *dtype, int mantissa, int bias) {
    enum { PATTERNS = 1 << 16 };
    static unsigned char file[256 + 2 * PATTERNS];
    static double d[PATTERNS];
    static float f[PATTERNS];
    const char *path = scratch_path(s, dtype);
    static const ga_param all = {"x", 0, 1, 1, {PATTERNS}, 0, 0, PATTERNS};
    ga_array wide = {&all, 1, "", GA_F64, d, NULL, NULL}, narrow = {&all, 1, "", GA_F32, f, NULL, NULL};
    ga_err e;
    int n = snprintf((char *)file + 8, 248,
                     "{\"x\":{\"dtype\":\"%s\",\"shape\":[65536],\"data_offsets\":[0,131072]}}", dtype);
    memset(file, 0, 8);
    file[0] = (unsigned char)n;
    for (int i = 0; i < PATTERNS; i++) {
        file[8 + n + 2 * i] = (unsigned char)i;
        file[8 + n + 2 * i + 1] = (unsigned char)(i >> 8);
    }
    put_file(path, file, 8 + (size_t)n + 2 * PATTERNS);
    if (ga_safetensors_load(path, NULL, &wide, 1, NULL, 0, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(ga_safetensors_init(path, &narrow, 1, NULL, true, &e), 0);
    const int infinite = (0x7fff >> mantissa) << mantissa;
    double value = 0;
    for (int i = 0; i < PATTERNS / 2; i++) {
        const double up = d[i], down = d[i + PATTERNS / 2];
        if (i < infinite)
            assert_true(up == value && down == -value && !signbit(up) && signbit(down));
        else if (i == infinite)
            assert_true(up == INFINITY && down == -INFINITY);
        else
            assert_true(isnan(up) && isnan(down));
        assert_true(isnan(up) ? isnan(f[i]) : (double)f[i] == up);
        assert_true(isnan(down) ? isnan(f[i + PATTERNS / 2]) : (double)f[i + PATTERNS / 2] == down);
        value = next_value(value, i, mantissa, bias);
    }
}

static void half_types(void **state) {
    all_patterns(*state, "F16", 10, 15);
    all_patterns(*state, "BF16", 7, 127);
}

static void rounding(void **state) {
    const char *path = scratch_path(*state, "wide");
    static const ga_param x = {"x", 0, 1, 1, {4}, 0, 0, 4};
    double d[4] = {1 + ldexp(1, -25), -INFINITY, ldexp(1, -149) * 1.25, -1e38};
    float f[4] = {0};
    ga_array wide = {&x, 1, "", GA_F64, d, NULL, NULL}, narrow = {&x, 1, "", GA_F32, f, NULL, NULL};
    ga_err e;
    assert_int_equal(ga_safetensors_save(path, &wide, 1, &e), 0);
    assert_int_equal(ga_safetensors_init(path, &narrow, 1, NULL, true, &e), 0);
    assert_true(f[0] == 1 && f[1] == -INFINITY && f[2] == ldexpf(1, -149) && f[3] == -1e38f);
    d[3] = -1e39;
    assert_int_equal(ga_safetensors_save(path, &wide, 1, &e), 0);
    assert_int_equal(ga_safetensors_init(path, &narrow, 1, NULL, true, &e), GA_INPUT);
    assert_has(e.msg, "'x' holds -1e+39, too large for F32");
}

/* For --init a file may hold more than the model, but must hold all of it. */
static void initial_values(void **state) {
    const char *path = scratch_path(*state, "init");
    float f[SPACE], g[SPACE] = {0};
    ga_param fewer[PARAMS];
    ga_err e;
    for (int i = 0; i < SPACE; i++) f[i] = (float)i;
    ga_array a = array_of(f, GA_F32, ""), b = {fewer, 2, "", GA_F32, g, NULL, NULL};
    memcpy(fewer, params, sizeof params);
    assert_int_equal(ga_safetensors_save(path, &a, 1, &e), 0);
    assert_int_equal(ga_safetensors_load(path, NULL, &b, 1, NULL, 0, &e), GA_INPUT);
    assert_has(e.msg, "'h.4.ln.weight' is not in the model");
    assert_int_equal(ga_safetensors_init(path, &b, 1, NULL, false, &e), 0);
    assert_true(g[9] == 9 && g[16] == 0);
    fewer[1].shape[0] = fewer[1].n = 3;
    fewer[0].name = "fc7.weight";
    assert_int_equal(ga_safetensors_init(path, &b, 1, NULL, false, &e), GA_INPUT);
    assert_has(e.msg, "nothing loaded: 'fc7.weight' is missing; 'fc1.bias' has shape (2), (3) expected");
}

/* A model with names as in pretrained files: body, norm, head. */
static const ga_param named[] = {{"bert.fc.weight", 0, 1, 1, {1}, 0, 0, 1},
                                 {"bert.%d.LayerNorm.weight", 0, 2, 1, {1}, 1, 1, 1},
                                 {"bert.%d.LayerNorm.bias", 0, 2, 1, {1}, 3, 1, 1},
                                 {"head.weight", 0, 1, 1, {1}, 5, 0, 1}};

/* Writes a file of tensors with these names, "a b c", and the values 1, 2, ... in order. */
static void names_file(const char *path, const char *names) {
    char header[2048], name[64];
    double values[8];
    int n = 0, used = 1;
    header[0] = '{';
    for (; sscanf(names, "%63s", name) == 1; n++) {
        used += snprintf(header + used, sizeof header - (size_t)used,
                         "%s\"%s\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[%d,%d]}", n ? "," : "",
                         name, 8 * n, 8 * n + 8);
        values[n] = n + 1;
        names = strstr(names, name) + strlen(name);
    }
    header[used++] = '}';
    unsigned char file[4096] = {(unsigned char)used, (unsigned char)(used >> 8)};
    memcpy(file + 8, header, (size_t)used);
    memcpy(file + 8 + used, values, (size_t)n * sizeof *values);
    put_file(path, file, 8 + (size_t)used + (size_t)n * sizeof *values);
}

/* Loads a file of these names as --init does; expects the values in the order of the model, or the message. */
static void names_are_taken(void **state, const char *names, const char *fresh, const char *expected) {
    const char *path = scratch_path(*state, "names");
    double x[6] = {0};
    char found[600];
    ga_array a = {named, 4, "", GA_F64, x, NULL, NULL};
    ga_err e = {0};
    names_file(path, names);
    if (ga_safetensors_init(path, &a, 1, fresh, false, &e) == 0)
        snprintf(found, sizeof found, "%g %g %g %g %g %g", x[0], x[1], x[2], x[3], x[4], x[5]);
    else
        snprintf(found, sizeof found, "%s", e.msg);
    if (!strstr(found, expected)) fail_msg("%s: found '%s', expected '%s'", names, found, expected);
}

static void names_of_others(void **state) {
    names_are_taken(state, "bert.fc.weight bert.0.LayerNorm.weight bert.1.LayerNorm.weight bert.0.LayerNorm.bias "
                           "bert.1.LayerNorm.bias head.weight", NULL, "1 2 3 4 5 6");
    names_are_taken(state, "bert.0.LayerNorm.gamma bert.0.LayerNorm.beta bert.1.LayerNorm.beta "
                           "bert.1.LayerNorm.gamma bert.fc.weight head.weight", NULL, "5 1 4 2 3 6");
    names_are_taken(state, "fc.weight 0.LayerNorm.weight 0.LayerNorm.bias 1.LayerNorm.gamma 1.LayerNorm.beta "
                           "head.weight", NULL, "1 2 4 3 5 6");
    /* a file with one name with the model's prefix needs no prefix */
    names_are_taken(state, "bert.fc.weight 0.LayerNorm.weight 0.LayerNorm.bias 1.LayerNorm.weight 1.LayerNorm.bias "
                           "head.weight", NULL, "'bert.0.LayerNorm.weight' is missing");
    /* both gamma and weight: weight is loaded, gamma is ignored */
    names_are_taken(state, "bert.fc.weight bert.0.LayerNorm.gamma bert.0.LayerNorm.weight bert.1.LayerNorm.weight "
                           "bert.0.LayerNorm.bias bert.1.LayerNorm.bias head.weight", NULL, "1 3 4 5 6 7");
}

/* Sends stderr to a file until stderr_back(saved). */
static int stderr_to(const char *path) {
    fflush(stderr);
    int saved = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 2);
    close(fd);
    return saved;
}

static void stderr_back(int saved) {
    dup2(saved, 2);
    close(saved);
}

/* Loads a file whose head.weight is longer than the model's; the lines on stderr become text[size]. */
static int load_reshaped(void **state, const char *fresh, double *x, char *text, size_t size, ga_err *e) {
    static const double stored[] = {7, 8, 9, 10};
    static const ga_param wide[] = {{"fc.weight", 0, 1, 1, {1}, 0, 0, 1}, {"head.weight", 0, 1, 1, {3}, 1, 0, 3}};
    static const ga_param narrow[] = {{"fc.weight", 0, 1, 1, {1}, 0, 0, 1}, {"head.weight", 0, 1, 1, {2}, 1, 0, 2},
                                      {"tail.weight", 0, 1, 1, {1}, 3, 0, 1}};
    ga_array file = {wide, 2, "", GA_F64, (void *)stored, NULL, NULL}, memory = {narrow, 3, "", GA_F64, x, NULL, NULL};
    size_t n;
    assert_int_equal(ga_safetensors_save(scratch_path(*state, "reshaped"), &file, 1, e), 0);
    int saved = stderr_to(scratch_path(*state, "said"));
    int code = ga_safetensors_init(scratch_path(*state, "reshaped"), &memory, 1, fresh, true, e);
    stderr_back(saved);
    char *found = get_file(scratch_path(*state, "said"), &n);
    snprintf(text, size, "%.*s", (int)n, found);
    free(found);
    return code;
}

/* --fresh takes a tensor of another shape too: its values stay, the others are loaded. */
static void fresh_shapes(void **state) {
    double x[] = {1, 2, 3, 4};
    char said[600];
    ga_err e = {0};
    assert_int_equal(load_reshaped(state, "head.*,tail.*", x, said, sizeof said, &e), 0);
    assert_true(x[0] == 7 && x[1] == 2 && x[2] == 3 && x[3] == 4);
    assert_has(said, ": parameters of another shape in it keep their initial values (1): "
                     "'head.weight' has shape (3), (2) expected\n");
    assert_has(said, ": parameters that are not in it keep their initial values (1): 'tail.weight'\n");
    x[0] = 1;
    assert_int_equal(load_reshaped(state, "tail.*", x, said, sizeof said, &e), GA_INPUT);
    assert_has(e.msg, "'head.weight' has shape (3), (2) expected; --fresh GLOB keeps the initial values of names");
    assert_true(x[0] == 1);
    assert_int_equal(load_reshaped(state, "fc.*,tail.*", x, said, sizeof said, &e), GA_INPUT);
}

static void fresh_names(void **state) {
    const char *body = "fc.weight 0.LayerNorm.weight 1.LayerNorm.weight 0.LayerNorm.bias 1.LayerNorm.bias";
    names_are_taken(state, body, NULL,
                    "'head.weight' is missing; --fresh GLOB keeps the initial values of names of GLOB");
    names_are_taken(state, body, "head.*", "1 2 3 4 5 0");
    names_are_taken(state, body, "*", "1 2 3 4 5 0");
    names_are_taken(state, body, "tail.*,hea*", "1 2 3 4 5 0");
    names_are_taken(state, body, "*ea*wei*t", "1 2 3 4 5 0");
    names_are_taken(state, body, "head", "'head.weight' is missing");
    names_are_taken(state, body, "tail.*", "'head.weight' is missing");
    names_are_taken(state, "bert.fc.weight bert.0.LayerNorm.weight bert.1.LayerNorm.weight bert.0.LayerNorm.bias "
                           "bert.1.LayerNorm.bias head.weight", "head.*",
                    "--fresh head.*: ");
}

/* More differences than a message has room for: stderr has a line for each. */
static void many_differences(void **state) {
    scratch *s = *state;
    const ga_param deep = {"transformer.h.%d.attention.output.dense.weight", 0, 24, 1, {2}, 0, 2, 2};
    float memory[48];
    ga_array a = array_of(memory, GA_F32, ""), b = {&deep, 1, "", GA_F32, memory, NULL, NULL};
    ga_err e;
    size_t n;
    assert_int_equal(ga_safetensors_save(scratch_path(s, "many"), &a, 1, &e), 0);
    int saved = stderr_to(scratch_path(s, "lines"));
    int code = ga_safetensors_check(scratch_path(s, "many"), NULL, &b, 1, true, &e);
    stderr_back(saved);
    assert_int_equal(code, GA_INPUT);
    assert_has(e.msg, "24 missing, 0 of another shape or type, 6 not in the model; each is named above");
    char *text = get_file(scratch_path(s, "lines"), &n);
    assert_has(text, "many: 'transformer.h.23.attention.output.dense.weight' is missing\n");
    assert_has(text, "many: 'gain' is not in the model\n");
    free(text);
}

/* Every proper prefix of a file is refused, without reads beyond it. */
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
        assert_int_equal(ga_safetensors_load(path, NULL, &a, 1, NULL, 0, NULL), GA_INPUT);
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
                                       cmocka_unit_test(half_types),
                                       cmocka_unit_test(rounding),
                                       cmocka_unit_test(initial_values),
                                       cmocka_unit_test(names_of_others),
                                       cmocka_unit_test(fresh_names),
                                       cmocka_unit_test(fresh_shapes),
                                       cmocka_unit_test(many_differences),
                                       cmocka_unit_test(cuts)};
    return cmocka_run_group_tests_name("safetensors", tests, scratch_setup, scratch_teardown);
}
