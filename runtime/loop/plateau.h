/* plateau.h: lowers the learning rate when a metric stops improving, as torch's ReduceLROnPlateau. */
#ifndef GA_PLATEAU_H
#define GA_PLATEAU_H

#include <stdbool.h>

typedef struct ga_plateau {
    bool more;         /* a larger metric is better; else a smaller one */
    bool absolute;     /* threshold is a difference from the best value; else a fraction of it */
    double factor, threshold, min_rate, eps;
    int patience, cooldown;
} ga_plateau;

/* Takes one value of the metric. rate: the learning rate; best: the best value, at first INFINITY (more:
 * -INFINITY); bad: values in a row that were not better, at first 0; cooldown: values left of the cooldown,
 * at first 0. A NaN is not better. */
void ga_plateau_take(const ga_plateau *p, double value, double *rate, double *best, double *bad, double *cooldown);

#endif
