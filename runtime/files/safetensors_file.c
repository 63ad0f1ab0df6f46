/* safetensors_file.c: checks the whole header before a value is read, since the file may come from
 * anywhere. */
#include "files/safetensors_file.h"

#include "files/file.h"
#include "files/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20 };

typedef ga_tensors_file file;

static int refuse(file *f, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: %s", f->path, what);
}

int ga_tensors_file_agree(const file *f, int code) {
    return f->comm ? ga_comm_agree(f->comm, code, f->e) : code;
}

static bool reads(const file *f) {
    return !f->comm || ga_comm_rank(f->comm) == 0;
}

static int read_own(file *f, void *to, int64_t n, int64_t from) {
    int64_t got = ga_file_read(f->fd, to, n, from);
    if (got == n) return GA_OK;
    if (got >= 0) return refuse(f, "became shorter while it was read");
    return ga_fail(f->e, GA_ENVIRONMENT, "%s: cannot be read: %s", f->path, strerror(errno));
}

int ga_tensors_file_read(file *f, void *to, int64_t n, int64_t from) {
    GA_TRY(ga_tensors_file_agree(f, reads(f) ? read_own(f, to, n, from) : GA_OK));
    return f->comm ? ga_comm_broadcast(f->comm, to, (size_t)n, 0, f->e) : GA_OK;
}

/* All element types of the format. A file may contain types that gagen does not read, in tensors that it
 * does not load. */
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

static int refuse_memory(file *f) {
    return ga_fail(f->e, GA_ENVIRONMENT, "%s: no memory for its header", f->path);
}

static int refuse_tensor(file *f, const char *name, const char *what) {
    return ga_fail(f->e, GA_INPUT, "%s: tensor '%.100s': %s", f->path, name, what);
}

/* Bytes of a tensor with `bits` per element; -1 if the shape is not valid or too large. */
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

/* Checks one entry of the header; gives its range in the data, in bytes. */
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

/* The ranges must follow each other from 0 to the end of the data: `ends` maps the begin of each to its
 * end, and is followed from 0. */
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

/* Opens the file, and leaves the length of its header. */
static int open_own(file *f) {
    unsigned char length[8];
    uint64_t header = 0;
    f->fd = ga_file_open(AT_FDCWD, f->path, f->path, &f->bytes, f->e);
    GA_TRY(f->fd);
    if (f->bytes < 10) return refuse(f, "too short for a safetensors file");
    GA_TRY(read_own(f, length, 8, 0));
    for (int i = 0; i < 8; i++) header |= (uint64_t)length[i] << 8 * i;
    if (header < 2 || header > HEADER_MAX || header > (uint64_t)f->bytes - 8)
        return ga_fail(
            f->e, GA_INPUT,
            "%s: header of %llu bytes in a file of %lld: not a safetensors file, or cut off",
            f->path, (unsigned long long)header, (long long)f->bytes);
    f->header = (int64_t)header;
    return GA_OK;
}

/* From memory, or from the file where text is NULL: there the header is never whole in memory. */
static int parse_header(file *f, char first, const char *text) {
    char what[sizeof f->e->msg];
    if (first != '{') return refuse(f, "the header does not start with '{': not a safetensors file");
    snprintf(what, sizeof what, "%s: header", f->path);
    if (text) GA_TRY(ga_json_parse(&f->root, text, f->header, what, f->e));
    else GA_TRY(ga_json_read(&f->root, f->fd, 8, f->header, what, f->e));
    return check_entries(f);
}

/* Each rank for itself. */
static int read_own_header(file *f) {
    char first;
    GA_TRY(read_own(f, &first, 1, 8));
    return parse_header(f, first, NULL);
}

/* Rank 0 for all. */
static int share_header(file *f) {
    char *text = malloc((size_t)f->header);
    int code = ga_tensors_file_agree(f, text ? GA_OK : refuse_memory(f));
    if (code == GA_OK) code = ga_tensors_file_read(f, text, f->header, 8);
    if (code == GA_OK) code = ga_tensors_file_agree(f, parse_header(f, *text, text));
    free(text);
    return code;
}

static int open_all(file *f) {
    GA_TRY(ga_tensors_file_agree(f, reads(f) ? open_own(f) : GA_OK));
    if (f->comm) GA_TRY(ga_comm_broadcast(f->comm, &f->bytes, sizeof f->bytes, 0, f->e));
    if (f->comm) GA_TRY(ga_comm_broadcast(f->comm, &f->header, sizeof f->header, 0, f->e));
    return f->comm ? share_header(f) : read_own_header(f);
}

void ga_tensors_file_close(file *f) {
    json_decref(f->root);
    if (f->fd >= 0) close(f->fd);
}

int ga_tensors_file_open(file *f, const char *path, ga_comm *comm, ga_err *e) {
    *f = (file){.path = path, .comm = comm, .fd = -1, .e = e};
    const int code = open_all(f);
    if (code < 0) ga_tensors_file_close(f);
    return code;
}
