// draws: random numbers for kernels.

//@ draws()
#include "runtime/rng.h"
