// softmax: over the last axis, with its logarithm, and the gradients of both from the result s. A row is in the
// registers of a warp, or of a block (rows.cu).

//@ softmax(fn, params, source, threads, rows, C, row, exp)
/* $fn: softmax of each of $rows rows of $C
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real v[EACH], sum = 0;
    ga_read_row<C, LANES, FEW>(v, x + i * C, -ga_infinity((real)0));
    const real largest = ga_row_largest<LANES>(v, scratch);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        v[k] = $exp(v[k] - largest);
        sum += v[k];
    }
    sum = ga_row_sum<LANES>(sum, scratch);
#pragma unroll
    for (int k = 0; k < EACH; k++) v[k] /= sum;
    ga_write_row<C, LANES, FEW>(y + i * C, v);
}

//@ softmax_dx(fn, params, source, threads, rows, C, row, adds)
/* $fn: s (dy - sum of dy s), for each of $rows rows of $C
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real d[EACH], v[EACH], sum = 0;
    ga_read_row<C, LANES, FEW>(d, dy + i * C);
    ga_read_row<C, LANES, FEW>(v, s + i * C);
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += d[k] * v[k];
    sum = ga_row_sum<LANES>(sum, scratch);
#pragma unroll
    for (int k = 0; k < EACH; k++) v[k] *= d[k] - sum;
    ga_write_row<C, LANES, FEW>(y + i * C, v$adds);
}

//@ log_softmax(fn, params, source, threads, rows, C, row, exp, log)
/* $fn: log softmax of each of $rows rows of $C
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real v[EACH], sum = 0;
    ga_read_row<C, LANES, FEW>(v, x + i * C, -ga_infinity((real)0));
    const real largest = ga_row_largest<LANES>(v, scratch);
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += $exp(v[k] - largest);
    sum = $log(ga_row_sum<LANES>(sum, scratch));
#pragma unroll
    for (int k = 0; k < EACH; k++) v[k] = v[k] - largest - sum;
    ga_write_row<C, LANES, FEW>(y + i * C, v);
}

//@ log_softmax_dx(fn, params, source, threads, rows, C, row, exp, adds)
/* $fn: dy - e^s (sum of dy), for each of $rows rows of $C
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real d[EACH], v[EACH], sum = 0;
    ga_read_row<C, LANES, FEW>(d, dy + i * C);
    ga_read_row<C, LANES, FEW>(v, s + i * C);
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += d[k];
    sum = ga_row_sum<LANES>(sum, scratch);
#pragma unroll
    for (int k = 0; k < EACH; k++) d[k] -= $exp(v[k]) * sum;
    ga_write_row<C, LANES, FEW>(y + i * C, d$adds);
}
