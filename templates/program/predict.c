// predict: predict.c, a program around NAME_predict.h.

//@ words(header, name, upper, real, ignore, form, reason, checks)
$header
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
//% if checks then
#include <stdlib.h>
//% end
#include <string.h>
#include <unistd.h>

#include "runtime/data/data_private.h"
#include "runtime/files/file.h"
#include "runtime/files/predictions.h"
#include "runtime/log/options.h"

#define REAL $real
enum { IGNORE = $ignore }; /* a target that does not count */

#include "rows.c"

#define $(upper)_PREDICT_IMPLEMENTATION
#include "$(name)_predict.h"

/* The words of the command line. */
typedef struct words {
    const char *file, *out, *weights;
    ga_output_form form;
} words;

static int usage(ga_err *e) {
    return ga_fail(e, GA_INPUT, "usage: $(name)_predict FILE OUT.npy|OUT.csv [--probabilities] [--weights FILE]");
}

static int read_words(words *w, int argc, char **argv, ga_err *e) {
    *w = (words){0};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--probabilities") == 0) {
//% if form then
            w->form = GA_$form;
//% else
            return ga_fail(e, GA_INPUT, $reason);
//% end
        } else if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc && !w->weights) {
            w->weights = argv[++i];
        } else if (argv[i][0] == '-' || w->out) {
            return usage(e);
        } else {
            *(w->file ? &w->out : &w->file) = argv[i];
        }
    }
    return w->out ? GA_OK : usage(e);
}

//@ weights(name)
/* Reads the weights; without --weights those beside the program. */
static int read_weights(const char *path, ga_arena *a, ga_err *e) {
    char beside[8192], folder[4096];
    if (!path) {
        GA_TRY(ga_program_folder(folder, sizeof folder, e));
        snprintf(beside, sizeof beside, "%s/$(name)_predict.bin", folder);
        if (access(beside, F_OK) != 0)
            return ga_fail(e, GA_INPUT, "%.400s: is not there: make weights writes it from the best checkpoint",
                           beside);
        path = beside;
    }
    int64_t bytes;
    const int fd = ga_file_open(AT_FDCWD, path, path, &bytes, e);
    GA_TRY(fd);
    int code = ga_arena_open_for(a, "weights", (size_t)bytes, e);
    if (code == GA_OK && ga_file_read(fd, a->base, bytes, 0) != bytes)
        code = ga_fail(e, GA_ENVIRONMENT, "%.400s: cannot be read: %s", path, strerror(errno));
    close(fd);
    GA_TRY(code);
    const int wrong = bytes < 64 ? -1 : $(name)_predict_check(a->base, (size_t)bytes);
    if (wrong == -1) return ga_fail(e, GA_INPUT, "%.400s: is no file of weights of this model: make weights", path);
    if (wrong == -2) return ga_fail(e, GA_INPUT, "%.400s: is damaged: make weights", path);
    return GA_OK;
}

//@ rows(name, upper, fields)
/* Rows one by one, in the memory of one. */
static int predict_all(ga_predicted *r, const ga_arena *weights, ga_predictions *p, ga_err *e) {
    static _Alignas(64) float memory[$(upper)_PREDICT_MEMORY / sizeof(float) + 1];
    static float output[$(upper)_PREDICT_OUTPUT];
    ga_arena a = {0};
    int64_t found = ga_arena_open_for(&a, "a row", ga_batch_bytes(&r->source, 1), e);
    const char *const batch = a.base;
    while (found >= 0 && (found = ga_predicted_next(r, 1, a.base, e)) > 0) {
        const $(name)_predict_rows row = {
            $fields
        };
        $(name)_predict(weights->base, memory, &row, 1, output);
        const int code = ga_predictions_add(p, output, GA_F32, 1, e);
        if (code < 0) found = code;
    }
    ga_arena_close(&a);
    return (int)found;
}

//@ main(name, row)
int main(int argc, char **argv) {
    static const int64_t SHAPE[] = {$(row.extents)};
    static ga_predictions p;
    ga_predicted r = {0};
    ga_arena weights = {0};
    ga_err e = {0};
    words w;
    ga_open_streams();
    int code = ga_stack_open(&e);
    if (code == 0) code = read_words(&w, argc, argv, &e);
    if (code == 0) code = read_weights(w.weights, &weights, &e);
    if (code == 0) code = open_rows(&r, w.file, &e);
    if (code == 0) code = ga_predictions_begin(&p, w.out, w.file, SHAPE, $(row.rank), w.form, &e);
    if (code == 0) code = ga_predictions_end(&p, predict_all(&r, &weights, &p, &e), &e);
    ga_predicted_close(&r);
    ga_arena_close(&weights);
    if (code < 0) ga_say("$(name)_predict: %s", e.msg);
    else ga_say("%s: the outputs for %lld row%s of %s", w.out, (long long)p.rows, p.rows == 1 ? "" : "s", w.file);
    return -code;
}
