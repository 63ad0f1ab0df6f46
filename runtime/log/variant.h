/* variant.h: another build of the same program. */
#ifndef GA_VARIANT_H
#define GA_VARIANT_H

#include "base/ga.h"

/* Lets `make` build `name` in the program's folder by the command of the last build, and goes on as that program with
 * the same words. Returns only if it cannot: GA_ENVIRONMENT. */
int ga_variant_start(const char *name, char *const *argv, ga_err *e);

#endif
