/* epochs.h: cycles over epochs: the micro-batches of each cycle and the number of cycles. Pure
 * arithmetic, used by the loader (data.h) and by gagen's plan. An epoch has N micro-batches on each
 * rank, numbered by `position` 0..N-1. */
#ifndef GA_EPOCHS_H
#define GA_EPOCHS_H

#include "base/ga.h"

/* From cycle `from` on (cycles count from 0 over the whole run) a full cycle has `count`
 * micro-batches. */
typedef struct ga_accumulate {
    int64_t from;
    int count; /* > 0 */
} ga_accumulate;

/* Use of the last N mod A micro-batches of an epoch:
 *   GA_DROP   not used: a cycle that the epoch cannot fill is never started
 *   GA_FLUSH  a shorter cycle of their own
 *   GA_CARRY  the cycle continues in the next epoch; the rest at the end of the run is not used */
typedef enum ga_tail { GA_DROP, GA_FLUSH, GA_CARRY } ga_tail;

/* N of an epoch of unknown length: so large that no cycle reaches it. */
#define GA_EPOCHS_OPEN (INT64_MAX / 2)

typedef struct ga_epochs {
    int64_t batches;                 /* N */
    const ga_accumulate *accumulate; /* ascending, the first from cycle 0 */
    int accumulates;                 /* entries of accumulate, > 0 */
    ga_tail tail;
} ga_epochs;

/* A place in training: before micro-batch `position` of `epoch`, with r micro-batches of cycle
 * `cycle` done. A place is normal if a micro-batch is served there: the place after the last one of
 * an epoch is position 0 of the next. */
typedef struct ga_place {
    int64_t epoch, position, cycle;
    int r;
} ga_place;

/* Micro-batches of a full cycle, A. */
int ga_epochs_accumulate(const ga_epochs *s, int64_t cycle);
int ga_epochs_largest(const ga_epochs *s); /* the largest A of all cycles */

/* GA_INPUT, with the numbers, if no epoch can serve a cycle: N = 0, or a full cycle of more than N
 * with GA_DROP. */
int ga_epochs_check(const ga_epochs *s, ga_err *e);

/* Makes a place normal: moves it to the next epoch if this one serves no micro-batch there. GA_INPUT
 * if there is no such place. */
int ga_epochs_place(const ga_epochs *s, ga_place *p, ga_err *e);

/* Micro-batches of the cycle at a normal place, including those done: 1..A. */
int ga_epochs_cycle(const ga_epochs *s, const ga_place *p);

/* Advances a normal place by `count` micro-batches. */
void ga_epochs_advance(const ga_epochs *s, ga_place *p, int count);

/* The epoch in which the cycle at a place began: one before, if more of its micro-batches are done than this epoch has
 * served. */
int64_t ga_epochs_began(ga_place p);

/* Number of cycles of the first `epochs` epochs. A fraction of an epoch counts that part of its
 * cycles, rounded down; with GA_CARRY the whole cycles of epochs * N micro-batches are counted. */
int64_t ga_epochs_cycles(const ga_epochs *s, double epochs);

/* The cycles that are done at the end of a run that is at place p, after any cycles, and trains the first `epochs`
 * epochs: up to the place where ga_epochs_cycles ends, or the last whole cycle before; those of p if p is behind it. */
int64_t ga_epochs_end(const ga_epochs *s, ga_place p, double epochs);

/* How many cycles more the epochs up to that of p have in a run at p, after any cycles, than in one of s alone: not 0
 * where cycles before p had other rows, as with other ranks. With GA_CARRY in micro-batches, the A of cycle 0 for each
 * cycle. */
int64_t ga_epochs_shift(const ga_epochs *s, ga_place p);

#endif
