/* device_nccl.h: collectives on device memory, in stream order; a graph may capture them. NCCL is
 * opened for two or more ranks only; with one rank a sum is the value itself. The device's counters
 * count them. All ranks make the same calls in the same order. */
#ifndef GA_DEVICE_NCCL_H
#define GA_DEVICE_NCCL_H
#include "ranks/comm.h"
#include "device/device.h"

typedef struct ga_nccl ga_nccl;

/* Collective over `comm` (of any comm_*.c); only open and ga_nccl_close use comm. */
int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e);
/* Collective. Releases the device's graphs first: NCCL waits for ever for graphs that use its
 * communicator. NULL is allowed. */
void ga_nccl_close(ga_nccl *c);
int ga_nccl_rank(const ga_nccl *c);
int ga_nccl_size(const ga_nccl *c);

/* Sums n elements in place: GA_F32, GA_F64, GA_BF16, GA_F16 or GA_I64. */
int ga_nccl_all_reduce(ga_nccl *c, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e);
/* Sums the ranks' `from`, size * n elements: rank r gets part r, n elements, in `to`, which may be that
 * part of `from`. */
int ga_nccl_reduce_scatter(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                           ga_dtype t, ga_err *e);
/* Gathers the ranks' `from`, n elements each, in `to` in the order of the ranks; `from` may be this
 * rank's part of `to`. */
int ga_nccl_all_gather(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                       ga_dtype t, ga_err *e);

/* As ga_device_sync, for a stream with collectives: the pulse sees that this rank waits for others. */
int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e);
#endif
