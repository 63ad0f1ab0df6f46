/* cycle.h: the three counters of training, and the only place that decides a role or a boundary.
 * micro counts passes, cycle counts boundaries passed, update counts updates applied (cycle -
 * skipped). */
#ifndef GA_CYCLE_H
#define GA_CYCLE_H

#include "base/ga.h"

enum { GA_SKIP_LIMIT = 50 }; /* so many skipped updates in a row end the run */

typedef struct ga_cycle {
    int64_t micro, cycle, update, skipped;
    int64_t skipped_in_row;
    int r; /* micro-steps accumulated in the present cycle, 0..a */
    int a; /* micro-steps of the present cycle, > 0 */
} ga_cycle;

/* What a micro-step does with gradients: ONLY and FIRST write them, NEXT and LAST add;
 * ONLY and LAST reduce them over the ranks. */
typedef enum ga_role { GA_ONLY, GA_FIRST, GA_NEXT, GA_LAST } ga_role;

/* The present cycle has `a` micro-steps, the r that are done included. GA_BUG if a <= r. */
int ga_cycle_begin(ga_cycle *c, int a, ga_err *e);

static inline bool ga_role_adds(ga_role r) { return r == GA_NEXT || r == GA_LAST; }
static inline bool ga_role_reduces(ga_role r) { return r == GA_ONLY || r == GA_LAST; }

/* Role of the micro-step about to run (r < a). */
ga_role ga_cycle_role(const ga_cycle *c);

/* GA_INPUT if the cycle is full: a micro-step has no place in it. */
int ga_cycle_room(const ga_cycle *c, ga_err *e);

/* Counts one finished micro-step. GA_INPUT if the cycle was already full. */
int ga_cycle_micro_done(ga_cycle *c, ga_err *e);

/* True if the cycle is complete (r == a): time for the boundary. */
bool ga_cycle_boundary(const ga_cycle *c);

/* Passes a boundary (with 1 <= r <= a: r < a ends the cycle early): r = 0, cycle + 1, update + 1 if applied,
 * else skipped + 1. GA_NONFINITE at the GA_SKIP_LIMIT-th skip in a row, GA_BUG with r == 0. */
int ga_cycle_commit(ga_cycle *c, bool applied, ga_err *e);

/* Gives up a partial cycle: r = 0; its passes stay counted in micro. */
void ga_cycle_discard(ga_cycle *c);

#endif
