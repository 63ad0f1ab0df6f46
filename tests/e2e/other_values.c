/* other_values.c: linked with --wrap=ga_init_uniform: with OTHER_VALUES set a rank other than 0 begins with another
 * first value of each parameter. */
#include "base/rng.h"

#include <stdlib.h>

void __real_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);
void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);

void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    __real_ga_init_uniform(data, t, count, seed, name, low, high);
    if (getenv("OTHER_VALUES") && rank && atoi(rank) > 0) ga_set(data, t, 0, ga_get(data, t, 0) + 1);
}
