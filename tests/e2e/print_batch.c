/* print_batch.c: linked into a program under test with
 * -Wl,--wrap=ga_loader_open,--wrap=ga_loader_cycle,--wrap=ga_eval_batch: writes every batch into the
 * file that GAGEN_PRINT names, one line for each field of a micro-batch:
 *   train|eval MICRO FIELD ROWS WIDTH: value value ...   (of the true rows) */
#include "runtime/data/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int __real_ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e);
int __real_ga_loader_cycle(ga_loader *l, ga_err *e);
int64_t __real_ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch);
int __wrap_ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e);
int __wrap_ga_loader_cycle(ga_loader *l, ga_err *e);
int64_t __wrap_ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch);

static const ga_loader_config *training;
static int64_t micro;

static void print_field(FILE *file, const ga_field *f, const char *base, int64_t rows) {
    fprintf(file, " %s %" PRId64 " %" PRId64 ":", f->name, rows, f->width);
    for (int64_t i = 0; i < rows * f->width; i++) {
        if (f->type == GA_I32)
            fprintf(file, " %d", ((const int32_t *)(const void *)base)[i]);
        else
            fprintf(file, " %.17g", ga_get(base, f->type, i));
    }
    fprintf(file, "\n");
}

static FILE *open_file(void) {
    FILE *file = fopen(getenv("GAGEN_PRINT"), "a");
    if (!file) abort();
    return file;
}

int __wrap_ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e) {
    training = c;
    return __real_ga_loader_open(out, c, a, e);
}

int __wrap_ga_loader_cycle(ga_loader *l, ga_err *e) {
    int count = __real_ga_loader_cycle(l, e);
    const ga_source *s = training->data.source;
    FILE *file = open_file();
    for (int k = 0; k < count; k++, micro++)
        for (int f = 0; f < s->fields; f++) {
            fprintf(file, "train %" PRId64, micro);
            print_field(file, &s->field[f], ga_loader_field(l, k, f), ga_loader_micro(l, k)->rows);
        }
    fclose(file);
    return count;
}

int64_t __wrap_ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch) {
    int64_t rows = __real_ga_eval_batch(c, k, batch);
    const ga_source *s = c->data.source;
    const char *at = batch;
    FILE *file = open_file();
    for (int f = 0; f < s->fields; f++) {
        fprintf(file, "eval %" PRId64, k);
        print_field(file, &s->field[f], at, rows);
        at += ga_padded((size_t)(c->batch * s->field[f].width) * ga_dtype_bytes(s->field[f].type));
    }
    fclose(file);
    return rows;
}
