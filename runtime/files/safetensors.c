/* safetensors.c: the writer. The header is formatted twice, once to count it and once into the
 * file, so that it needs no memory. The reader is safetensors_load.c. */
#include "files/safetensors.h"

#include "files/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 4096 };

typedef struct {
    int fd; /* -1: only count */
    const char *path;
    int64_t bytes; /* so far */
    uint32_t crc;
    int64_t block; /* bytes so far in the present block */
    ga_written *out;
    ga_err *e;
} sink;

/* Stores the checksum of the block that ends here. */
static int close_block(sink *s) {
    if (s->out && s->out->checksums) {
        if (s->bytes > s->out->blocks * (int64_t)GA_BLOCK)
            return ga_fail(s->e, GA_BUG, "%s: more blocks than planned", s->path);
        s->out->checksums[(s->bytes - 1) / GA_BLOCK] = s->crc;
    }
    s->crc = (uint32_t)crc32(0, NULL, 0);
    s->block = 0;
    return GA_OK;
}

/* Writes n bytes and updates the checksums; without a file it only counts. */
static int put(sink *s, const void *data, int64_t n) {
    const char *at = data;
    if (s->fd < 0) {
        s->bytes += n;
        return GA_OK;
    }
    while (n > 0) {
        int64_t part = GA_BLOCK - s->block < n ? GA_BLOCK - s->block : n;
        int rc = ga_write_all(s->fd, at, (size_t)part);
        if (rc)
            return ga_fail(s->e, GA_ENVIRONMENT, "%s: writing failed: %s", s->path, strerror(rc));
        s->crc = (uint32_t)crc32(s->crc, (const unsigned char *)at, (unsigned)part);
        s->bytes += part;
        s->block += part;
        at += part;
        n -= part;
        if (s->block == GA_BLOCK) GA_TRY(close_block(s));
    }
    return GA_OK;
}

static int put_entry(sink *s, const ga_array *a, const ga_param *p, int l, int64_t begin) {
    char line[PIECE], name[GA_NAME_MAX];
    ga_text t = {.base = line, .size = sizeof line};
    ga_text_add(&t, ",");
    ga_text_string(&t, ga_param_name(p, l, a->suffix, name));
    ga_text_add(&t, ":{\"dtype\":\"%s\",\"shape\":[", ga_dtype_name(a->dtype));
    for (int d = 0; d < p->rank; d++) ga_text_add(&t, d ? ",%lld" : "%lld", (long long)p->shape[d]);
    ga_text_add(&t, "],\"data_offsets\":[%lld,%lld]}", (long long)begin,
                (long long)(begin + p->n * (int64_t)ga_dtype_bytes(a->dtype)));
    return put(s, line, (int64_t)t.used);
}

/* The header's JSON text, without the padding; *data becomes the size of the data. */
static int put_header(sink *s, const ga_array *arrays, int count, const ga_note *notes,
                      int note_count, int64_t *data) {
    char line[PIECE];
    ga_text t = {.base = line, .size = sizeof line};
    ga_text_add(&t, "{\"__metadata__\":{\"format\":\"pt\"");
    for (int i = 0; i < note_count; i++) {
        ga_text_add(&t, ",");
        ga_text_string(&t, notes[i].key);
        ga_text_add(&t, ":");
        ga_text_string(&t, notes[i].value);
    }
    ga_text_add(&t, "}");
    GA_TRY(put(s, line, (int64_t)t.used));
    *data = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++) {
                GA_TRY(put_entry(s, &arrays[i], &arrays[i].params[k], l, *data));
                *data += arrays[i].params[k].n * (int64_t)ga_dtype_bytes(arrays[i].dtype);
            }
    return put(s, "}", 1);
}

/* Text and padding of the header together; *data as above. */
static int64_t header_bytes(const ga_array *arrays, int count, const ga_note *notes, int note_count,
                            int64_t *data) {
    sink s = {.fd = -1};
    put_header(&s, arrays, count, notes, note_count, data);
    return (s.bytes + 7) / 8 * 8;
}

int64_t ga_safetensors_bytes(const ga_array *arrays, int count, const ga_note *notes,
                             int note_count) {
    int64_t data, header = header_bytes(arrays, count, notes, note_count, &data);
    return 8 + header + data;
}

static bool all_finite(const void *data, ga_dtype t, int64_t n) {
    uint32_t bad32 = 0;
    uint64_t bad64 = 0;
    if (t == GA_BF16)
        for (int64_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, (const char *)data + 2 * i, 2);
            bad32 |= (bits & 0x7f80u) == 0x7f80u;
        }
    else if (t == GA_F64)
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits;
            memcpy(&bits, (const char *)data + 8 * i, 8);
            bad64 |= (bits & 0x7ff0000000000000u) == 0x7ff0000000000000u;
        }
    else
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, (const char *)data + 4 * i, 4);
            bad32 |= (bits & 0x7f800000u) == 0x7f800000u;
        }
    return !(bad32 | bad64);
}

