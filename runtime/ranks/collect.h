/* collect.h: collectives over values of a caller's own, made from those of comm.h: the library's face.
 * Same order on all ranks. */
#ifndef GA_COLLECT_H
#define GA_COLLECT_H

#include "ranks/comm.h"

/* `bytes` bytes of each rank, in the order of the ranks, into out (ranks x bytes; in may lie in it). */
int ga_collect_gather(ga_comm *c, const void *in, void *out, size_t bytes, ga_err *e);

/* Element by element, in place, on all ranks: F32 or F64, for GA_SUM also I32 or I64; NaN wins. `to` says who
 * wants the result, -1 for all. GA_INPUT: another type, or a rank that is none. */
int ga_collect_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e);

/* `bytes` bytes of rank `from`. GA_INPUT: a rank that is none. */
int ga_collect_broadcast(ga_comm *c, void *buf, size_t bytes, int from, ga_err *e);

#endif
