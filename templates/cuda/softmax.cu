// softmax: over the last axis, with its logarithm, and the gradients of both from the result s. One block per row.

//@ softmax(fn, params, source, threads, rows, C, exp)
/* $fn: softmax of each of $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const real *row = x + (ga_int64)blockIdx.x * C;
    real *out = y + (ga_int64)blockIdx.x * C;
    real largest = -ga_infinity((real)0), sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS)
        largest = row[c] > largest || row[c] != row[c] ? row[c] : largest;
    largest = ga_block_max(largest, scratch);
    for (int c = threadIdx.x; c < C; c += THREADS) {
        out[c] = $exp(row[c] - largest);
        sum += out[c];
    }
    sum = ga_block_sum(sum, scratch);
    for (int c = threadIdx.x; c < C; c += THREADS) out[c] /= sum;
}

//@ softmax_dx(fn, params, source, threads, rows, C, store)
/* $fn: s (dy - sum of dy s), for each of $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 first = (ga_int64)blockIdx.x * C;
    real sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += dy[first + c] * s[first + c];
    sum = ga_block_sum(sum, scratch);
    for (ga_int64 i = first + threadIdx.x; i < first + C; i += THREADS) {
        const real value = s[i] * (dy[i] - sum);
        $store
    }
}

//@ log_softmax(fn, params, source, threads, rows, C, exp, log)
/* $fn: log softmax of each of $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 first = (ga_int64)blockIdx.x * C;
    const real *row = x + first;
    real largest = -ga_infinity((real)0), sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS)
        largest = row[c] > largest || row[c] != row[c] ? row[c] : largest;
    largest = ga_block_max(largest, scratch);
    for (int c = threadIdx.x; c < C; c += THREADS) sum += $exp(row[c] - largest);
    sum = $log(ga_block_sum(sum, scratch));
    for (int c = threadIdx.x; c < C; c += THREADS) y[first + c] = row[c] - largest - sum;
}

//@ log_softmax_dx(fn, params, source, threads, rows, C, exp, store)
/* $fn: dy - e^s (sum of dy), for each of $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 first = (ga_int64)blockIdx.x * C;
    real sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += dy[first + c];
    sum = ga_block_sum(sum, scratch);
    for (ga_int64 i = first + threadIdx.x; i < first + C; i += THREADS) {
        const real value = dy[i] - $exp(s[i]) * sum;
        $store
    }
}
