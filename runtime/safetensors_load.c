/* safetensors_load.c: the reader. A file is a stranger's: everything about the header is checked
 * before one value is stored, and data is read (not mapped), so that a file cut short meanwhile is
 * an error. */
#include "safetensors.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
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
    if (read_at(f, buffer, (int64_t)size, f->at) < 0) return (size_t)-1;
    f->at += (int64_t)size;
    return size;
}

static const struct {
    const char *name;
    int bytes;
} types[] = {{"F32", 4}, {"F64", 8}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
             {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
             {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};

static int type_bytes(const char *name) {
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].bytes;
    return 0;
}

static int refuse_tensor(file *f, const char *name, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: tensor '%.100s': %s", f->path, name, what);
}

/* Product of a shape times size, -1 if it is no shape or too large. */
static int64_t shape_bytes(const json_t *shape, int64_t size) {
    int64_t bytes = size;
    if (!json_is_array(shape)) return -1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *n = json_array_get(shape, i);
        if (!json_is_integer(n) || json_integer_value(n) < 0) return -1;
        if (__builtin_mul_overflow(bytes, (int64_t)json_integer_value(n), &bytes)) return -1;
    }
    return bytes;
}

/* One entry of the header; its range of the data, in bytes. */
static int check_entry(file *f, const char *name, const json_t *value, int64_t *begin,
                       int64_t *end) {
    const json_t *offsets = json_object_get(value, "data_offsets");
    int size = type_bytes(json_string_value(json_object_get(value, "dtype")));
    int64_t data = f->bytes - 8 - f->header;
    if (size == 0) return refuse_tensor(f, name, "no known dtype");
    if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return refuse_tensor(f, name, "data_offsets are not two whole numbers");
    *begin = json_integer_value(json_array_get(offsets, 0));
    *end = json_integer_value(json_array_get(offsets, 1));
    if (*begin < 0 || *begin > *end)
        return refuse_tensor(f, name, "data_offsets begin after their end");
    if (*end > data) return refuse_tensor(f, name, "data reaches beyond the end of the file");
    if (shape_bytes(json_object_get(value, "shape"), size) != *end - *begin)
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

static int check_entries(file *f) {
    const char *name;
    json_t *value, *ends = json_object();
    size_t ranges = 0;
    int code = ends ? GA_OK : ga_fail(f->e, GA_ENVIRONMENT, "%s: no memory", f->path);
    json_object_foreach(f->root, name, value) {
        char key[32];
        int64_t begin = 0, end = 0;
        if (code < 0) break;
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_is_object(value)) code = refuse(f, "__metadata__ is not an object");
            continue;
        }
        code = check_entry(f, name, value, &begin, &end);
        if (code < 0 || begin == end) continue;
        snprintf(key, sizeof key, "%lld", (long long)begin);
        if (json_object_get(ends, key)) code = refuse_tensor(f, name, "overlaps another tensor");
        json_object_set_new(ends, key, json_integer(end));
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

/* What is wrong with the entry for p, or NULL. */
static const char *difference(const json_t *value, const ga_param *p) {
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_t *shape = json_object_get(value, "shape");
    if (!value) return "missing";
    if (strcmp(dtype, "F32") != 0 && strcmp(dtype, "F64") != 0) return "neither F32 nor F64";
    if ((int)json_array_size(shape) != p->rank) return "of another rank";
    for (int d = 0; d < p->rank; d++)
        if (json_integer_value(json_array_get(shape, (size_t)d)) != p->shape[d])
            return "of another shape";
    return NULL;
}

static void add_difference(ga_text *t, int *found, const char *name, const char *what) {
    if (++*found <= 5) ga_text_add(t, "%s'%.60s' is %s", *found > 1 ? ", " : "", name, what);
}

/* Compares the names both ways. The extra ones are those of the file that no array asks for; wanted
 * names are taken out of a shallow copy, the rest is extra. */
static int check_arrays(file *f, const ga_array *arrays, int count) {
    char list[400] = "", name[GA_NAME_MAX];
    ga_text t = {.base = list, .size = sizeof list};
    int found = 0;
    const char *extra;
    json_t *value, *rest = json_copy(f->root);
    if (!rest) return ga_fail(f->e, GA_ENVIRONMENT, "%s: no memory", f->path);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++) {
                const ga_param *p = &arrays[i].params[k];
                ga_param_name(p, l, arrays[i].suffix, name);
                const char *what = difference(json_object_get(f->root, name), p);
                if (what) add_difference(&t, &found, name, what);
                json_object_del(rest, name);
            }
    json_object_del(rest, "__metadata__");
    json_object_foreach(rest, extra, value) add_difference(&t, &found, extra, "not wanted");
    json_decref(rest);
    if (found > 5) ga_text_add(&t, " and %d more", found - 5);
    return found ? ga_fail(f->e, GA_INPUT, "%s: does not fit the model, nothing loaded: %s",
                           f->path, list)
                 : GA_OK;
}

static int load_tensor(file *f, const ga_array *a, const ga_param *p, int l) {
    char name[GA_NAME_MAX];
    _Alignas(16) char buffer[BUFFER];
    const json_t *value = json_object_get(f->root, ga_param_name(p, l, a->suffix, name));
    const json_t *offsets = json_object_get(value, "data_offsets");
    int64_t from = 8 + f->header + json_integer_value(json_array_get(offsets, 0));
    ga_dtype dtype =
        strcmp(json_string_value(json_object_get(value, "dtype")), "F64") == 0 ? GA_F64 : GA_F32;
    int64_t size = (int64_t)ga_dtype_bytes(dtype), start = ga_layout_index(p, l, 0);
    if (dtype == a->dtype) return read_at(f, (char *)a->base + start * size, p->n * size, from);
    for (int64_t i = 0; i < p->n;) {
        int64_t part = BUFFER / size < p->n - i ? BUFFER / size : p->n - i;
        GA_TRY(read_at(f, buffer, part * size, from + i * size));
        for (int64_t j = 0; j < part; j++)
            ga_set(a->base, a->dtype, start + i + j, ga_get(buffer, dtype, j));
        i += part;
    }
    return GA_OK;
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

int ga_safetensors_check(const char *path, const ga_array *arrays, int count, ga_err *e) {
    file f;
    GA_TRY(file_open(&f, path, e));
    int code = check_arrays(&f, arrays, count);
    file_close(&f);
    return code;
}

int ga_safetensors_load(const char *path, const ga_array *arrays, int count, ga_note *notes,
                        int note_count, ga_err *e) {
    file f;
    GA_TRY(file_open(&f, path, e));
    int code = check_arrays(&f, arrays, count);
    if (code == GA_OK) code = load_arrays(&f, arrays, count);
    if (code == GA_OK) load_notes(&f, notes, note_count);
    file_close(&f);
    return code;
}
