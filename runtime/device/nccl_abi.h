/* nccl_abi.h: the functions of NCCL that a program uses, declared as in cuda_abi.h. */
#ifndef GA_NCCL_ABI_H
#define GA_NCCL_ABI_H
#include "device/cuda_abi.h"

typedef int ncclResult_t; /* 0 is success */
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
enum { ncclInt64 = 4, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8, ncclBfloat16 = 9 };
enum { ncclSum = 0, ncclMax = 2, ncclMin = 3 };

#define GA_NCCL_FUNCTIONS(X) \
    X(ncclResult_t, ncclGetVersion, (int *)) \
    X(const char *, ncclGetErrorString, (ncclResult_t)) \
    X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *)) \
    X(ncclResult_t, ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int)) \
    X(ncclResult_t, ncclCommDestroy, (ncclComm_t)) \
    X(ncclResult_t, ncclCommAbort, (ncclComm_t)) \
    X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *)) \
    X(ncclResult_t, ncclAllReduce, (const void *, void *, size_t, unsigned, unsigned, ncclComm_t, \
                                  CUstream)) \
    X(ncclResult_t, ncclReduceScatter, (const void *, void *, size_t, unsigned, unsigned, \
                                        ncclComm_t, CUstream)) \
    X(ncclResult_t, ncclAllGather, (const void *, void *, size_t, unsigned, ncclComm_t, CUstream)) \
    X(ncclResult_t, ncclReduce, (const void *, void *, size_t, unsigned, unsigned, int, ncclComm_t, \
                                 CUstream)) \
    X(ncclResult_t, ncclBroadcast, (const void *, void *, size_t, unsigned, int, ncclComm_t, CUstream)) \
    X(ncclResult_t, ncclGroupStart, (void)) \
    X(ncclResult_t, ncclGroupEnd, (void))

/* Functions of newer ones only: may be NULL. */
#define GA_NCCL_OPTIONAL(X) \
    X(ncclResult_t, ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, void *))
#endif
