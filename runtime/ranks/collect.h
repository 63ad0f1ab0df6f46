/* collect.h: collectives over a caller's own values, for the library interface, made from those of
 * comm.h. All ranks make the same calls in the same order. GA_INPUT: NULL for some values, no such type. */
#ifndef GA_COLLECT_H
#define GA_COLLECT_H

#include "ranks/comm.h"

/* Gathers n elements of each rank into out, ranks x n, in the order of the ranks; in may lie in out. */
int ga_collect_gather(ga_comm *c, const void *in, void *out, size_t n, ga_dtype t, ga_err *e);

/* Reduces n elements in place: F32 or F64, for GA_SUM also I32 or I64; a NaN on any rank gives NaN. `to`: the
 * rank that needs the result, -1 for all. GA_INPUT: another type, no such operation or rank. */
int ga_collect_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e);

/* Copies `bytes` bytes of rank `from` to all ranks. GA_INPUT: no such rank. */
int ga_collect_broadcast(ga_comm *c, void *buf, size_t bytes, int from, ga_err *e);

/* The same over the ranks of the own list of a group of comm.h; ranks are places in the list. */
int ga_collect_gather_in(ga_comm *c, int group, const void *in, void *out, size_t n, ga_dtype t, ga_err *e);
int ga_collect_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_op op, int to, ga_err *e);
int ga_collect_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int from, ga_err *e);

#endif
