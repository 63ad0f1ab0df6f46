/* tensors.c: .safetensors files as datasets: every tensor is the field of its name, in the order of
 * names; all have the same number of rows. */
#include "data/arrays.h"
#include "files/safetensors_file.h"

#include <stdio.h>
#include <string.h>

enum { PIECE = 1 << 15 };

/* One tensor of an open file. */
typedef struct tensor {
    const char *name;
    ga_element element;
    int rank; /* including the axis of rows */
    int64_t shape[GA_FIELD_RANK + 1], width, first, bytes; /* first: offset in the file */
} tensor;

static bool is_identifier(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    return n > 0 && n < GA_FIELD_NAME && name[n] == 0 && name[0] > '9' && name[0] != '_';
}

static int refuse(const ga_tensors_file *f, const tensor *t, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: tensor '%.100s': %s", f->path, t->name, what);
}

/* Reads an entry of a checked header: its dtype, shape and range agree. */
static int read_entry(const ga_tensors_file *f, const char *name, const json_t *entry, tensor *t) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *range = json_object_get(entry, "data_offsets");
    *t = (tensor){.name = name, .element = ga_element_find(dtype)};
    if (!is_identifier(name))
        return refuse(f, t, "expected letters, digits and _ in its name, a letter first, at most 63");
    if (t->element == GA_ELEMENTS)
        return ga_fail(f->e, GA_INPUT, "%s: tensor '%s': elements of type %s are not taken", f->path,
                       name, dtype);
    if (json_array_size(shape) == 0) return refuse(f, t, "a single number, expected rows");
    if (json_array_size(shape) > GA_FIELD_RANK + 1) return refuse(f, t, "more axes than 6");
    t->rank = (int)json_array_size(shape);
    for (int i = 0; i < t->rank; i++)
        t->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
    t->width = ga_row_width(t->shape + 1, t->rank - 1);
    if (t->shape[0] == 0 || t->width < 0) return refuse(f, t, "an extent is 0, or rows too large");
    t->first = 8 + f->header + json_integer_value(json_array_get(range, 0));
    t->bytes = t->shape[0] * t->width * ga_element_bytes(t->element);
    return GA_OK;
}

/* Reads the entries of all tensors, sorted by name; returns their number. */
static int read_entries(const ga_tensors_file *f, tensor list[GA_FIELDS]) {
    const char *name;
    json_t *entry;
    int n = 0;
    json_object_foreach(f->root, name, entry) {
        tensor t;
        if (strcmp(name, "__metadata__") == 0) continue;
        GA_TRY(read_entry(f, name, entry, &t));
        if (n == GA_FIELDS)
            return ga_fail(f->e, GA_INPUT, "%s: more than %d tensors, expected a dataset of at most "
                                           "%d: one each for the fields of a row",
                           f->path, GA_FIELDS, GA_FIELDS);
        int at = n++;
        for (; at > 0 && strcmp(list[at - 1].name, name) > 0; at--) list[at] = list[at - 1];
        list[at] = t;
    }
    if (n == 0) return ga_fail(f->e, GA_INPUT, "%s: no tensors, expected the fields of a row", f->path);
    for (int i = 1; i < n; i++)
        if (list[i].shape[0] != list[0].shape[0])
            return ga_fail(f->e, GA_INPUT, "%s: tensor '%s' has %lld rows, '%s' has %lld: expected as "
                                           "many",
                           f->path, list[i].name, (long long)list[i].shape[0], list[0].name,
                           (long long)list[0].shape[0]);
    return n;
}

/* Title of a tensor in messages. */
typedef struct title {
    char text[400];
} title;

static const char *title_of(const ga_tensors_file *f, const tensor *t, title *out) {
    snprintf(out->text, sizeof out->text, "%.300s: tensor '%s'", f->path, t->name);
    return out->text;
}

static bool same_row(const tensor *t, ga_element element, const int64_t *shape, int rank) {
    return t->element == element && t->rank - 1 == rank &&
           memcmp(t->shape + 1, shape, (size_t)rank * sizeof *shape) == 0;
}

static int scan_tensor(ga_tensors_file *f, const tensor *t, ga_scan_field *field, ga_dtype real) {
    _Alignas(8) unsigned char piece[PIECE];
    title text;
    const ga_array_field all = {
        .element = t->element, .ids = field->ids, .low = INT32_MIN, .high = INT32_MAX};
    ga_array_part p = {title_of(f, t, &text), t->width, &all, real, field};
    for (int64_t at = 0; at < t->bytes; at += PIECE) {
        int64_t n = t->bytes - at < PIECE ? t->bytes - at : PIECE;
        GA_TRY(ga_tensors_file_read(f, piece, n, t->first + at));
        GA_TRY(ga_array_take(&p, piece, n, at, f->e));
    }
    return GA_OK;
}

static void scan_shape(const tensor *t, ga_scan_field *field) {
    *field = (ga_scan_field){.rank = t->rank - 1, .element = (int)t->element};
    snprintf(field->name, sizeof field->name, "%s", t->name);
    memcpy(field->shape, t->shape + 1, (size_t)field->rank * sizeof *field->shape);
    if (ga_element_whole(t->element)) ga_scan_ids(field);
}

