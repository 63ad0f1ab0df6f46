/* plateau.c: see plateau.h. */
#include "loop/plateau.h"

#include <math.h>

/* Whether value is better than best by more than the threshold. */
static bool better(const ga_plateau *p, double value, double best) {
    const double sign = p->more ? 1 : -1;
    const double bound = p->absolute ? best + sign * p->threshold : best * (1 + sign * p->threshold);
    return p->more ? value > bound : value < bound;
}

void ga_plateau_take(const ga_plateau *p, double value, double *rate, double *best, double *bad, double *cooldown) {
    if (better(p, value, *best)) {
        *best = value;
        *bad = 0;
    } else {
        *bad += 1;
    }
    if (*cooldown > 0) {
        *cooldown -= 1;
        *bad = 0;
    }
    if (*bad <= p->patience) return;
    const double lower = fmax(*rate * p->factor, p->min_rate);
    if (*rate - lower > p->eps) *rate = lower;
    *cooldown = p->cooldown;
    *bad = 0;
}
