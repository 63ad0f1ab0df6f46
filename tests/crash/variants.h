/* variants.h: other protocols than ours, as changes of its trace: what a save would do if a step were
 * left out or came at another time. Each harmful one must be caught. */
#ifndef VARIANTS_H
#define VARIANTS_H

#include "trace.h"

typedef struct {
    const char *name;
    const char *scenario; /* of main.c, the one that shows it */
    bool harmful;
    void (*change)(const trace *t, op *ops, int *count);
} variant;

extern const variant variants[];
extern const int variant_count;

#endif
