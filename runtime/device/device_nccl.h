/* device_nccl.h: collectives on device memory, in stream order; a graph may capture them. NCCL is
 * opened for two or more ranks only; with one rank a sum is the value itself. Each list of a group of comm.h has a
 * communicator of its own; an exchange names its group. The device's counters count collectives, as those of comm.h do.
 * All ranks make the same calls in the same order. NCCL connects the ranks at the first collective of a kind and size,
 * which must not be in a capture. */
#ifndef GA_DEVICE_NCCL_H
#define GA_DEVICE_NCCL_H
#include "ranks/comm.h"
#include "device/device.h"

typedef struct ga_nccl ga_nccl;

/* Collective over `comm` (of any comm_*.c), behind ga_comm_divide; only open and ga_nccl_close use comm. */
int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e);
/* Collective. Releases the device's graphs first: NCCL waits for ever for graphs that use its
 * communicator. NULL is allowed. */
void ga_nccl_close(ga_nccl *c);
int ga_nccl_rank(const ga_nccl *c);
int ga_nccl_size(const ga_nccl *c);

/* Sums n elements in place: GA_F32, GA_F64, GA_BF16, GA_F16 or GA_I64. */
int ga_nccl_all_reduce(ga_nccl *c, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e);
/* Makes an exchange whose values are on the device, in their own type and without a shard; x->values is not looked at.
 * Equal cuts are faster than others. */
int ga_nccl_exchange(ga_nccl *c, ga_cuda_stream s, ga_address values, const ga_exchange *x, ga_err *e);
/* The same of a GA_ALL_GATHER whose own cut lies elsewhere, at `own`. */
int ga_nccl_gather(ga_nccl *c, ga_cuda_stream s, ga_address values, ga_address own, const ga_exchange *x, ga_err *e);

/* Gathers n elements of each rank, in the order of the ranks: all has them, and this rank's own are in their place. */
int ga_nccl_gather_equal(ga_nccl *c, ga_cuda_stream s, ga_address all, size_t n, ga_dtype t, ga_err *e);

/* Sums n doubles in place; of the last `largest` of them each becomes the largest of the ranks. Counted without
 * bytes. */
int ga_nccl_small(ga_nccl *c, ga_cuda_stream s, ga_address values, size_t n, size_t largest, ga_err *e);

/* As ga_device_sync, for a stream with collectives: the pulse sees that this rank waits for others, and if NCCL fails
 * the wait ends with its error; no collective can be made from then on. */
int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e);
#endif
