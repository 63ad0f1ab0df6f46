/* states.h: what a power failure may leave of a trace. Durable is what a sync of its file or folder
 * has followed; of the rest any part may be there: the pieces of 512 bytes of a write, its size
 * without them (zeros), and the changes of a folder one without the other, in any combination. */
#ifndef STATES_H
#define STATES_H

#include "trace.h"

/* What can be loaded from a folder: the id of a save, or one of these. */
enum { FOUND_NONE = 0, FOUND_DAMAGED = -1, FOUND_STUCK = -2 };

typedef struct {
    int exhaustive;   /* up to so many undecided parts every combination is tried */
    int random;       /* beyond that: so many combinations, and each part alone, missing, each prefix */
    bool first_only;  /* stop at the first violation */
    const char *root; /* the folder that states are laid out in */
    int64_t (*find)(const char *root); /* what is loaded from a state */
} effort;

typedef struct {
    int64_t states, distinct, violations;
    char first[160]; /* the first violation */
} tally;

/* Tries the states after each operation. Violation: what is found is not the last acknowledged save
 * nor a later one. */
void states_try(const trace *t, const op *ops, int count, const effort *how, tally *out);

#endif
