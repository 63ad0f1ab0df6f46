/* device_nccl.h: collectives on the memory of devices, in the order of a stream; a graph may hold
 * them. NCCL is opened for two or more ranks only; for one, a sum is what it is. Counted in the
 * device's counters. Every rank calls the same functions in the same order. */
#ifndef GA_DEVICE_NCCL_H
#define GA_DEVICE_NCCL_H
#include "ranks/comm.h"
#include "device/device.h"

typedef struct ga_nccl ga_nccl;

/* Collective over `comm` (any engine), which is used here and by ga_nccl_close only. */
int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e);
/* Collective. Releases the device's graphs first, since NCCL waits for ever for those that hold it.
 * NULL is allowed. */
void ga_nccl_close(ga_nccl *c);
int ga_nccl_rank(const ga_nccl *c);
int ga_nccl_size(const ga_nccl *c);

/* Sum in place of n elements; GA_F32, GA_F64, GA_BF16, GA_F16 or GA_I64. */
int ga_nccl_all_reduce(ga_nccl *c, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e);
/* The sum of the ranks' `from`, n elements per rank: rank r gets part r in `to`, which may be that
 * part of `from`. */
int ga_nccl_reduce_scatter(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                           ga_dtype t, ga_err *e);
/* The ranks' `from`, n elements each, one behind the other in `to`; `from` may be the own part of
 * it. */
int ga_nccl_all_gather(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                       ga_dtype t, ga_err *e);

/* As ga_device_sync, for a stream that holds collectives: no progress for GAGEN_TIMEOUT seconds
 * ends the process with exit 3. */
int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e);
#endif