static int scan_file(ga_tensors_file *f, int part, ga_dtype real, ga_scan *out) {
    tensor list[GA_FIELDS];
    int n = read_entries(f, list);
    GA_TRY(n);
    if (part == 0) out->fields = n;
    if (n != out->fields)
        return ga_fail(f->e, GA_INPUT, "%s: %d tensors, the first file has %d", f->path, n,
                       out->fields);
    out->count[part] = list[0].shape[0];
    for (int i = 0; i < n; i++) {
        ga_scan_field *field = &out->field[i];
        if (part == 0) scan_shape(&list[i], field);
        if (strcmp(field->name, list[i].name) != 0 ||
            !same_row(&list[i], (ga_element)field->element, field->shape, field->rank))
            return refuse(f, &list[i], "not of the name, type and shape of the first file's");
        field->part = part;
        GA_TRY(scan_tensor(f, &list[i], field, real));
    }
    return GA_OK;
}

int ga_tensors_scan(const char *const *path, int parts, ga_dtype real, ga_scan *out, ga_err *e) {
    *out = (ga_scan){.parts = parts};
    for (int i = 0; i < parts; i++) {
        ga_tensors_file f;
        GA_TRY(ga_tensors_file_open(&f, path[i], NULL, e));
        int code = scan_file(&f, i, real, out);
        ga_tensors_file_close(&f);
        GA_TRY(code);
    }
    out->bytes = ga_arrays_bytes(out);
    return GA_OK;
}

static int read_tensor(ga_tensors_file *f, const ga_array_field *field, int64_t rows, ga_dtype real,
                       unsigned char **to) {
    tensor t;
    title text;
    const json_t *entry = json_object_get(f->root, field->name);
    if (!entry)
        return ga_fail(f->e, GA_INPUT, "%s: has no tensor '%s': is it the file the program was "
                                       "made for?",
                       f->path, field->name);
    GA_TRY(read_entry(f, field->name, entry, &t));
    if (t.shape[0] != rows || !same_row(&t, field->element, field->shape, field->rank))
        return ga_fail(f->e, GA_INPUT, "%s: tensor '%s': %lld rows of %lld %s, expected %lld of %lld "
                                       "%s, of the same shape: is it the file the program was made for?",
                       f->path, t.name, (long long)t.shape[0], (long long)t.width,
                       ga_element_name(t.element), (long long)rows,
                       (long long)ga_row_width(field->shape, field->rank),
                       ga_element_name(field->element));
    ga_array_part p = {title_of(f, &t, &text), t.width, field, real, NULL};
    GA_TRY(ga_tensors_file_read(f, *to, t.bytes, t.first));
    GA_TRY(ga_array_take(&p, *to, t.bytes, 0, f->e));
    *to += t.bytes;
    return GA_OK;
}

static int read_file(ga_tensors_file *f, const ga_arrays_spec *s, int64_t rows,
                     unsigned char *base[GA_FIELDS]) {
    tensor list[GA_FIELDS];
    int n = read_entries(f, list);
    GA_TRY(n);
    if (n != s->fields)
        return ga_fail(f->e, GA_INPUT, "%s: %d tensors, expected %d: is it the file the program was "
                                       "made for?",
                       f->path, n, s->fields);
    for (int k = 0; k < n; k++) GA_TRY(read_tensor(f, &s->field[k], rows, s->real, &base[k]));
    return GA_OK;
}

int ga_tensors_open(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e) {
    unsigned char *base[GA_FIELDS];
    GA_TRY(ga_arrays_source(out, s, base, a, e));
    for (int i = 0; i < s->parts; i++) {
        ga_tensors_file f;
        GA_TRY(ga_tensors_file_open(&f, s->part[i].path, NULL, e));
        int code = read_file(&f, s, s->part[i].count, base);
        ga_tensors_file_close(&f);
        GA_TRY(code);
    }
    return GA_OK;
}

/* Reads all fields but the target, with as many rows as the first one has. */
static int read_predicted(ga_source *out, ga_tensors_file *f, const ga_arrays_spec *s, ga_arena *a) {
    unsigned char *base[GA_FIELDS];
    tensor first;
    const char *name = s->field[0].name;
    const json_t *entry = json_object_get(f->root, name);
    if (!entry) return ga_fail(f->e, GA_INPUT, "%s: has no tensor '%s', which the model reads", f->path, name);
    GA_TRY(read_entry(f, name, entry, &first));
    GA_TRY(ga_arrays_predicted(out, s, first.shape[0], base, a, f->e));
    for (int k = 0; k < s->fields - 1; k++)
        GA_TRY(read_tensor(f, &s->field[k], first.shape[0], s->real, &base[k]));
    return GA_OK;
}

int ga_tensors_predicted(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e) {
    ga_tensors_file f;
    GA_TRY(ga_tensors_file_open(&f, s->part[0].path, NULL, e));
    const int code = read_predicted(out, &f, s, a);
    ga_tensors_file_close(&f);
    return code;
}
