/* differences.h: the gradient of an emitted program against central differences of its loss. */
#ifndef DIFFERENCES_H
#define DIFFERENCES_H

#include "drive.h"

/* Checks every tensor: all elements if there are at most 64, else 16 elements and 8 directions;
 * step 6e-6 max(1, |x|) and half of it; bound 1e-7 of the sum of absolute terms. Prints a line per
 * tensor and one per disagreement. Returns the number of disagreements, or a negative ga_status.
 * Parameters and gradient are left as they were. */
int differences_check(model *m, ga_err *e);

#endif
