// Plain CUDA C++: no header, no macro beyond this file. Blocks are whole warps, sums have one
// order: lanes as a butterfly, then warps by number. So a result depends on the launch's shape only.
typedef unsigned char ga_byte;
typedef unsigned int ga_uint32;
typedef long long ga_int64;
typedef unsigned long long ga_uint64;

/* The facts of a micro-batch that a kernel may read, as the host has it (runtime/data/data.h). */
typedef struct ga_micro {
    ga_int64 rows;      // true rows; those behind have weight 0
    ga_int64 before;    // micro-steps of the cycle before this one, on each rank
    ga_int64 row;       // place of the first one in the cycle's global batch
    ga_int64 cycle;     // cycles done before this one
    ga_int64 training;  // 0 in evaluation: nothing random happens
    ga_uint64 seed;     // of the run
} ga_micro;
static_assert(sizeof(ga_micro) == 48, "ga_micro: as the host has it");

// Threads of a block; maybe how many blocks a multiprocessor is to have at least, that is: how many registers a thread.
#define GA_KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define GA_DEVICE static __device__ __forceinline__
#define GA_LANES 32
#define GA_ALL_LANES 0xffffffffu

// The first line of each kernel. From sm_90 on the host may launch a kernel before the one in front of it has ended: what
// that one has written is there behind this line. The next kernel may be launched from here on, and waits in its turn.
GA_DEVICE void ga_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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

// N neighbouring elements in registers. They are read and written 16 bytes at a time, or 8 or 4 if they are no more;
// their place in memory is a multiple of as many bytes. With a `count` below N only so many are.
template <typename T, int N> union ga_few {
    T at[N];
    uint4 wide[(N * sizeof(T) + 15) / 16];
    uint2 half_wide;
    ga_uint32 words[(N * sizeof(T) + 15) / 16 * 4];
};

template <int N, typename T> GA_DEVICE ga_few<T, N> ga_read(const T *from) {
    ga_few<T, N> few;
    if (N * sizeof(T) % 16 == 0) {
#pragma unroll
        for (int k = 0; k < (int)(N * sizeof(T) / 16); k++) few.wide[k] = ((const uint4 *)from)[k];
    } else if (N * sizeof(T) == 8) {
        few.half_wide = *(const uint2 *)from;
    } else if (N > 1 && N * sizeof(T) == 4) {
        few.words[0] = *(const ga_uint32 *)from;
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) few.at[k] = from[k];
    }
    return few;
}

template <int N, typename T> GA_DEVICE ga_few<T, N> ga_read(const T *from, ga_int64 count) {
    if (count >= N) return ga_read<N>(from);
    ga_few<T, N> few;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k < count) few.at[k] = from[k];
    return few;
}

template <int N, typename T> GA_DEVICE void ga_write(T *to, const ga_few<T, N> &few) {
    if (N * sizeof(T) % 16 == 0) {
#pragma unroll
        for (int k = 0; k < (int)(N * sizeof(T) / 16); k++) {
            const ga_uint32 *four = few.words + 4 * k;
            __stwb((uint4 *)to + k, make_uint4(four[0], four[1], four[2], four[3]));  // else cut into elements
        }
    } else if (N * sizeof(T) == 8) {
        *(uint2 *)to = few.half_wide;
    } else if (N > 1 && N * sizeof(T) == 4) {
        *(ga_uint32 *)to = few.words[0];
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) to[k] = few.at[k];
    }
}

template <int N, typename T> GA_DEVICE void ga_write(T *to, const ga_few<T, N> &few, ga_int64 count) {
    if (count >= N) return ga_write(to, few);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (k < count) to[k] = few.at[k];
}

// Copies an object of a multiple of 16 bytes, by all threads of a block.
template <typename T> GA_DEVICE void ga_copy(T *to, const T *from) {
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < sizeof(T) / 16; i += blockDim.x) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
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

// Adds the product of a slice of A and one of B, in shared memory with one column to spare, to the part of a tile
// of C that a thread has: TALL x WIDE elements, evenly spread from (down, across) on.
template <int TALL, int WIDE, int DEPTH, int ROWS, int COLUMNS, typename T>
GA_DEVICE void ga_tile_product(T (&sum)[TALL][WIDE], const T (&a)[DEPTH][ROWS], const T (&b)[DEPTH][COLUMNS],
                               int down, int across) {
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        T x[TALL], y[WIDE];
        for (int u = 0; u < TALL; u++) x[u] = a[k][down + u * ((ROWS - 1) / TALL)];
        for (int v = 0; v < WIDE; v++) y[v] = b[k][across + v * ((COLUMNS - 1) / WIDE)];
        for (int u = 0; u < TALL; u++)
            for (int v = 0; v < WIDE; v++) sum[u][v] = fma(x[u], y[v], sum[u][v]);
    }
}
