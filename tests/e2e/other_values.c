/* other_values.c: linked with --wrap=ga_init_uniform: with OTHER_VALUES=N rank N and those behind it begin with another
 * first value of each parameter. */
#include "base/rng.h"

#include <stdlib.h>

void __real_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);
void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high);

void __wrap_ga_init_uniform(void *data, ga_dtype t, int64_t count, uint64_t seed, const char *name, double low,
                            double high) {
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *first = getenv("OTHER_VALUES");
    __real_ga_init_uniform(data, t, count, seed, name, low, high);
    if (first && rank && atoi(rank) >= atoi(first)) ga_set(data, t, 0, ga_get(data, t, 0) + 1);
}
