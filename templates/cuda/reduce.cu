// reduce: sums and greatest values over the middle axis of (outer, n, inner); copies.

//@ axis_sum(fn, params, source, threads, few, lanes, outer, n, inner, row, value, store)
/* $fn: the sum over the middle axis of ($outer, $n, $inner), a block for each LANES times FEW neighbours
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { N = $n, INNER = $inner, ROW = $row, FEW = $few, LANES = $lanes, GROUPS = $threads / LANES };
    enum { WIDE = LANES * FEW, ACROSS = (INNER + WIDE - 1) / WIDE };
    __shared__ real partial[GROUPS][WIDE];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const ga_int64 o = blockIdx.x / ACROSS;
    const int left = (int)blockIdx.x % ACROSS * WIDE, k = left + lane * FEW;
    real sum[FEW] = {};
#pragma unroll 8
    for (ga_int64 j = group; j < N && k < INNER; j += GROUPS) {
        const auto few = ga_read<FEW>(x + (o * N + j) * ROW + k);
        for (int e = 0; e < FEW; e++) sum[e] += ga_get(few.at[e]);
    }
    for (int e = 0; e < FEW; e++) partial[group][lane * FEW + e] = sum[e];
    __syncthreads();
    const int c = threadIdx.x;
    if (c >= WIDE || left + c >= INNER) return;
    real whole = partial[0][c];
    for (int g = 1; g < GROUPS; g++) whole += partial[g][c];
    const ga_int64 i = o * INNER + left + c;
    const real value = whole$value;
    $store
}

//@ row_sum(fn, params, source, threads, type, term, outer, n, value, store)
/* $fn: the sum of each of $outer rows of $n, one block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { N = $n, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = blockIdx.x;
    const $type *row = x + i * N;
    real sum = 0;
    for (int j = threadIdx.x; j < N; j += THREADS) sum += $term;
    sum = ga_block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        const real value = sum$value;
        $store
    }
}

//@ axis_max(fn, params, source, threads, outer, n, inner)
/* $fn: the greatest value over the middle axis of ($outer, $n, $inner), and the place of the first such
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { OUTER = $outer, N = $n, INNER = $inner };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)OUTER * INNER; i += ga_thread_count()) {
        const real *row = x + i / INNER * N * INNER + i % INNER;
        real best = row[0];
        int at = 0;
        for (int j = 1; j < N; j++) {
            const real value = row[(ga_int64)j * INNER];
            const bool better = !(value <= best) && best == best;  // the first NaN stays
            best = better ? value : best;
            at = better ? j : at;
        }
        y[i] = best;
        place[i] = at;
    }
}

//@ axis_max_dx(fn, params, source, threads, outer, n, inner, store)
/* $fn: dy where the greatest value over the middle axis of ($outer, $n, $inner) was, else 0
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { OUTER = $outer, N = $n, INNER = $inner };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)OUTER * N * INNER; i += ga_thread_count()) {
        const int r = (int)i / INNER;
        const ga_int64 at = (ga_int64)(r / N) * INNER + i % INNER;
        const real value = place[at] == r % N ? dy[at] : (real)0;
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
