/* epochs.h: how cycles go through epochs: which micro-batches a cycle has, where it starts, how
 * many there are. Pure arithmetic; the loader (data.h) serves what is decided here, gagen plans
 * with it. An epoch has N micro-batches on each rank, numbered by `position` 0..N-1. */
#ifndef GA_EPOCHS_H
#define GA_EPOCHS_H

#include "base/ga.h"

/* From cycle `from` on (cycles count from 0 over the whole run) a full cycle has `count`
 * micro-batches. */
typedef struct ga_accumulate {
    int64_t from;
    int count; /* > 0 */
} ga_accumulate;

/* What becomes of the N mod A micro-batches at the end of an epoch:
 *   GA_DROP   they are not used: a cycle that the epoch cannot fill is never started
 *   GA_FLUSH  they make a cycle of their own, shorter than A
 *   GA_CARRY  the cycle goes on in the next epoch; what is left at the end of the run is not used */
typedef enum ga_tail { GA_DROP, GA_FLUSH, GA_CARRY } ga_tail;

/* N of an epoch whose end is not known yet: no cycle meets it. */
#define GA_EPOCHS_OPEN (INT64_MAX / 2)

typedef struct ga_epochs {
    int64_t batches;                 /* N */
    const ga_accumulate *accumulate; /* ascending, the first from cycle 0 */
    int accumulates;                 /* how many, > 0 */
    ga_tail tail;
} ga_epochs;

/* Where training stands: before micro-batch `position` of `epoch`, with r micro-batches of cycle
 * `cycle` done. A place is normal if a micro-batch is served there: after the last one of an epoch
 * stands position 0 of the next. */
typedef struct ga_place {
    int64_t epoch, position, cycle;
    int r;
} ga_place;

/* Micro-batches of a full cycle, A. */
int ga_epochs_accumulate(const ga_epochs *s, int64_t cycle);
int ga_epochs_largest(const ga_epochs *s); /* of all cycles */

/* GA_INPUT, with the numbers, if no epoch can serve a cycle: N = 0, or a full cycle of more than N
 * with GA_DROP. */
int ga_epochs_check(const ga_epochs *s, ga_err *e);

/* The place itself, or the next beginning of an epoch where nothing (more) is served. GA_INPUT if
 * there is no such place. */
int ga_epochs_place(const ga_epochs *s, ga_place *p, ga_err *e);

/* Micro-batches of the cycle at a normal place, those done included: 1..A. */
int ga_epochs_cycle(const ga_epochs *s, const ga_place *p);

/* Moves a normal place behind `count` micro-batches. */
void ga_epochs_advance(const ga_epochs *s, ga_place *p, int count);

/* Cycles of the first `epochs` epochs, from cycle 0 on. A fraction of an epoch is that part of its
 * cycles, rounded down; with GA_CARRY all is that part of all micro-batches, in whole cycles. */
int64_t ga_epochs_cycles(const ga_epochs *s, double epochs);

#endif
