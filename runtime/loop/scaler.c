/* scaler.c: see scaler.h. */
#include "loop/scaler.h"

#include <math.h>

void ga_scaler_take(const ga_scaler *c, bool overflow, double *scale, int64_t *growth_step,
                    int64_t *hysteresis_step) {
    if (overflow) {
        *growth_step = 0;
        *hysteresis_step += 1;
        if (*hysteresis_step >= c->hysteresis) *scale = fmax(*scale * c->backoff_factor, c->min_scale);
        return;
    }
    *growth_step += 1;
    if (*growth_step < c->growth_interval) return;
    *growth_step = 0;
    *hysteresis_step = 0;
    const double grown = fmin(*scale * c->growth_factor, c->max_scale);
    if (isfinite(grown)) *scale = grown;
}
