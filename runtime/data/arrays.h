/* arrays.h: datasets of arrays: .npy files, one array each, and .safetensors files, where each tensor is
 * the field of its name. The first axis is the row. Arrays stay in memory in their element type; decode
 * converts floating types to the program's real and integers to i32. */
#ifndef GA_ARRAYS_H
#define GA_ARRAYS_H

#include "base/arena.h"
#include "data/scan.h"

typedef enum ga_element {
    GA_ELEMENT_F32,
    GA_ELEMENT_F64,
    GA_ELEMENT_F16,
    GA_ELEMENT_BF16,
    GA_ELEMENT_I64,
    GA_ELEMENT_I32,
    GA_ELEMENT_I16,
    GA_ELEMENT_I8,
    GA_ELEMENT_U64,
    GA_ELEMENT_U32,
    GA_ELEMENT_U16,
    GA_ELEMENT_U8,
    GA_ELEMENT_BOOL,
    GA_ELEMENTS
} ga_element;

int ga_element_bytes(ga_element t);
const char *ga_element_name(ga_element t);            /* name in safetensors files */
ga_element ga_element_find(const char *name);         /* GA_ELEMENTS: unknown type */
bool ga_element_whole(ga_element t);                  /* integers and BOOL */
double ga_element_real(const void *base, ga_element t, int64_t i); /* any type */
int64_t ga_element_id(const void *base, ga_element t, int64_t i);  /* whole types; a U64 beyond
                                                                      INT64_MAX is INT64_MAX */

typedef struct ga_array_field {
    const char *name; /* of the tensor in the file; `field` is the name in the batch */
    const char *field;
    ga_element element;
    int rank; /* of one row */
    int64_t shape[GA_FIELD_RANK];
    bool ids;          /* i32 in a batch; else real */
    int64_t low, high; /* ids: smallest and largest allowed */
    bool ignores;      /* ids: `ignored` is allowed too */
    int64_t ignored;
    /* real: (value * scale - mean[c]) / std[c] in double, then rounded; c is the index on the row's first
     * axis if channels > 1. channels = 0: the value is unchanged */
    double scale;
    const double *mean, *std;
    int channels;
} ga_array_field;

typedef struct ga_arrays_spec {
    const ga_array_field *field;
    int fields;
    /* count is the number of rows. tensors: file part[i] holds all fields. npy: file i of field f is
     * part[f * parts + i] */
    const ga_part *part;
    int parts;
    ga_dtype real;
} ga_arrays_spec;

/* Finds names (tensors), element types, rows, shapes and the range of integers. A number that is not
 * finite, or too large for `real` or i32, or a BOOL other than 0 and 1, is refused with its row and element. */
int ga_npy_scan(const char *const *path, int fields, int parts, ga_dtype real, ga_scan *out,
                ga_err *e);
int ga_tensors_scan(const char *const *path, int parts, ga_dtype real, ga_scan *out, ga_err *e);

int ga_npy_open(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e);
int ga_tensors_open(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e);

/* Rows to predict, of the first file of s->part, any number of them; the target, the last field, is not read. Open the
 * arena. */
int ga_npy_predicted(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e);
int ga_tensors_predicted(ga_source *out, const ga_arrays_spec *s, ga_arena *a, ga_err *e);

/* -- for the two readers ----------------------------------------------------------------------- */

/* One array of one file, rows x shape, checked against its field. */
typedef struct ga_array_part {
    const char *title; /* for messages: `path`, or `path: tensor 'x'` */
    int64_t width;     /* elements of a row */
    const ga_array_field *field;
    ga_dtype real;
    ga_scan_field *scan; /* filled in; NULL: only check */
} ga_array_part;

/* A ga_take_bytes that checks each element of a part. */
int ga_array_take(void *part, const unsigned char *bytes, int64_t count, int64_t first, ga_err *e);

/* Makes a source of the rows of s->part; the caller then reads field f to base[f]. */
int ga_arrays_source(ga_source *out, const ga_arrays_spec *s, unsigned char *base[GA_FIELDS],
                     ga_arena *a, ga_err *e);

/* The same for `rows` rows to predict, without the target; opens the arena. */
int ga_arrays_predicted(ga_source *out, const ga_arrays_spec *s, int64_t rows, unsigned char *base[GA_FIELDS],
                        ga_arena *a, ga_err *e);

/* Bytes that ga_arrays_source takes from an arena for the fields of a scan. */
size_t ga_arrays_bytes(const ga_scan *s);

/* Elements of one row of a shape; -1 if zero or more than 2^31. */
int64_t ga_row_width(const int64_t *shape, int rank);

#endif
