/* curve.h: the losses of a run as a curve of text, which `train --plot` draws above the progress line. A run of any
 * length takes the same memory: a bin holds one update, or as many as the run's length asks for. */
#ifndef GA_CURVE_H
#define GA_CURVE_H

#include "base/ga.h"

enum {
    GA_CURVE_BINS = 256,
    GA_CURVE_ROWS = 8,      /* of signs, each four dots high */
    GA_CURVE_COLUMNS = 200, /* of signs at most, each two dots wide */
    GA_CURVE_TEXT = GA_CURVE_ROWS * (3 * GA_CURVE_COLUMNS + 2)
};

typedef struct ga_curve_bin {
    float least, most; /* least > most: no finite value */
} ga_curve_bin;

typedef struct ga_curve {
    ga_curve_bin bins[GA_CURVE_BINS];
    int count;            /* bins in use; the last one may still grow */
    int64_t each, inside; /* values of a whole bin, and of the last one so far; each = 0: no value yet */
} ga_curve;

/* Appends a value; bins are joined by pairs where they are all full. */
void ga_curve_add(ga_curve *c, double value);

/* Writes the curve to out, GA_CURVE_TEXT bytes: GA_CURVE_ROWS lines, each with its newline and of fewer than `columns`
 * signs, with the greatest value beside the first and the least beside the last. braille: as signs of 2 x 4 dots in
 * UTF-8, else as stars. "" where there is no finite value, or where the terminal is too narrow. */
void ga_curve_text(char *out, const ga_curve *c, int columns, bool braille);

#endif
