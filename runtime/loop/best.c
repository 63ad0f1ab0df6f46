/* best.c: see best.h. */
#include "loop/best.h"

#include <math.h>

/* Whether value is better than `than` by more than delta. */
static bool better(const ga_best_rule *r, double value, double than, double delta) {
    return r->more ? value > than + delta : value < than - delta;
}

void ga_best_take(const ga_best_rule *r, double value, int64_t cycle, ga_best *b) {
    const bool first = b->cycle < 0, finite = isfinite(value);
    const bool improved = finite && (first || better(r, value, b->mark, r->min_delta));
    if (finite && (first || better(r, value, b->value, 0))) {
        b->value = value;
        b->cycle = cycle;
    }
    if (improved) b->mark = value;
    b->bad = improved ? 0 : b->bad + 1;
}

bool ga_best_exhausted(const ga_best_rule *r, const ga_best *b) {
    return r->patience > 0 && b->bad >= r->patience;
}
