/* abi_check.c: compares runtime/device/cuda_abi.h and nccl_abi.h with the toolkit's own headers: every
 * function type, enum value and size. Compiling it is the check:
 *     gcc -fsyntax-only -Iruntime -I/usr/local/cuda/include tests/nvrtc/abi_check.c */
#include <cuda.h>
#include <nccl.h>
#include <nvrtc.h>
#include <stddef.h>

/* The runtime's types and constants are renamed while its headers are read; the lists of functions are
 * expanded afterwards, with the toolkit's types. */
#define GA_TYPES(X) \
    X(CUresult) X(CUdevice) X(CUdeviceptr) X(CUcontext) X(CUmodule) X(CUfunction) X(CUstream) \
    X(CUevent) X(CUgraph) X(CUgraphExec) X(nvrtcResult) X(nvrtcProgram) X(ncclResult_t) \
    X(ncclComm_t) X(ncclUniqueId) X(CUtensorMapDataType) X(CUtensorMapInterleave) X(CUtensorMapSwizzle) \
    X(CUtensorMapL2promotion) X(CUtensorMapFloatOOBfill) X(CUlaunchAttribute) X(CUlaunchConfig)
#define GA_VALUES(X) \
    X(CUDA_SUCCESS) X(CUDA_ERROR_OUT_OF_MEMORY) X(CUDA_ERROR_NOT_FOUND) X(CUDA_ERROR_NOT_READY) \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) X(CU_STREAM_NON_BLOCKING) \
    X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) X(CU_EVENT_DEFAULT) X(CU_TENSOR_MAP_DATA_TYPE_FLOAT16) \
    X(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16) X(CU_TENSOR_MAP_INTERLEAVE_NONE) X(CU_TENSOR_MAP_SWIZZLE_128B) \
    X(CU_TENSOR_MAP_L2_PROMOTION_L2_256B) X(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) \
    X(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) X(NVRTC_SUCCESS) \
    X(NVRTC_ERROR_COMPILATION) X(ncclInt64) X(ncclFloat16) X(ncclFloat32) X(ncclFloat64) \
    X(ncclBfloat16) X(ncclSum) X(ncclMax) X(ncclMin)

#define CUresult ga_CUresult
#define CUdevice ga_CUdevice
#define CUdeviceptr ga_CUdeviceptr
#define CUcontext ga_CUcontext
#define CUmodule ga_CUmodule
#define CUfunction ga_CUfunction
#define CUstream ga_CUstream
#define CUevent ga_CUevent
#define CUgraph ga_CUgraph
#define CUgraphExec ga_CUgraphExec
#define nvrtcResult ga_nvrtcResult
#define nvrtcProgram ga_nvrtcProgram
#define CUtensorMap ga_CUtensorMap
#define CUtensorMapDataType ga_CUtensorMapDataType
#define CUtensorMapInterleave ga_CUtensorMapInterleave
#define CUtensorMapSwizzle ga_CUtensorMapSwizzle
#define CUtensorMapL2promotion ga_CUtensorMapL2promotion
#define CUtensorMapFloatOOBfill ga_CUtensorMapFloatOOBfill
#define CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ga_CU_TENSOR_MAP_DATA_TYPE_FLOAT16
#define CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ga_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
#define CU_TENSOR_MAP_INTERLEAVE_NONE ga_CU_TENSOR_MAP_INTERLEAVE_NONE
#define CU_TENSOR_MAP_SWIZZLE_128B ga_CU_TENSOR_MAP_SWIZZLE_128B
#define CU_TENSOR_MAP_L2_PROMOTION_L2_256B ga_CU_TENSOR_MAP_L2_PROMOTION_L2_256B
#define CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ga_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
#define CUtensorMap_st ga_CUtensorMap_st
#define CUlaunchAttribute ga_CUlaunchAttribute
#define CUlaunchAttribute_st ga_CUlaunchAttribute_st
#define CUlaunchConfig ga_CUlaunchConfig
#define CUlaunchConfig_st ga_CUlaunchConfig_st
#define CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION ga_CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
#define ncclResult_t ga_ncclResult_t
#define ncclComm_t ga_ncclComm_t
#define ncclUniqueId ga_ncclUniqueId
#define CUDA_SUCCESS ga_CUDA_SUCCESS
#define CUDA_ERROR_OUT_OF_MEMORY ga_CUDA_ERROR_OUT_OF_MEMORY
#define CUDA_ERROR_NOT_FOUND ga_CUDA_ERROR_NOT_FOUND
#define CUDA_ERROR_NOT_READY ga_CUDA_ERROR_NOT_READY
#define CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ga_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ga_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ga_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
#define CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN \
    ga_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
