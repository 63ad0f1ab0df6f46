/* Outputs of the program "looped" as a library, from predict_step:
 *   outputs CHECKPOINT ROWS COLUMNS OUT      ROWS: a file of floats, COLUMNS for each row; OUT gets outputs as floats
 * Exit 0, or 1 with what was wrong. */
#include "looped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 7, LARGEST = 1 << 16 };

static int write_outputs(looped *m, FILE *in, int columns, FILE *out, ga_err *e) {
    static float rows[LARGEST], outputs[LARGEST];
    const size_t width = (size_t)looped_output_elements(m) / BATCH;
    size_t n;
    while ((n = fread(rows, sizeof(float) * (size_t)columns, BATCH, in)) > 0) {
        const looped_batch b = {.input = rows, .rows = (int)n};
        GA_TRY(looped_predict_step(m, &b, outputs, e));
        if (fwrite(outputs, sizeof(float) * width, n, out) != n) return ga_fail(e, GA_ENVIRONMENT, "not written");
    }
    return 0;
}

int main(int argc, char **argv) {
    looped *m = NULL;
    ga_err e = {0};
    if (argc != 5) return 1;
    FILE *in = fopen(argv[2], "rb"), *out = fopen(argv[4], "wb");
    if (!in || !out) return 1;
    const looped_options o = {.resume = argv[1], .quiet = 1};
    int code = looped_open(&m, &o, &e);
    if (code == 0) code = write_outputs(m, in, atoi(argv[3]), out, &e);
    looped_close(m);
    fclose(in);
    if (fclose(out) != 0) return 1;
    if (code < 0) fprintf(stderr, "%s\n", e.msg);
    return code < 0;
}
