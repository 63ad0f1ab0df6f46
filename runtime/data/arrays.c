/* arrays.c: element types, checks of elements, decoding of rows. */
#include "data/arrays.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct record {
    ga_dtype real;
    int fields;
    ga_array_field field[GA_FIELDS];
    int64_t width[GA_FIELDS];
    unsigned char *base[GA_FIELDS];
} record;

static const struct {
    const char *name;
    int bytes;
    bool whole;
    ga_dtype real; /* of floating types */
} elements[GA_ELEMENTS] = {
    [GA_ELEMENT_F32] = {"F32", 4, false, GA_F32}, [GA_ELEMENT_F64] = {"F64", 8, false, GA_F64},
    [GA_ELEMENT_F16] = {"F16", 2, false, GA_F16}, [GA_ELEMENT_BF16] = {"BF16", 2, false, GA_BF16},
    [GA_ELEMENT_I64] = {"I64", 8, true, 0},  [GA_ELEMENT_I32] = {"I32", 4, true, 0},
    [GA_ELEMENT_I16] = {"I16", 2, true, 0},  [GA_ELEMENT_I8] = {"I8", 1, true, 0},
    [GA_ELEMENT_U64] = {"U64", 8, true, 0},  [GA_ELEMENT_U32] = {"U32", 4, true, 0},
    [GA_ELEMENT_U16] = {"U16", 2, true, 0},  [GA_ELEMENT_U8] = {"U8", 1, true, 0},
    [GA_ELEMENT_BOOL] = {"BOOL", 1, true, 0},
};

int ga_element_bytes(ga_element t) {
    return elements[t].bytes;
}

const char *ga_element_name(ga_element t) {
    return elements[t].name;
}

ga_element ga_element_find(const char *name) {
    int t = 0;
    while (t < GA_ELEMENTS && strcmp(elements[t].name, name) != 0) t++;
    return (ga_element)t;
}

bool ga_element_whole(ga_element t) {
    return elements[t].whole;
}

int64_t ga_element_id(const void *base, ga_element t, int64_t i) {
    switch (t) {
    case GA_ELEMENT_I64: return ((const int64_t *)base)[i];
    case GA_ELEMENT_I32: return ((const int32_t *)base)[i];
    case GA_ELEMENT_I16: return ((const int16_t *)base)[i];
    case GA_ELEMENT_I8: return ((const int8_t *)base)[i];
    case GA_ELEMENT_U32: return ((const uint32_t *)base)[i];
    case GA_ELEMENT_U16: return ((const uint16_t *)base)[i];
    case GA_ELEMENT_U64: {
        uint64_t value = ((const uint64_t *)base)[i];
        return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    }
    default: return ((const uint8_t *)base)[i];
    }
}

double ga_element_real(const void *base, ga_element t, int64_t i) {
    if (elements[t].whole) return (double)ga_element_id(base, t, i);
    return ga_get(base, elements[t].real, i);
}

/* The element at `place` of an array with rows of `width`, normalised for the batch. */
static double real_at(const ga_array_field *f, int64_t width, const void *base, int64_t place,
                      int64_t i) {
    double value = ga_element_real(base, f->element, i);
    if (f->channels == 0) return value;
    int64_t c = f->channels > 1 ? place % width / (width / f->channels) : 0;
    return (value * f->scale - f->mean[c]) / f->std[c];
}

static void decode(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    const record *r = s->self;
    (void)draw;
    for (int k = 0; k < r->fields; k++) {
        const ga_array_field *f = &r->field[k];
        const int64_t width = r->width[k];
        const unsigned char *from = r->base[k] + row * width * elements[f->element].bytes;
        for (int64_t i = 0; i < width; i++) {
            if (f->ids)
                ((int32_t *)out[k])[i] = (int32_t)ga_element_id(from, f->element, i);
            else
                ga_set(out[k], r->real, i, real_at(f, width, from, i, i));
        }
    }
}

static int refuse(const ga_array_part *p, int64_t place, double found, ga_err *e) {
    const ga_array_field *f = p->field;
    char expected[80], ignored[32] = "";
    if (f->ignores) snprintf(ignored, sizeof ignored, " or %lld", (long long)f->ignored);
    if (f->ids)
        snprintf(expected, sizeof expected, "a whole number in %lld..%lld%s", (long long)f->low,
                 (long long)f->high, ignored);
    else
        snprintf(expected, sizeof expected, "a finite number that %s holds",
                 ga_dtype_name(p->real));
    return ga_fail(e, GA_INPUT, "%s: row %lld, element %lld: %.17g found, expected %s", p->title,
                   (long long)(place / p->width) + 1, (long long)(place % p->width) + 1, found,
                   expected);
}

