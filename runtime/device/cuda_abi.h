/* cuda_abi.h: the functions of the CUDA driver and NVRTC that a program uses, declared here so that
 * building needs no toolkit. Each list names every function once:
 * X(result, name, arguments). Checked against the real headers by tests/nvrtc/abi_check.c. */
#ifndef GA_CUDA_ABI_H
#define GA_CUDA_ABI_H
#include <stddef.h>
#include <stdint.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_EVENT_DEFAULT = 0,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    CU_TENSOR_MAP_SWIZZLE_128B = 3,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};
typedef unsigned CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill; /* enums of the driver */
typedef struct CUtensorMap_st CUtensorMap;

/* A launch with attributes, each of 64 bytes of which ours has one number. */
typedef struct CUlaunchAttribute_st {
    unsigned id;
    _Alignas(8) int value;
    char rest[60];
} CUlaunchAttribute;
typedef struct CUlaunchConfig_st {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

#define GA_CUDA_FUNCTIONS(X) \
    X(CUresult, cuInit, (unsigned)) \
    X(CUresult, cuDriverGetVersion, (int *)) \
    X(CUresult, cuGetErrorName, (CUresult, const char **)) \
    X(CUresult, cuGetErrorString, (CUresult, const char **)) \
    X(CUresult, cuDeviceGetCount, (int *)) \
    X(CUresult, cuDeviceGet, (CUdevice *, int)) \
    X(CUresult, cuDeviceGetName, (char *, int, CUdevice)) \
    X(CUresult, cuDeviceGetAttribute, (int *, unsigned, CUdevice)) \
    X(CUresult, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice)) \
    X(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice)) \
    X(CUresult, cuCtxSetCurrent, (CUcontext)) \
    X(CUresult, cuCtxSynchronize, (void)) \
    X(CUresult, cuMemGetInfo_v2, (size_t *, size_t *)) \
    X(CUresult, cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    X(CUresult, cuMemFree_v2, (CUdeviceptr)) \
    X(CUresult, cuMemAllocHost_v2, (void **, size_t)) \
    X(CUresult, cuMemFreeHost, (void *)) \
    X(CUresult, cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t)) \
    X(CUresult, cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t)) \
    X(CUresult, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream)) \
    X(CUresult, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream)) \
    X(CUresult, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream)) \
    X(CUresult, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream)) \
    X(CUresult, cuModuleLoadData, (CUmodule *, const void *)) \
    X(CUresult, cuModuleUnload, (CUmodule)) \
    X(CUresult, cuModuleGetFunction, (CUfunction *, CUmodule, const char *)) \
    X(CUresult, cuFuncSetAttribute, (CUfunction, unsigned, int)) \
    X(CUresult, cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, \
                                 unsigned, unsigned, CUstream, void **, void **)) \
    X(CUresult, cuStreamCreate, (CUstream *, unsigned)) \
    X(CUresult, cuStreamDestroy_v2, (CUstream)) \
    X(CUresult, cuStreamSynchronize, (CUstream)) \
    X(CUresult, cuStreamQuery, (CUstream)) \
    X(CUresult, cuStreamWaitEvent, (CUstream, CUevent, unsigned)) \
    X(CUresult, cuEventCreate, (CUevent *, unsigned)) \
    X(CUresult, cuEventDestroy_v2, (CUevent)) \
    X(CUresult, cuEventRecord, (CUevent, CUstream)) \
    X(CUresult, cuEventSynchronize, (CUevent)) \
    X(CUresult, cuEventElapsedTime, (float *, CUevent, CUevent)) \
    X(CUresult, cuStreamBeginCapture_v2, (CUstream, unsigned)) \
    X(CUresult, cuStreamEndCapture, (CUstream, CUgraph *)) \
    X(CUresult, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    X(CUresult, cuGraphLaunch, (CUgraphExec, CUstream)) \
    X(CUresult, cuGraphExecDestroy, (CUgraphExec)) \
    X(CUresult, cuGraphDestroy, (CUgraph))

/* Functions that not all drivers have. */
#define GA_CUDA_OPTIONAL(X) \
    X(CUresult, cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **)) \
    X(CUresult, cuTensorMapEncodeTiled, (CUtensorMap *, CUtensorMapDataType, unsigned, void *, const uint64_t *, \
                                         const uint64_t *, const unsigned *, const unsigned *, CUtensorMapInterleave, \
                                         CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill))

typedef int nvrtcResult; /* 0 is success */
typedef struct _nvrtcProgram *nvrtcProgram;
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

#define GA_NVRTC_FUNCTIONS(X) \
    X(nvrtcResult, nvrtcVersion, (int *, int *)) \
    X(const char *, nvrtcGetErrorString, (nvrtcResult)) \
    X(nvrtcResult, nvrtcGetNumSupportedArchs, (int *)) \
    X(nvrtcResult, nvrtcGetSupportedArchs, (int *)) \
    X(nvrtcResult, nvrtcCreateProgram, (nvrtcProgram *, const char *, const char *, int, \
                                        const char *const *, const char *const *)) \
    X(nvrtcResult, nvrtcCompileProgram, (nvrtcProgram, int, const char *const *)) \
    X(nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram, size_t *)) \
    X(nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram, char *)) \
    X(nvrtcResult, nvrtcGetPTXSize, (nvrtcProgram, size_t *)) \
    X(nvrtcResult, nvrtcGetPTX, (nvrtcProgram, char *)) \
    X(nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram, size_t *)) \
    X(nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram, char *)) \
    X(nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram *))
#endif