static int refuse_nonfinite(const char *path, const ga_array *a, const ga_param *p, int l, ga_err *e) {
    char name[GA_NAME_MAX];
    return ga_fail(e, GA_NONFINITE, "%s: %s holds a value that is not finite: not saved", path,
                   ga_param_name(p, l, a->suffix, name));
}

static int put_data(sink *s, const ga_array *a, bool finite_only) {
    char buffer[GA_RUN];
    for (int k = 0; k < a->count; k++)
        for (int l = 0; l < a->params[k].count; l++)
            for (ga_held h = {0}; ga_array_next(a, &a->params[k], l, &h);) {
                const void *values = ga_array_get(a, &h, buffer, s->e);
                if (!values) return GA_ENVIRONMENT;
                if (finite_only && !all_finite(values, a->dtype, h.n))
                    return refuse_nonfinite(s->path, a, &a->params[k], l, s->e);
                GA_TRY(put(s, values, h.n * (int64_t)ga_dtype_bytes(a->dtype)));
            }
    return GA_OK;
}

/* Writes the header with its length in front; *data becomes the size of the values. */
static int put_beginning(sink *s, const ga_array *arrays, int count, const ga_note *notes,
                         int note_count, int64_t *data) {
    const int64_t header = header_bytes(arrays, count, notes, note_count, data);
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header >> 8 * i);
    GA_TRY(put(s, length, 8));
    GA_TRY(put_header(s, arrays, count, notes, note_count, data));
    return put(s, "        ", 8 + header - s->bytes);
}

int ga_safetensors_begin(int fd, const char *path, const ga_array *arrays, int count, const ga_note *notes,
                         int note_count, int64_t *data, ga_err *e) {
    sink s = {.fd = fd, .path = path, .e = e};
    int64_t bytes;
    GA_TRY(put_beginning(&s, arrays, count, notes, note_count, &bytes));
    *data = s.bytes;
    if (ftruncate(fd, *data + bytes) == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "%s: writing failed: %s", path, strerror(errno));
}

int64_t ga_safetensors_data(const ga_array *arrays, int count) {
    int64_t data;
    return 8 + header_bytes(arrays, count, NULL, 0, &data);
}

int ga_safetensors_put_run(const ga_values_file *f, const ga_array *a, const ga_param *p, int l, const void *values,
                           int64_t i, int64_t n, ga_err *e) {
    const int64_t size = (int64_t)ga_dtype_bytes(a->dtype);
    if (f->finite_only && !all_finite(values, a->dtype, n)) return refuse_nonfinite(f->path, a, p, l, e);
    const int rc = ga_file_write(f->fd, values, n * size, f->at + i * size);
    return rc ? ga_fail(e, GA_ENVIRONMENT, "%s: writing failed: %s", f->path, strerror(rc)) : GA_OK;
}

int ga_safetensors_put(ga_values_file f, const ga_array *arrays, int count, bool whole, ga_err *e) {
    char buffer[GA_RUN];
    for (int i = 0; i < count; i++)
        for (int k = 0; k < arrays[i].count; k++)
            for (int l = 0; l < arrays[i].params[k].count; l++) {
                const ga_param *p = &arrays[i].params[k];
                const bool writes = whole || arrays[i].shard;
                for (ga_held h = {0}; writes && ga_array_next(&arrays[i], p, l, &h);) {
                    const void *values = ga_array_get(&arrays[i], &h, buffer, e);
                    if (!values) return GA_ENVIRONMENT;
                    GA_TRY(ga_safetensors_put_run(&f, &arrays[i], p, l, values, h.i, h.n, e));
                }
                f.at += p->n * (int64_t)ga_dtype_bytes(arrays[i].dtype);
            }
    return GA_OK;
}

int ga_safetensors_write(int fd, const char *path, const ga_array *arrays, int count,
                         const ga_note *notes, int note_count, bool finite_only, ga_written *out,
                         ga_err *e) {
    sink s = {.fd = fd, .path = path, .out = out, .e = e, .crc = (uint32_t)crc32(0, NULL, 0)};
    int64_t data;
    GA_TRY(put_beginning(&s, arrays, count, notes, note_count, &data));
    for (int i = 0; i < count; i++) GA_TRY(put_data(&s, &arrays[i], finite_only));
    if (s.block > 0) GA_TRY(close_block(&s));
    if (out) {
        out->bytes = s.bytes;
        out->blocks = (s.bytes + GA_BLOCK - 1) / GA_BLOCK;
    }
    return GA_OK;
}

int ga_safetensors_save(const char *path, const ga_array *arrays, int count, ga_err *e) {
    ga_new_file f;
    GA_TRY(ga_file_begin(&f, path, e));
    return ga_file_end(&f, ga_safetensors_write(f.fd, path, arrays, count, NULL, 0, false, NULL, e), e);
}