int ga_array_take(void *part, const unsigned char *bytes, int64_t count, int64_t first,
                  ga_err *e) {
    const ga_array_part *p = part;
    const ga_array_field *f = p->field;
    const int size = elements[f->element].bytes;
    const double largest = p->real == GA_F32 ? FLT_MAX : DBL_MAX;
    for (int64_t i = 0; i < count / size; i++) {
        int64_t place = first / size + i;
        if (f->element == GA_ELEMENT_BOOL && bytes[i] > 1)
            return ga_fail(e, GA_INPUT, "%s: row %lld, element %lld: byte %d found, a BOOL is 0 or 1",
                           p->title, (long long)(place / p->width) + 1,
                           (long long)(place % p->width) + 1, bytes[i]);
        if (f->ids) {
            int64_t id = ga_element_id(bytes, f->element, i);
            bool ignored = f->ignores && id == f->ignored;
            if (!ignored && (id < f->low || id > f->high)) return refuse(p, place, (double)id, e);
            if (p->scan) ga_scan_id(p->scan, id, place / p->width + 1);
        } else {
            double value = real_at(f, p->width, bytes, place, i);
            if (!(fabs(value) <= largest)) return refuse(p, place, isnan(value) ? NAN : value, e);
        }
    }
    return GA_OK;
}

int64_t ga_row_width(const int64_t *shape, int rank) {
    int64_t width = 1;
    for (int i = 0; i < rank; i++)
        if (!ga_product(width, shape[i], &width)) return -1;
    return width > 0 && width < (int64_t)1 << 31 ? width : -1;
}

static int64_t rows_of(const ga_arrays_spec *s) {
    int64_t rows = 0;
    for (int i = 0; i < s->parts; i++) rows += s->part[i].count;
    return rows;
}

int ga_arrays_source(ga_source *out, const ga_arrays_spec *s, unsigned char *base[GA_FIELDS],
                     ga_arena *a, ga_err *e) {
    record *r = ga_take(a, sizeof *r, 64, e);
    if (!r) return GA_BUG;
    *r = (record){.real = s->real, .fields = s->fields};
    *out = (ga_source){.rows = rows_of(s), .fields = s->fields, .decode = decode, .self = r};
    for (int k = 0; k < s->fields; k++) {
        const ga_array_field *f = &s->field[k];
        r->field[k] = *f;
        r->width[k] = ga_row_width(f->shape, f->rank);
        size_t bytes = (size_t)(out->rows * r->width[k]) * (size_t)elements[f->element].bytes;
        base[k] = r->base[k] = ga_take(a, bytes, 64, e);
        if (!base[k]) return GA_BUG;
        out->field[k] = (ga_field){f->field, f->ids ? GA_I32 : s->real, r->width[k]};
    }
    return GA_OK;
}

int ga_arrays_predicted(ga_source *out, const ga_arrays_spec *s, int64_t rows, unsigned char *base[GA_FIELDS],
                        ga_arena *a, ga_err *e) {
    const ga_part all = {.path = s->part[0].path, .count = rows};
    const ga_arrays_spec read = {.field = s->field, .fields = s->fields - 1, .part = &all, .parts = 1, .real = s->real};
    const ga_array_field *target = &s->field[read.fields];
    size_t bytes = ga_padded(sizeof(record));
    for (int k = 0; k < read.fields; k++) {
        const ga_array_field *f = &s->field[k];
        bytes += ga_padded((size_t)(rows * ga_row_width(f->shape, f->rank)) * (size_t)elements[f->element].bytes);
    }
    GA_TRY(ga_arena_open_for(a, "rows to predict", bytes, e));
    GA_TRY(ga_arrays_source(out, &read, base, a, e));
    out->field[out->fields++] = (ga_field){target->field, target->ids ? GA_I32 : s->real,
                                           ga_row_width(target->shape, target->rank)};
    return GA_OK;
}

size_t ga_arrays_bytes(const ga_scan *s) {
    size_t bytes = ga_padded(sizeof(record)), rows = 0;
    for (int i = 0; i < s->parts; i++) rows += (size_t)s->count[i];
    for (int k = 0; k < s->fields; k++) {
        const ga_scan_field *f = &s->field[k];
        bytes += ga_padded(rows * (size_t)ga_row_width(f->shape, f->rank) *
                           (size_t)elements[f->element].bytes);
    }
    return bytes;
}
