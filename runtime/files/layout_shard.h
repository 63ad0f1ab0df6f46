/* layout_shard.h: the elements of an array beside the flat space that a rank holds. */
#ifndef GA_LAYOUT_SHARD_H
#define GA_LAYOUT_SHARD_H

#include "files/layout.h"

/* The elements of an array that go with those of the flat space in `own`: all tensors of the array have the names of
 * parameters. A tensor has as many elements as its parameter, in the same order; or another number, then all of them go
 * with the parameter's first element. */
int ga_layout_shard(ga_shard *out, const ga_shard *own, const ga_param *params, int count, const ga_param *of,
                    int of_count, ga_err *e);

#endif
