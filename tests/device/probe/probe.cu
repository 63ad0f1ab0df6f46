// probe.cu: correct and wrong kernels for the tests of the device library. Names of wrong kernels begin with
// "wrong_"; the line that the checker must name ends in a comment that starts with "found:".

GA_KERNEL(256) add(float *out, const float *a, const float *b, int n) {
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) out[i] = a[i] + b[i];
}

GA_KERNEL(256) block_sum(double *out, const double *in, int n) {
    __shared__ double scratch[GA_LANES];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[(ga_int64)blockIdx.x * n + i];
    sum = ga_block_sum(sum, scratch);
    double greatest = ga_block_max(
        threadIdx.x < n ? in[(ga_int64)blockIdx.x * n + threadIdx.x] : -ga_infinity(0.0), scratch);
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = sum;
        out[2 * blockIdx.x + 1] = greatest;
    }
}

// C[m][n] = A[m][k] B[k][n] by tiles of 16 x 16, any m, n, k
GA_KERNEL(256) gemm(float *c, const float *a, const float *b, int m, int n, int k) {
    __shared__ float ta[16][17], tb[16][17];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int at = 0; at < k; at += 16) {
        ta[y][x] = row < m && at + x < k ? a[row * k + at + x] : 0;
        tb[y][x] = at + y < k && column < n ? b[(at + y) * n + column] : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; i++) sum += ta[y][i] * tb[i][x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

extern "C" __global__ void __launch_bounds__(128) reverse(float *data) {
    extern __shared__ __align__(16) float copy[];
    copy[threadIdx.x] = data[threadIdx.x];
    __syncthreads();
    data[threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}

struct scaling {
    double factor;
    int add;
};

// Votes, ballots, shuffles within halves of a warp, atomics, an early return before a barrier.
GA_KERNEL(64) warp_words(int *out, struct scaling s) {
    int lane = threadIdx.x % GA_LANES;
    unsigned odd = __ballot_sync(GA_ALL_LANES, lane & 1);
    int half = __shfl_sync(GA_ALL_LANES, lane, 3, 16),
        down = __shfl_down_sync(GA_ALL_LANES, lane, 1);
    int many = __syncthreads_count(threadIdx.x < 5), every = __syncthreads_and(threadIdx.x < 64);
    atomicAdd(&out[0], 1);
    atomicMax(&out[1], (int)threadIdx.x);
    if (threadIdx.x >= 40) return;
    __syncthreads();
    if (threadIdx.x == 17) {
        out[2] = odd == 0xaaaaaaaau;
        out[3] = 100 * half + down;  // lane 17: 19, 18
        out[4] = many * 10 + every;
        out[5] = (int)(s.factor * 4) + s.add;
    }
}

GA_KERNEL(256) accumulate(double *sum, const float *part, int n) {
    if (threadIdx.x == 0 && blockIdx.x == 0)
        for (int i = 0; i < n; i++) *sum += part[i];
}

GA_KERNEL(256) wrong_missing_barrier(float *out, const float *in) {
    __shared__ float copy[256];
    copy[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = copy[255 - threadIdx.x];  // found: missing_barrier
}

GA_KERNEL(32) wrong_lock_step(float *out, const float *in) {
    __shared__ float copy[32];
    copy[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = copy[31 - threadIdx.x];  // found: lock_step
}

GA_KERNEL(256) wrong_out_of_bounds(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 1;  // found: out_of_bounds
}

GA_KERNEL(256) wrong_shared_index(float *out) {
    __shared__ float copy[64];
    copy[threadIdx.x & 127] = 1;  // found: shared_index
    __syncthreads();
    out[threadIdx.x] = copy[threadIdx.x & 63];
}

GA_KERNEL(256) wrong_uninitialised(float *out) {
    __shared__ float copy[256];
    if (threadIdx.x < 128) copy[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = copy[threadIdx.x];  // found: uninitialised
}

GA_KERNEL(256) wrong_blocks(float *out) {
    if (threadIdx.x == 0) out[0] += 1;  // found: blocks
}

GA_KERNEL(32) wrong_alignment(float *out, const float *in) {
    float4 v = *(const float4 *)(in + 1);  // found: alignment
    out[threadIdx.x] = v.x;
}

GA_KERNEL(128) wrong_divergent_barrier(float *out) {
    if (threadIdx.x < 64) {
        out[threadIdx.x] = 1;
        __syncthreads();
    } else {
        __syncthreads();
    }
}

GA_KERNEL(64) wrong_left_lane(float *out, const float *in) {
    if (threadIdx.x == 5) return;
    out[threadIdx.x] = ga_warp_sum(in[threadIdx.x]);
}
