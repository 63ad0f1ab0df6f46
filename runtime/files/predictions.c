/* predictions.c: rows of outputs as .npy or .csv. The header of .npy has room for any number of rows, which is known at
 * the end. */
#include "files/predictions.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER = 256 };

static int put_piece(ga_predictions *p, ga_err *e) {
    const int code = ga_file_write(p->file.fd, p->piece, (int64_t)p->held, p->at);
    if (code) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", p->file.temporary, strerror(code));
    p->at += (int64_t)p->held;
    p->held = 0;
    return GA_OK;
}

static int put(ga_predictions *p, const char *bytes, size_t n, ga_err *e) {
    if (p->held + n > sizeof p->piece) GA_TRY(put_piece(p, e));
    memcpy(p->piece + p->held, bytes, n);
    p->held += n;
    return GA_OK;
}

/* "output_3_7": the place of element i in a row. */
static void name_of(const ga_predictions *p, int64_t i, char *out, size_t size) {
    int64_t index[GA_OUTPUT_RANK];
    size_t n = (size_t)snprintf(out, size, "output");
    for (int axis = p->rank - 1; axis >= 0; i /= p->shape[axis--]) index[axis] = i % p->shape[axis];
    for (int axis = 0; axis < p->rank; axis++)
        n += (size_t)snprintf(out + n, size - n, "_%lld", (long long)index[axis]);
}

static int put_names(ga_predictions *p, ga_err *e) {
    char name[160];
    for (int64_t i = 0; i < p->width; i++) {
        name_of(p, i, name, sizeof name - 1);
        strcat(name, i + 1 < p->width ? "," : "\n");
        GA_TRY(put(p, name, strlen(name), e));
    }
    return GA_OK;
}

static bool ends_in(const char *path, const char *end) {
    const size_t n = strlen(path), k = strlen(end);
    return n > k && strcmp(path + n - k, end) == 0;
}

/* Whether two paths lead to one file. */
static bool is_same(const char *a, const char *b) {
    struct stat one, other;
    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int ga_predictions_begin(ga_predictions *p, const char *path, const char *rows, const int64_t *shape, int rank,
                         ga_output_form form, ga_err *e) {
    p->csv = ends_in(path, ".csv");
    p->form = form;
    p->rank = rank;
    p->rows = p->at = 0;
    p->held = 0;
    p->width = 1;
    for (int axis = 0; axis < rank; axis++) p->width *= p->shape[axis] = shape[axis];
    if (!p->csv && !ends_in(path, ".npy"))
        return ga_fail(e, GA_INPUT, "--out %.300s: expected a name that ends in .npy or .csv", path);
    if (is_same(path, rows))
        return ga_fail(e, GA_INPUT, "--out %.300s: is the file that the rows are read from: expected another", path);
    GA_TRY(ga_file_begin(&p->file, path, e));
    p->at = p->csv ? 0 : HEADER;
    const int code = p->csv ? put_names(p, e) : GA_OK;
    return code < 0 ? ga_file_end(&p->file, code, e) : GA_OK;
}

/* The greatest of n elements from `first` on, and the sum of e^(x - greatest). */
static void look(const void *values, ga_dtype type, int64_t first, int64_t n, double *greatest, double *sum) {
    *greatest = -INFINITY;
    *sum = 0;
    for (int64_t i = first; i < first + n; i++) *greatest = fmax(*greatest, ga_get(values, type, i));
    for (int64_t i = first; i < first + n; i++) *sum += exp(ga_get(values, type, i) - *greatest);
}

static int put_value(ga_predictions *p, double value, bool ends_row, ga_err *e) {
    const float x = (float)value;
    char text[32];
    if (!p->csv) return put(p, (const char *)&x, sizeof x, e);
    return put(p, text, (size_t)snprintf(text, sizeof text, "%.9g%c", x, ends_row ? '\n' : ','), e);
}

int ga_predictions_add(ga_predictions *p, const void *values, ga_dtype type, int64_t rows, ga_err *e) {
    const int64_t classes = p->rank > 0 ? p->shape[p->rank - 1] : 1;
    double greatest = 0, sum = 0;
    for (int64_t i = 0; i < rows * p->width; i++) {
        double value = ga_get(values, type, i);
        if (p->form == GA_SOFTMAX && i % classes == 0) look(values, type, i, classes, &greatest, &sum);
        if (p->form == GA_SOFTMAX) value = exp(value - greatest) / sum;
        if (p->form == GA_SIGMOID) value = 1 / (1 + exp(-value));
        GA_TRY(put_value(p, value, (i + 1) % p->width == 0, e));
    }
    p->rows += rows;
    return GA_OK;
}

/* Writes the header of .npy. */
static int put_header(ga_predictions *p, ga_err *e) {
    char text[HEADER + 1], shape[160];
    size_t n = (size_t)snprintf(shape, sizeof shape, "%lld,", (long long)p->rows);
    for (int axis = 0; axis < p->rank; axis++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, " %lld,", (long long)p->shape[axis]);
    if (p->rank > 0) shape[n - 1] = 0;
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)((HEADER - 10) & 0xff);
    text[9] = (HEADER - 10) >> 8;
    n = (size_t)snprintf(text + 10, sizeof text - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }",
                         shape);
    memset(text + 10 + n, ' ', HEADER - 10 - n);
    text[HEADER - 1] = '\n';
    const int code = ga_file_write(p->file.fd, text, HEADER, 0);
    return code ? ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", p->file.temporary, strerror(code)) : GA_OK;
}

int ga_predictions_end(ga_predictions *p, int code, ga_err *e) {
    if (code == GA_OK) code = put_piece(p, e);
    if (code == GA_OK && !p->csv) code = put_header(p, e);
    return ga_file_end(&p->file, code, e);
}
