/* predictions.h: the outputs of a model as a file, a row for each row that was read: .npy, f32 (n, ...), or .csv with a
 * header. The file appears under its name when it is complete. */
#ifndef GA_PREDICTIONS_H
#define GA_PREDICTIONS_H

#include "files/file.h"

enum { GA_OUTPUT_RANK = 6, GA_PREDICTIONS_PIECE = 1 << 16 };

/* Outputs are written as they are, as softmax over the last axis, or as 1 / (1 + e^-x) of each. */
typedef enum ga_output_form { GA_LOGITS, GA_SOFTMAX, GA_SIGMOID } ga_output_form;

typedef struct ga_predictions {
    ga_new_file file;
    bool csv;
    ga_output_form form;
    int rank; /* of a row */
    int64_t shape[GA_OUTPUT_RANK], width; /* of a row; its elements */
    int64_t rows, at;                     /* rows so far; bytes of the file so far */
    size_t held;                          /* bytes in `piece`, which are still to be written */
    char piece[GA_PREDICTIONS_PIECE];
} ga_predictions;

/* Begins a file for rows of this shape, the outputs for the rows of the file `rows`. GA_INPUT if the name ends neither
 * in .npy nor in .csv, or is that of `rows` itself. */
int ga_predictions_begin(ga_predictions *p, const char *path, const char *rows, const int64_t *shape, int rank,
                         ga_output_form form, ga_err *e);

/* Adds rows of F32, F64, BF16 or F16. */
int ga_predictions_add(ga_predictions *p, const void *values, ga_dtype type, int64_t rows, ga_err *e);

/* Completes the file, or removes it if code is negative. Returns code, or the failure. */
int ga_predictions_end(ga_predictions *p, int code, ga_err *e);

#endif
