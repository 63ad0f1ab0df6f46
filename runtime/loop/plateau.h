/* plateau.h: a learning rate that falls when a metric stops getting better, as torch's ReduceLROnPlateau. */
#ifndef GA_PLATEAU_H
#define GA_PLATEAU_H

#include <stdbool.h>

typedef struct ga_plateau {
    bool more;         /* better is more; else less */
    bool absolute;     /* threshold is a difference; else a part of the best */
    double factor, threshold, min_rate, eps;
    int patience, cooldown;
} ga_plateau;

/* Takes one value of the metric. rate: the learning rate; best: the best value, at first INFINITY (more:
 * -INFINITY); bad, rest: values in a row that were not better, and values still to be let pass, at first
 * 0. A value that is not a number is not better. */
void ga_plateau_take(const ga_plateau *p, double value, double *rate, double *best, double *bad, double *rest);

#endif
