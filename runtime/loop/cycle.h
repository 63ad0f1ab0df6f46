/* cycle.h: the counters of training; only this file decides roles and boundaries. micro counts
 * micro-steps, cycle counts boundaries, update counts applied updates (cycle - skipped). */
#ifndef GA_CYCLE_H
#define GA_CYCLE_H

#include "base/ga.h"

enum { GA_SKIP_LIMIT = 50 }; /* skipped updates in a row that end the run */

typedef struct ga_cycle {
    int64_t micro, cycle, update, skipped;
    int64_t skipped_in_row;
    int r; /* micro-steps accumulated in the present cycle, 0..a */
    int a; /* micro-steps of the present cycle, > 0 */
} ga_cycle;

/* Role of a micro-step in its cycle: ONLY and FIRST write the gradients, NEXT and LAST add to them;
 * ONLY and LAST reduce them over the ranks. */
typedef enum ga_role { GA_ONLY, GA_FIRST, GA_NEXT, GA_LAST } ga_role;

/* Sets the micro-steps of the present cycle to `a`, including the r done. GA_BUG if a <= r. */
int ga_cycle_begin(ga_cycle *c, int a, ga_err *e);

static inline bool ga_role_adds(ga_role r) { return r == GA_NEXT || r == GA_LAST; }
static inline bool ga_role_reduces(ga_role r) { return r == GA_ONLY || r == GA_LAST; }

/* Role of the micro-step about to run (r < a). */
ga_role ga_cycle_role(const ga_cycle *c);

/* GA_INPUT if the cycle is full: no micro-step may follow before the boundary. */
int ga_cycle_room(const ga_cycle *c, ga_err *e);

/* Counts one finished micro-step. GA_INPUT if the cycle was already full. */
int ga_cycle_micro_done(ga_cycle *c, ga_err *e);

/* True if the cycle is complete (r == a) and the boundary is next. */
bool ga_cycle_boundary(const ga_cycle *c);

/* Counts a boundary (1 <= r <= a; r < a ends the cycle early): sets r = 0, adds 1 to cycle and to update if
 * applied, else to skipped. GA_NONFINITE at the GA_SKIP_LIMIT-th skip in a row, GA_BUG if r == 0. */
int ga_cycle_commit(ga_cycle *c, bool applied, ga_err *e);

/* Whether a tenth of the run's `cycles` is nearest to this cycle, among the cycles that lie `spacing` > 0 apart. */
bool ga_cycle_near_tenth(const ga_cycle *c, int64_t cycles, int64_t spacing);

/* Discards a partial cycle: r = 0; its micro-steps stay counted in micro. */
void ga_cycle_discard(ga_cycle *c);

#endif
