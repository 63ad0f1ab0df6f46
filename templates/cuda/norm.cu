// norm: layernorm and rmsnorm, rows normalised. One block computes a row.

//@ layernorm(fn, params, source, threads, rows, C, eps, sqrt, type, x, y_half, store)
/* $fn: (x - mean) rstd weight + bias for $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = blockIdx.x;
    const $type *row = x + i * C;
//% if not y_half then
    real *out = y + i * C;
//% end
    real sum = 0, squares = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += $x;
    const real middle = ga_block_sum(sum, scratch) / C;
    for (int c = threadIdx.x; c < C; c += THREADS) {
//% if y_half then
        const real z = $x - middle;
        squares += z * z;
//% else
        out[c] = $x - middle;
        squares += out[c] * out[c];
//% end
    }
    const real factor = 1 / $sqrt(ga_block_sum(squares, scratch) / C + $eps);
    for (int c = threadIdx.x; c < C; c += THREADS) $store
    if (threadIdx.x == 0) {
        mean[i] = middle;
        rstd[i] = factor;
    }
}

//@ rmsnorm(fn, params, source, threads, rows, C, eps, sqrt, type, x, value)
/* $fn: x rstd weight for $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = blockIdx.x;
    const $type *row = x + i * C;
    real squares = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) squares += $x * $x;
    const real factor = 1 / $sqrt(ga_block_sum(squares, scratch) / C + $eps);
    for (int c = threadIdx.x; c < C; c += THREADS) y[i * C + c] = $value;
    if (threadIdx.x == 0) rstd[i] = factor;
}

//@ norm_dx(fn, params, source, threads, rows, C, centred, heads, x, dy, store)
/* $fn: the gradient of a norm with respect to its input, for $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    __shared__ real scratch[GA_LANES];
    const ga_int64 r = blockIdx.x;
    $heads
    const real factor = rstd[r];
    real moment = 0;
//% if centred then
    const real middle = mean[r];
    real sum = 0;
    for (int c = threadIdx.x; c < C; c += THREADS) sum += $dy * weight[c];
    const real level = ga_block_sum(sum, scratch) / C;
//% else
    const real middle = 0, level = 0;
//% end
    for (int c = threadIdx.x; c < C; c += THREADS) moment += $dy * weight[c] * ($x - middle);
    const real slope = ga_block_sum(moment, scratch) * factor * factor / C;
    for (int c = threadIdx.x; c < C; c += THREADS) {
        const ga_int64 i = r * C + c;
        const real value = factor * ($dy * weight[c] - level - ($x - middle) * slope);
        $store
    }
}

//@ norm_dw(fn, params, source, threads, rows, C, centred, x, dy, store)
/* $fn: the gradient of a norm's weight, summed over $rows rows of $C
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $rows, C = $C, GROUPS = $threads / GA_LANES };
    __shared__ real partial[GROUPS][GA_LANES];
    const int lane = threadIdx.x % GA_LANES, group = threadIdx.x / GA_LANES;
    const ga_int64 j = (ga_int64)blockIdx.x * GA_LANES + lane;
    real sum = 0;
    for (ga_int64 i = group; i < ROWS && j < C; i += GROUPS) {
//% if centred then
        const real middle = mean[i];
//% else
        const real middle = 0;
//% end
        sum += $dy * (($x - middle) * rstd[i]);
    }
    partial[group][lane] = sum;
    __syncthreads();
    if (group > 0 || j >= C) return;
    real value = partial[0][lane];
    for (int k = 1; k < GROUPS; k++) value += partial[k][lane];
    $store
}