#define CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES \
    ga_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#define CU_STREAM_NON_BLOCKING ga_CU_STREAM_NON_BLOCKING
#define CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ga_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define CU_EVENT_DEFAULT ga_CU_EVENT_DEFAULT
#define NVRTC_SUCCESS ga_NVRTC_SUCCESS
#define NVRTC_ERROR_COMPILATION ga_NVRTC_ERROR_COMPILATION
#define ncclInt64 ga_ncclInt64
#define ncclFloat16 ga_ncclFloat16
#define ncclFloat32 ga_ncclFloat32
#define ncclFloat64 ga_ncclFloat64
#define ncclBfloat16 ga_ncclBfloat16
#define ncclSum ga_ncclSum
#define ncclMax ga_ncclMax
#define ncclMin ga_ncclMin
#include "device/cuda_abi.h"
#include "device/nccl_abi.h"
#undef CUresult
#undef CUdevice
#undef CUdeviceptr
#undef CUcontext
#undef CUmodule
#undef CUfunction
#undef CUstream
#undef CUevent
#undef CUgraph
#undef CUgraphExec
#undef nvrtcResult
#undef nvrtcProgram
#undef CUtensorMap
#undef CUtensorMapDataType
#undef CUtensorMapInterleave
#undef CUtensorMapSwizzle
#undef CUtensorMapL2promotion
#undef CUtensorMapFloatOOBfill
#undef CU_TENSOR_MAP_DATA_TYPE_FLOAT16
#undef CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
#undef CU_TENSOR_MAP_INTERLEAVE_NONE
#undef CU_TENSOR_MAP_SWIZZLE_128B
#undef CU_TENSOR_MAP_L2_PROMOTION_L2_256B
#undef CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
#undef CUtensorMap_st
#undef CUlaunchAttribute
#undef CUlaunchAttribute_st
#undef CUlaunchConfig
#undef CUlaunchConfig_st
#undef CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
#undef ncclResult_t
#undef ncclComm_t
#undef ncclUniqueId
#undef CUDA_SUCCESS
#undef CUDA_ERROR_OUT_OF_MEMORY
#undef CUDA_ERROR_NOT_FOUND
#undef CUDA_ERROR_NOT_READY
#undef CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
#undef CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
#undef CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
#undef CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
#undef CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#undef CU_STREAM_NON_BLOCKING
#undef CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#undef CU_EVENT_DEFAULT
#undef NVRTC_SUCCESS
#undef NVRTC_ERROR_COMPILATION
#undef ncclInt64
#undef ncclFloat16
#undef ncclFloat32
#undef ncclFloat64
#undef ncclBfloat16
#undef ncclSum
#undef ncclMax
#undef ncclMin

#define SAME_SIZE(type) _Static_assert(sizeof(type) == sizeof(ga_##type), #type);
#define SAME_VALUE(value) _Static_assert((int)value == (int)ga_##value, #value);
#define SAME_FUNCTION(result, name, arguments) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name);
GA_TYPES(SAME_SIZE)
GA_VALUES(SAME_VALUE)
GA_CUDA_FUNCTIONS(SAME_FUNCTION)
GA_CUDA_OPTIONAL(SAME_FUNCTION)
GA_NVRTC_FUNCTIONS(SAME_FUNCTION)
GA_NCCL_FUNCTIONS(SAME_FUNCTION)
