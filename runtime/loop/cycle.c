/* cycle.c: counters, roles, boundaries. */
#include "loop/cycle.h"

#include <math.h>

int ga_cycle_begin(ga_cycle *c, int a, ga_err *e) {
    if (a <= c->r)
        return ga_fail(e, GA_BUG, "cycle %lld of %d micro-steps, %d are done",
                       (long long)c->cycle + 1, a, c->r);
    c->a = a;
    return GA_OK;
}

ga_role ga_cycle_role(const ga_cycle *c) {
    bool first = c->r == 0, last = c->r + 1 == c->a;
    if (first) return last ? GA_ONLY : GA_FIRST;
    return last ? GA_LAST : GA_NEXT;
}

int ga_cycle_room(const ga_cycle *c, ga_err *e) {
    if (c->r < c->a) return GA_OK;
    return ga_fail(e, GA_INPUT, "%d of %d micro-steps accumulated: call step", c->r, c->a);
}

int ga_cycle_micro_done(ga_cycle *c, ga_err *e) {
    GA_TRY(ga_cycle_room(c, e));
    c->micro++;
    c->r++;
    return GA_OK;
}

bool ga_cycle_boundary(const ga_cycle *c) {
    return c->r == c->a;
}

int ga_cycle_commit(ga_cycle *c, bool applied, ga_err *e) {
    if (c->r == 0)
        return ga_fail(e, GA_BUG, "boundary of cycle %lld without a micro-step",
                       (long long)c->cycle + 1);
    c->r = 0;
    c->cycle++;
    if (applied) {
        c->update++;
        c->skipped_in_row = 0;
        return GA_OK;
    }
    c->skipped++;
    c->skipped_in_row++;
    if (c->skipped_in_row < GA_SKIP_LIMIT) return GA_OK;
    return ga_fail(e, GA_NONFINITE,
                   "cycle %lld: %lld updates in a row were skipped because the gradient was not "
                   "finite or no target counted, at most %d "
                   "are expected: resume from an earlier checkpoint with a smaller learning rate",
                   (long long)c->cycle, (long long)c->skipped_in_row, GA_SKIP_LIMIT - 1);
}

bool ga_cycle_near_tenth(const ga_cycle *c, int64_t cycles, int64_t spacing) {
    const double run = (double)cycles, tenths = 10 * (double)c->cycle;
    const double nearest = floor(tenths / run + 0.5);
    const double beyond = tenths - nearest * run; /* cycles beyond that tenth, times 10 */
    return nearest > 0 && beyond > -5 * (double)spacing && beyond <= 5 * (double)spacing;
}

void ga_cycle_discard(ga_cycle *c) {
    c->r = 0;
}
