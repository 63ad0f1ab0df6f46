// Plain CUDA C++: no header, no macro beyond this file. Blocks are whole warps, sums have one
// order: lanes as a butterfly, then warps by number. So a result depends on the launch's shape only.
typedef unsigned char ga_byte;
typedef unsigned int ga_uint32;
typedef long long ga_int64;
typedef unsigned long long ga_uint64;

#define GA_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define GA_DEVICE static __device__ __forceinline__
#define GA_LANES 32
#define GA_ALL_LANES 0xffffffffu

GA_DEVICE float ga_infinity(float) {
    return __int_as_float(0x7f800000);
}
GA_DEVICE double ga_infinity(double) {
    return __longlong_as_double(0x7ff0000000000000ll);
}

// This thread's number in the launch, and how many there are: for (i = first; i < n; i += count)
GA_DEVICE ga_int64 ga_thread_first() {
    return (ga_int64)blockIdx.x * blockDim.x + threadIdx.x;
}
GA_DEVICE ga_int64 ga_thread_count() {
    return (ga_int64)gridDim.x * blockDim.x;
}

// The sum (greatest value) over the 32 lanes, the same in every lane. All lanes take part.
template <typename T> GA_DEVICE T ga_warp_sum(T v) {
    for (int step = GA_LANES / 2; step > 0; step /= 2) v += __shfl_xor_sync(GA_ALL_LANES, v, step);
    return v;
}

template <typename T> GA_DEVICE T ga_warp_max(T v) {
    for (int step = GA_LANES / 2; step > 0; step /= 2) {
        T other = __shfl_xor_sync(GA_ALL_LANES, v, step);
        v = other > v || other != other ? other : v;  // a NaN stays visible
    }
    return v;
}

// The sum (greatest value) over a one-dimensional block of whole warps, the same in every thread.
// All threads take part; scratch is shared memory for 32 values and free again at the next call.
template <typename T> GA_DEVICE T ga_block_sum(T v, T *scratch) {
    v = ga_warp_sum(v);
    __syncthreads();
    if (threadIdx.x % GA_LANES == 0) scratch[threadIdx.x / GA_LANES] = v;
    __syncthreads();
    T sum = scratch[0];
    for (unsigned warp = 1; warp < blockDim.x / GA_LANES; warp++) sum += scratch[warp];
    return sum;
}

template <typename T> GA_DEVICE T ga_block_max(T v, T *scratch) {
    v = ga_warp_max(v);
    __syncthreads();
    if (threadIdx.x % GA_LANES == 0) scratch[threadIdx.x / GA_LANES] = v;
    __syncthreads();
    T greatest = scratch[0];
    for (unsigned warp = 1; warp < blockDim.x / GA_LANES; warp++) {
        T other = scratch[warp];
        greatest = other > greatest || other != other ? other : greatest;
    }
    return greatest;
}
