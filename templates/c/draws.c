// draws: random numbers for kernels.

//@ draws()
#include "runtime/base/rng.h"
