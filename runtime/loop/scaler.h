/* scaler.h: a loss scale that follows the gradient: down where it overflowed, up again where it has not for
 * long. The loss of a cycle is multiplied by the scale, its gradient divided by it before anything looks at it. */
#ifndef GA_SCALER_H
#define GA_SCALER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_scaler {
    double growth_factor;  /* above 1 */
    double backoff_factor; /* above 0, below 1 */
    double min_scale;      /* 0: no floor */
    double max_scale;      /* INFINITY: no ceiling */
    int64_t growth_interval; /* cycles without an overflow, in a row, after which the scale grows; at least 1 */
    int64_t hysteresis;      /* overflows after which the scale falls; 0 is as 1 */
} ga_scaler;

/* Takes one cycle. growth_step: cycles without an overflow since the scale has last grown, or since the last
 * overflow; hysteresis_step: overflows since the scale has last grown; both 0 at first. After `hysteresis`
 * overflows each one lowers the scale, until it has grown again: neither a fall nor a cycle without an
 * overflow sets hysteresis_step back. */
void ga_scaler_take(const ga_scaler *c, bool overflow, double *scale, int64_t *growth_step,
                    int64_t *hysteresis_step);

#endif
