/* safetensors_load.c: the reader. A file is a stranger's: everything about the header is checked
 * before one value is stored, and data is read (not mapped), so that a file cut short meanwhile is
 * an error. */
#include "safetensors.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20, BUFFER = 1 << 14 };

typedef struct {
    const char *path;
    int fd;
    int64_t bytes;  /* of the file */
    int64_t header; /* bytes of the header text */
    int64_t at;     /* next byte the JSON reader gets */
    int code;       /* of reading it */
    json_t *root;
    ga_err *e;
} file;

static int refuse(file *f, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: %s", f->path, what);
}

static int read_at(file *f, void *to, int64_t n, int64_t from) {
    char *at = to;
    while (n > 0) {
        ssize_t got = pread(f->fd, at, (size_t)n, from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return ga_fail(f->e, GA_ENVIRONMENT, "%s: cannot be read: %s", f->path,
                           strerror(errno));
        if (got == 0) return refuse(f, "became shorter while it was read");
        at += got;
        n -= got;
        from += got;
    }
    return GA_OK;
}

static size_t json_source(void *buffer, size_t size, void *arg) {
    file *f = arg;
    int64_t left = 8 + f->header - f->at;
    if ((int64_t)size > left) size = (size_t)left;
    f->code = read_at(f, buffer, (int64_t)size, f->at);
    if (f->code < 0) return (size_t)-1;
    f->at += (int64_t)size;
    return size;
}

/* All element types of the format; those that gagen does not read may stand in a file that is not
 * asked for them. */
static const struct {
    const char *name;
    int bits;
} types[] = {{"F64", 64},     {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},
             {"I32", 32},     {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
             {"U16", 16},     {"U8", 8},      {"BOOL", 8},    {"C64", 64},    {"F8_E4M3", 8},
             {"F8_E5M2", 8},  {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
             {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

static int type_bits(const char *name) {
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].bits;
    return 0;
}

/* Those that are read; false for the others. */
static bool float_type(const char *name, ga_dtype *out) {
    static const ga_dtype read[] = {GA_F32, GA_BF16, GA_F16, GA_F64};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (strcmp(name, ga_dtype_name(read[i])) == 0) {
            *out = read[i];
            return true;
        }
    return false;
}

static int refuse_memory(file *f) {
    return ga_fail(f->e, GA_ENVIRONMENT, "%s: no memory for its header", f->path);
}

static int refuse_tensor(file *f, const char *name, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: tensor '%.100s': %s", f->path, name, what);
}

/* Bytes of a shape of so many bits an element; -1 if it is no shape or too large. */
static int64_t shape_bytes(const json_t *shape, int bits) {
    int64_t n = bits;
    if (!json_is_array(shape)) return -1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) return -1;
        if (__builtin_mul_overflow(n, (int64_t)json_integer_value(size), &n)) return -1;
    }
    return n % 8 == 0 ? n / 8 : -1;
}

/* One entry of the header; its range of the data, in bytes. */
static int check_entry(file *f, const char *name, const json_t *value, int64_t *begin,
                       int64_t *end) {
    const json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const int bits = type_bits(dtype);
    const int64_t data = f->bytes - 8 - f->header;
    if (bits == 0)
        return ga_fail(f->e, GA_INPUT, "%s: tensor '%.100s': dtype '%.20s' is unknown", f->path,
                       name, dtype ? dtype : "");
    if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return refuse_tensor(f, name, "data_offsets are not two whole numbers");
    *begin = json_integer_value(json_array_get(offsets, 0));
    *end = json_integer_value(json_array_get(offsets, 1));
    if (*begin < 0 || *begin > *end)
        return refuse_tensor(f, name, "data_offsets begin after their end");
    if (*end > data) return refuse_tensor(f, name, "data reaches beyond the end of the file");
    if (shape_bytes(json_object_get(value, "shape"), bits) != *end - *begin)
        return refuse_tensor(f, name, "shape and dtype do not give the size of data_offsets");
    return GA_OK;
}

/* The ranges must follow each other from 0 to the end: each is entered under its begin, then
 * walked. */
static int check_coverage(file *f, const json_t *ends, size_t ranges) {
    int64_t at = 0;
    char key[32];
    for (; ranges > 0; ranges--) {
        snprintf(key, sizeof key, "%lld", (long long)at);
        const json_t *end = json_object_get(ends, key);
        if (!end) return refuse(f, "tensors overlap or leave a hole in the data");
        at = json_integer_value(end);
    }
    if (at != f->bytes - 8 - f->header)
        return refuse(f, "bytes after the last tensor, expected none");
    return GA_OK;
}

static int check_metadata(file *f, json_t *value) {
    const char *key;
    json_t *text;
    if (!json_is_object(value)) return refuse(f, "__metadata__ is not an object");
    json_object_foreach(value, key, text) {
        if (!json_is_string(text)) return refuse(f, "__metadata__ holds something beside texts");
    }
    return GA_OK;
}

static int check_entries(file *f) {
    const char *name;
    json_t *value, *ends = json_object();
    size_t ranges = 0;
    int code = ends ? GA_OK : refuse_memory(f);
    json_object_foreach(f->root, name, value) {
        char key[32];
        int64_t begin = 0, end = 0;
        if (code < 0) break;
        if (strcmp(name, "__metadata__") == 0) {
            code = check_metadata(f, value);
            continue;
        }
        code = check_entry(f, name, value, &begin, &end);
        if (code < 0 || begin == end) continue;
        snprintf(key, sizeof key, "%lld", (long long)begin);
        if (json_object_get(ends, key))
            code = refuse_tensor(f, name, "overlaps another tensor");
        else if (json_object_set_new(ends, key, json_integer(end)))
            code = refuse_memory(f);
        ranges++;
    }
    if (code == GA_OK) code = check_coverage(f, ends, ranges);
    json_decref(ends);
    return code;
}

static int read_header(file *f) {
    unsigned char length[8];
    uint64_t header = 0;
    json_error_t error;
    char first;
    if (f->bytes < 10) return refuse(f, "too short for a safetensors file");
    GA_TRY(read_at(f, length, 8, 0));
    for (int i = 0; i < 8; i++) header |= (uint64_t)length[i] << 8 * i;
    if (header < 2 || header > HEADER_MAX || header > (uint64_t)f->bytes - 8)
        return ga_fail(
            f->e, GA_INPUT,
            "%s: header of %llu bytes in a file of %lld: not a safetensors file, or cut off",
            f->path, (unsigned long long)header, (long long)f->bytes);
    f->header = (int64_t)header;
    GA_TRY(read_at(f, &first, 1, 8));
    if (first != '{')
        return refuse(f, "the header does not start with '{': not a safetensors file");
    f->at = 8;
    f->root = json_load_callback(json_source, f, JSON_REJECT_DUPLICATES, &error);
    if (f->code < 0) return f->code;
    if (!f->root) return ga_fail(f->e, GA_INPUT, "%s: header: %s", f->path, error.text);
    return check_entries(f);
}

static int file_open(file *f, const char *path, ga_err *e) {
    struct stat st;
    *f = (file){.path = path, .e = e};
    f->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (f->fd < 0) return ga_fail(e, GA_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    int code = GA_OK;
    if (fstat(f->fd, &st) || !S_ISREG(st.st_mode)) code = refuse(f, "not a regular file");
    f->bytes = code == GA_OK ? (int64_t)st.st_size : 0;
    if (code == GA_OK) code = read_header(f);
    if (code < 0) {
        json_decref(f->root);
        close(f->fd);
    }
    return code;
}

static void file_close(file *f) {
    json_decref(f->root);
    close(f->fd);
}

/* How a file may differ from the arrays that it is loaded into. */
typedef struct {
    bool extra;  /* it may hold tensors that no array asks for */
    bool narrow; /* its values may be of a wider type: they are rounded */
    bool speak;  /* on stderr: differences that one message has no room for, and what is left */
} rules;

static const rules EXACT = {false, false, false};

typedef struct {
    file *f;
    rules rules;
    bool lines; /* each difference is a line on stderr, else it goes into list */
    int missing, differ, extra;
    char text[360];
    ga_text list;
} comparison;

static const json_t *entry_of(file *f, const ga_array *a, const ga_param *p, int l, char *name) {
    return json_object_get(f->root, ga_param_name(p, l, a->suffix, name));
}

static const char *dtype_text(const json_t *entry) {
    return json_string_value(json_object_get(entry, "dtype"));
}

static void add_difference(comparison *c, const char *name, const char *what) {
    if (c->lines)
        ga_say("%s: '%.255s' %s", c->f->path, name, what);
    else
        ga_text_add(&c->list, "%s'%.100s' %s", c->list.used ? "; " : "", name, what);
}

/* "has shape (20, 10), (64, 64) expected" */
static void shape_difference(const json_t *shape, const ga_param *p, ga_text *t) {
    ga_text_add(t, "has shape (");
    for (size_t d = 0; d < json_array_size(shape); d++)
        ga_text_add(t, d ? ", %lld" : "%lld",
                    (long long)json_integer_value(json_array_get(shape, d)));
    ga_text_add(t, "), (");
    for (int d = 0; d < p->rank; d++) ga_text_add(t, d ? ", %lld" : "%lld", (long long)p->shape[d]);
    ga_text_add(t, ") expected");
}

static bool same_shape(const json_t *shape, const ga_param *p) {
    if (json_array_size(shape) != (size_t)p->rank) return false;
    for (int d = 0; d < p->rank; d++)
        if (json_integer_value(json_array_get(shape, (size_t)d)) != p->shape[d]) return false;
    return true;
}

static void compare_tensor(comparison *c, const ga_array *a, const ga_param *p, int l) {
    char name[GA_NAME_MAX], what[400] = "";
    ga_text t = {.base = what, .size = sizeof what};
    ga_dtype dtype;
    const json_t *entry = entry_of(c->f, a, p, l, name), *shape = json_object_get(entry, "shape");
    if (!entry) {
        c->missing++;
        add_difference(c, name, "is missing");
        return;
    }
    if (!same_shape(shape, p))
        shape_difference(shape, p, &t);
    else if (!float_type(dtype_text(entry), &dtype))
        ga_text_add(&t, "is %s, F16, BF16, F32 or F64 expected", dtype_text(entry));
    else if (ga_dtype_bytes(dtype) > ga_dtype_bytes(a->dtype) && !c->rules.narrow)
        ga_text_add(&t, "is %s, which %s would round", ga_dtype_name(dtype),
                    ga_dtype_name(a->dtype));
    else
        return;
    c->differ++;
    add_difference(c, name, what);
}

/* What else the file holds: wanted names are taken out of a shallow copy. */
static int compare_extra(comparison *c, const ga_array *arrays, int count) {
    char name[GA_NAME_MAX];
    const char *extra;
    json_t *value, *rest = json_copy(c->f->root);
    if (!rest) return refuse_memory(c->f);
    json_object_del(rest, "__metadata__");
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                json_object_del(rest,
                                ga_param_name(&arrays[i].params[k], l, arrays[i].suffix, name));
    c->extra = (int)json_object_size(rest);
    json_object_foreach(rest, extra, value) {
        if (c->rules.extra)
            ga_text_add(&c->list, "%s'%.100s'", c->list.used ? ", " : "", extra);
        else
            add_difference(c, extra, "is not in the model");
    }
    json_decref(rest);
    return GA_OK;
}

static int compare(comparison *c, const ga_array *arrays, int count) {
    c->missing = c->differ = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                compare_tensor(c, &arrays[i], &arrays[i].params[k], l);
    return c->rules.extra ? GA_OK : compare_extra(c, arrays, count);
}

static int refuse_differences(comparison *c, const ga_array *arrays, int count) {
    const char *where = "";
    if (c->list.full && c->rules.speak) {
        c->lines = true;
        where = "; each is named above";
        GA_TRY(compare(c, arrays, count));
    }
    if (!c->list.full)
        return ga_fail(c->f->e, GA_INPUT, "%s: does not fit the model, nothing loaded: %s",
                       c->f->path, c->text);
    return ga_fail(c->f->e, GA_INPUT,
                   "%s: does not fit the model, nothing loaded: %d missing, %d of another shape or "
                   "type, %d not in the model%s; the first: %.200s",
                   c->f->path, c->missing, c->differ, c->extra, where, c->text);
}

/* Compares the names both ways, shapes and types. */
static int check_arrays(file *f, const ga_array *arrays, int count, rules r) {
    comparison c = {.f = f, .rules = r};
    c.list = (ga_text){.base = c.text, .size = sizeof c.text};
    GA_TRY(compare(&c, arrays, count));
    if (c.missing || c.differ || c.extra) return refuse_differences(&c, arrays, count);
    if (!r.extra) return GA_OK;
    GA_TRY(compare_extra(&c, arrays, count));
    if (c.extra && r.speak)
        ga_say("%s: %d tensors are not in the model and are left: %s%s", f->path, c.extra, c.text,
               c.list.full ? ", ..." : "");
    return GA_OK;
}

/* Values of another type than memory's, read in parts. */
static int load_converted(file *f, const ga_array *a, int64_t start, int64_t n, ga_dtype dtype,
                          int64_t from, const char *name) {
    _Alignas(16) char buffer[BUFFER];
    const int64_t size = (int64_t)ga_dtype_bytes(dtype);
    for (int64_t i = 0; i < n;) {
        int64_t part = BUFFER / size < n - i ? BUFFER / size : n - i;
        GA_TRY(read_at(f, buffer, part * size, from + i * size));
        for (int64_t j = 0; j < part; j++) {
            const double value = ga_get(buffer, dtype, j);
            ga_set(a->base, a->dtype, start + i + j, value);
            if (isfinite(value) && !isfinite(ga_get(a->base, a->dtype, start + i + j)))
                return ga_fail(f->e, GA_INPUT, "%s: '%.100s' holds %g, too large for %s", f->path,
                               name, value, ga_dtype_name(a->dtype));
        }
        i += part;
    }
    return GA_OK;
}

static int load_tensor(file *f, const ga_array *a, const ga_param *p, int l) {
    char name[GA_NAME_MAX];
    ga_dtype dtype = GA_F32;
    const json_t *entry = entry_of(f, a, p, l, name);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t from = 8 + f->header + json_integer_value(json_array_get(offsets, 0));
    int64_t size = (int64_t)ga_dtype_bytes(a->dtype), start = ga_layout_index(p, l, 0);
    float_type(dtype_text(entry), &dtype);
    if (dtype == a->dtype) return read_at(f, (char *)a->base + start * size, p->n * size, from);
    return load_converted(f, a, start, p->n, dtype, from, name);
}

static int load_arrays(file *f, const ga_array *arrays, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++)
                GA_TRY(load_tensor(f, &arrays[i], &arrays[i].params[k], l));
    return GA_OK;
}

static void load_notes(file *f, ga_note *notes, int count) {
    const json_t *all = json_object_get(f->root, "__metadata__");
    for (int i = 0; i < count; i++) {
        const char *text = json_string_value(json_object_get(all, notes[i].key));
        snprintf(notes[i].value, sizeof notes[i].value, "%s", text ? text : "");
    }
}

int ga_safetensors_check(const char *path, const ga_array *arrays, int count, bool speak,
                         ga_err *e) {
    file f;
    rules r = EXACT;
    r.speak = speak;
    GA_TRY(file_open(&f, path, e));
    int code = check_arrays(&f, arrays, count, r);
    file_close(&f);
    return code;
}

int ga_safetensors_load(const char *path, const ga_array *arrays, int count, ga_note *notes,
                        int note_count, ga_err *e) {
    file f;
    GA_TRY(file_open(&f, path, e));
    int code = check_arrays(&f, arrays, count, EXACT);
    if (code == GA_OK) code = load_arrays(&f, arrays, count);
    if (code == GA_OK) load_notes(&f, notes, note_count);
    file_close(&f);
    return code;
}

int ga_safetensors_init(const char *path, const ga_array *arrays, int count, bool speak,
                        ga_err *e) {
    file f;
    GA_TRY(file_open(&f, path, e));
    int code = check_arrays(&f, arrays, count, (rules){true, true, speak});
    if (code == GA_OK) code = load_arrays(&f, arrays, count);
    file_close(&f);
    return code;
}
