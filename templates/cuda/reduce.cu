// reduce: sums over rows, means over the last axis, copies.

//@ column_sum(fn, params, source, threads, rows, N, store)
/* $fn: the sum of $rows rows of $N
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $rows, N = $N, GROUPS = $threads / GA_LANES };
    __shared__ real partial[GROUPS][GA_LANES];
    const int lane = threadIdx.x % GA_LANES, group = threadIdx.x / GA_LANES;
    const ga_int64 j = (ga_int64)blockIdx.x * GA_LANES + lane;
    real sum = 0;
    if (j < N)
        for (ga_int64 i = group; i < ROWS; i += GROUPS) sum += x[i * N + j];
    partial[group][lane] = sum;
    __syncthreads();
    if (group > 0 || j >= N) return;
    real value = partial[0][lane];
    for (int k = 1; k < GROUPS; k++) value += partial[k][lane];
    $store
}

//@ mean(fn, params, source, threads, rows, C, factor, store)
/* $fn: the mean of each of $rows rows of $C, one block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = blockIdx.x;
    const real *row = x + i * C;
    real sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += row[c];
    const real value = ga_block_sum(sum, scratch) * $factor;
    if (threadIdx.x == 0) {
        $store
    }
}

//@ mean_dx(fn, params, source, threads, rows, C, factor, store)
/* $fn: the gradient of a mean of $C, spread over each of $rows rows, one block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    const ga_int64 r = blockIdx.x;
    const real value = dy[r] * $factor;
    for (int c = threadIdx.x; c < C; c += THREADS) {
        const ga_int64 i = r * C + c;
        $store
    }
}

//@ copy(fn, params, source, threads, n, store)
/* $fn: a copy of $n elements
 * $source */
GA_KERNEL($threads) $fn($params) {
    const ga_int64 n = $(n)ll;
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) $store
}
