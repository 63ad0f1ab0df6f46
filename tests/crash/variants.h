/* variants.h: wrong protocols of a save, as changes of a recorded trace: a step left out or at another time.
 * Each harmful one must be caught. */
#ifndef VARIANTS_H
#define VARIANTS_H

#include "trace.h"

typedef struct {
    const char *name;
    const char *scenario; /* of main.c, in which the fault shows */
    bool harmful;
    void (*change)(const trace *t, op *ops, int *count);
} variant;

extern const variant variants[];
extern const int variant_count;

#endif
