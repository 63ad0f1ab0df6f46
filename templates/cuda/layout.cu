// layout: copies of weights in the order that products read, made once per update.

//@ pack_in_out(fn, params, source, threads, N, K, value)
/* $fn: ($N, $K) transposed to ($K, $N), tile by tile through shared memory
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { N = $N, K = $K, TILE = 32, ACROSS = (K + TILE - 1) / TILE, STEP = $threads / TILE };
    __shared__ real tile[TILE][TILE + 1];
    const int n0 = blockIdx.x / ACROSS * TILE, k0 = blockIdx.x % ACROSS * TILE;
    const int lane = threadIdx.x % TILE, group = threadIdx.x / TILE;
    for (int i = group; i < TILE; i += STEP)
        if (n0 + i < N && k0 + lane < K) tile[i][lane] = x[(ga_int64)(n0 + i) * K + k0 + lane];
    __syncthreads();
    for (int i = group; i < TILE; i += STEP)
        if (k0 + i < K && n0 + lane < N) y[(ga_int64)(k0 + i) * N + n0 + lane] = $value;
}
