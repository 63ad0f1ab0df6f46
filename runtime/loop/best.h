/* best.h: the best evaluation of a run, and patience with evaluations that are no better. */
#ifndef GA_BEST_H
#define GA_BEST_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_best_rule {
    const char *metric; /* "loss", ... */
    bool more;          /* a larger value is better; else a smaller one */
    int patience;       /* evaluations in a row without improvement that end training; 0: any number */
    double min_delta;   /* a smaller change than this is no improvement, >= 0 */
} ga_best_rule;

/* State over the evaluations of a run, kept by checkpoints. */
typedef struct ga_best {
    double value;  /* the best; 0 without one */
    int64_t cycle; /* of that evaluation; -1: none yet */
    double mark;   /* the value that the next one must improve by more than min_delta */
    int64_t bad;   /* evaluations in a row that did not */
} ga_best;

/* The state before the first evaluation. */
#define GA_BEST_NONE ((ga_best){.cycle = -1})

/* Takes the metric of one evaluation. A value that is not finite improves nothing. */
void ga_best_take(const ga_best_rule *r, double value, int64_t cycle, ga_best *b);

/* Whether patience is at its end. */
bool ga_best_exhausted(const ga_best_rule *r, const ga_best *b);

#endif
