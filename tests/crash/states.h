/* states.h: the states that a power failure may leave of a trace. An operation is durable once its file
 * or folder has been synced; any part of the others may be there, in any combination: pieces of 512 bytes
 * of a write, its size without them (zeros), single changes of a folder. */
#ifndef STATES_H
#define STATES_H

#include "trace.h"

/* The result of loading from a folder: the id of a save, or one of these. */
enum { FOUND_NONE = 0, FOUND_DAMAGED = -1, FOUND_STUCK = -2 };

typedef struct {
    int exhaustive;   /* most undecided parts of which every combination is tried */
    int random;       /* beyond: number of combinations, besides each part alone, each missing, each prefix */
    bool first_only;  /* stop at the first violation */
    const char *root; /* the folder that states are laid out in */
    int64_t (*find)(const char *root); /* loads from a state */
} effort;

typedef struct {
    int64_t states, distinct, violations;
    char first[160]; /* the first violation */
} tally;

/* Tries the states after each operation. Violation: the loaded save is older than the last acknowledged
 * one. */
void states_try(const trace *t, const op *ops, int count, const effort *how, tally *out);

#endif
