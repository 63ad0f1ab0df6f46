/* every_rank.c: trains CYCLES cycles with the library `looped`; each rank writes to FOLDER/R, by its number R, a line
 * for each cycle (skipped updates so far, the scale of the cycle) and a line for each parameter (all bits, in base 16). With `gradients` also a line
 * for each gradient that a handler at a boundary is given.
 *   every_rank CYCLES FOLDER [gradients] */
#include "looped.h"

#include <stdio.h>
#include <stdlib.h>

static int print(void *context, const ga_tensor *t) {
    int64_t count = 1;
    for (int k = 0; k < t->rank; k++) count *= t->shape[k];
    fprintf(context, "%s", t->name);
    for (int64_t i = 0; i < count; i++) fprintf(context, " %a", (double)((const float *)t->data)[i]);
    return fprintf(context, "\n") > 0 ? 0 : -1;
}

static int print_all(void *context, ga_tensor *gradients, int n, ga_err *e) {
    (void)e;
    for (int i = 0; i < n; i++)
        if (fputs("gradient of ", context) < 0 || print(context, &gradients[i]) < 0) return -1;
    return 0;
}

int main(int argc, char **argv) {
    looped *m = NULL;
    ga_err e = {0};
    char path[4096];
    if (argc < 3) return 1;
    int code = looped_open(&m, &(looped_options){.quiet = 1, .threads = 1}, &e);
    if (code >= 0) {
        snprintf(path, sizeof path, "%s/%d", argv[2], looped_rank(m));
        FILE *out = fopen(path, "w");
        if (!out) return 1;
        if (argc > 3) code = looped_set_gradient_handler(m, print_all, out);
        for (int k = 0; k < atoi(argv[1]) && code >= 0; k++) {
            code = looped_cycle(m, &e);
            fprintf(out, "%d %g\n", (int)looped_count(m)->skipped, looped_count(m)->scale);
        }
        if (code >= 0) code = looped_state_dict(m, false, print, out, &e);
        fclose(out);
    }
    looped_close(m);
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    return code < 0;
}
