/* scaler.h: dynamic loss scale: it falls after overflows of the gradient and grows after many cycles without
 * one. The loss of a cycle is multiplied by the scale; its gradient is divided by it before any other use. */
#ifndef GA_SCALER_H
#define GA_SCALER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ga_scaler {
    double growth_factor;  /* above 1 */
    double backoff_factor; /* above 0, below 1 */
    double min_scale;      /* 0: no floor */
    double max_scale;      /* INFINITY: no ceiling */
    int64_t growth_interval; /* the scale grows after so many cycles in a row without an overflow; at least 1 */
    int64_t hysteresis;      /* the scale falls after so many overflows; 0 means 1 */
} ga_scaler;

/* Updates the scale after one cycle. growth_step: cycles since the last growth or overflow;
 * hysteresis_step: overflows since the last growth; both start at 0. From the `hysteresis`-th overflow on,
 * each overflow lowers the scale until it grows again: only growth resets hysteresis_step. */
void ga_scaler_take(const ga_scaler *c, bool overflow, double *scale, int64_t *growth_step,
                    int64_t *hysteresis_step);

#endif
