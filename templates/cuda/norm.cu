// norm: layernorm and rmsnorm, rows normalised. A row is in the registers of a warp, or of a block (rows.cu).

//@ layernorm(fn, params, source, threads, rows, C, row, eps, sqrt, bias)
//% if bias then
/* $fn: (x - mean) rstd weight + bias for $rows rows of $C
//% else
/* $fn: (x - mean) rstd weight for $rows rows of $C
//% end
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real v[EACH], sum = 0, squares = 0;
    ga_read_row<C, LANES, FEW>(v, x + i * C);
#pragma unroll
    for (int k = 0; k < EACH; k++) sum += v[k];
    const real middle = ga_row_sum<LANES>(sum, scratch) / C;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        v[k] = ga_place<LANES, FEW>(k) < C ? v[k] - middle : (real)0;
        squares += v[k] * v[k];
    }
    const real factor = 1 / $sqrt(ga_row_sum<LANES>(squares, scratch) / C + $eps);
#pragma unroll
    for (int from = 0; from < EACH; from += FEW) {
        const int c = ga_place<LANES, FEW>(from);
        if (c >= C) continue;
        const auto of_weight = ga_read<FEW>(weight + c);
//% if bias then
        const auto of_bias = ga_read<FEW>(bias + c);
//% end
        decltype(ga_read<FEW>(y)) to;
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real scaled = v[from + k] * (factor * ga_get(of_weight.at[k]));
//% if bias then
            ga_put(to.at[k], scaled + ga_get(of_bias.at[k]));
//% else
            ga_put(to.at[k], scaled);
//% end
        }
        ga_write(y + i * C + c, to);
    }
    if (threadIdx.x % LANES > 0) return;
    mean[i] = middle;
    rstd[i] = factor;
}

//@ rmsnorm(fn, params, source, threads, rows, C, row, eps, sqrt)
/* $fn: x rstd weight for $rows rows of $C
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = ga_row<LANES>();
    if (i >= ROWS) return;
    real v[EACH], g[EACH], squares = 0;
    ga_read_row<C, LANES, FEW>(v, x + i * C);
    ga_read_row<C, LANES, FEW>(g, weight);
#pragma unroll
    for (int k = 0; k < EACH; k++) squares += v[k] * v[k];
    const real factor = 1 / $sqrt(ga_row_sum<LANES>(squares, scratch) / C + $eps);
#pragma unroll
    for (int k = 0; k < EACH; k++) v[k] *= factor * g[k];
    ga_write_row<C, LANES, FEW>(y + i * C, v);
    if (threadIdx.x % LANES == 0) rstd[i] = factor;
}

//@ norm_dx(fn, params, source, threads, rows, C, row, centred, adds, behind, last, sums)
/* $fn: the gradient of a norm with respect to its input, for $rows rows of $C
//% if sums and sums.bias then
 * and sums of those with respect to its weight and bias over $(sums.rows) rows at a time
//% elseif sums then
 * and sums of those with respect to its weight over $(sums.rows) rows at a time
//% end
 * $source */
GA_KERNEL($threads, $(row.blocks)) $fn($params) {
    enum { ROWS = $rows, C = $C, LANES = $(row.lanes), FEW = $(row.few), EACH = $(row.each) };
    __shared__ real scratch[GA_LANES];
//% if sums then
    enum { PART = $(sums.rows), TEAMS = $threads / LANES };
    __shared__ __align__(16) real sums[TEAMS > 1 ? TEAMS * C : 1];
    const int before = (int)blockIdx.x * PART, end = before + PART < ROWS ? before + PART : ROWS;
    real to_weight[EACH] = {}, to_bias[EACH] = {};
//% end
    $(norm_dx_fetch { centred = centred })
//% if sums then
    int i = before + (int)threadIdx.x / LANES;
//% if sums.ahead then
    if (i < end) fetch(i);
//% end
    for (; i < end; i += TEAMS) {
//% if not sums.ahead then
        fetch(i);
//% end
//% else
    const int i = (int)ga_row<LANES>();
    if (i < ROWS) {
        fetch(i);
//% end
        const real factor = of_rstd, middle = of_mean;
        real v[EACH], g[EACH], sum = 0, moment = 0; /* x less its mean, dy weight */
        ga_row_values<C, LANES>(v, of_x);
        ga_row_values<C, LANES>(g, of_dy);
//% if sums and sums.ahead then
        if (i + TEAMS < end) fetch(i + TEAMS); /* the next row comes beside this one's sums */
//% end
//% if behind and behind.with_1 then
        decltype(ga_read<FEW>(with_1)) of_with_1[EACH / FEW];
        if (with_1) ga_fetch_row<C, LANES>(of_with_1, with_1 + (ga_int64)i * C);
//% elseif behind and behind.early then
        $(norm_dx_early { behind = behind })
//% end
#pragma unroll
        for (int k = 0; k < EACH; k++) v[k] -= middle;
//% if sums then
#pragma unroll
        for (int k = 0; k < EACH; k++) to_weight[k] += g[k] * (v[k] * factor), to_bias[k] += g[k];
//% end
        ga_scale_row<C, LANES, FEW>(g, weight);
#pragma unroll
        for (int k = 0; k < EACH; k++) sum += g[k], moment += g[k] * v[k];
//% if centred then
        const real level = ga_row_sum<LANES>(sum, scratch) / C;
//% else
        const real level = 0;
//% end
        const real slope = ga_row_sum<LANES>(moment, scratch) * factor * factor / C;
#pragma unroll
        for (int k = 0; k < EACH; k++) v[k] = factor * (g[k] - level - v[k] * slope);
//% if behind and behind.with_1 then
        $(norm_dx_with { half = behind.half })
//% elseif behind then
        $(norm_dx_behind { behind = behind, last = last })
//% else
        ga_write_row<C, LANES, FEW>(y + (ga_int64)i * C, v$adds);
//% end
    }
//% if sums then
    real *const of_part = parts + (ga_int64)blockIdx.x * ($(sums.width) * C);
    ga_write_sums<C, LANES, FEW, TEAMS>(of_part, to_weight, sums);
//% if sums.bias then
    ga_write_sums<C, LANES, FEW, TEAMS>(of_part + C, to_bias, sums);
//% end
//% end
}

//@ norm_dx_with(half)
#pragma unroll
for (int k = 0; k < EACH && with_1; k++)
    v[k] = $(half)_widen(of_with_1[k / FEW].at[k % FEW]) + $(half)_rounded(v[k]);
ga_write_row<C, LANES, FEW>(y + (ga_int64)i * C, v);

//@ norm_dx_fetch(centred)
decltype(ga_read<FEW>(x)) of_x[EACH / FEW];
decltype(ga_read<FEW>(dy)) of_dy[EACH / FEW];
real of_rstd = 0, of_mean = 0;
auto fetch = [&](int i) {
    ga_fetch_row<C, LANES>(of_x, x + (ga_int64)i * C);
    ga_fetch_row<C, LANES>(of_dy, dy + (ga_int64)i * C);
    of_rstd = rstd[i];
//% if centred then
    of_mean = mean[i];
//% end
};

//@ norm_dx_early(behind)
$(behind.kept)
#pragma unroll
for (int from = 0; from < EACH; from += FEW) {
    const ga_int64 first = (ga_int64)i * C + ga_place<LANES, FEW>(from);
    if (ga_place<LANES, FEW>(from) >= C) continue;
    $(behind.early)
}

//@ norm_dx_behind(behind, last)
//% if behind.both then
ga_write_row<C, LANES, FEW>(y + (ga_int64)i * C, v);
//% end
#pragma unroll
for (int from = 0; from < EACH; from += FEW) {
    const int c = ga_place<LANES, FEW>(from);
    if (c >= C) continue;
    const ga_int64 first = (ga_int64)i * C + c;
    $(behind.reads)
    ga_few<$last, FEW> to;
#pragma unroll
    for (int k = 0; k < FEW; k++) {
        const real value = v[from + k];
        $(behind.lines)
    }
    ga_write($(behind.to) + first, to);
}

//@ norm_dw(fn, params, source, threads, rows, C, parts, few, centred, store)
/* $fn: the gradient of a norm's weight, summed over $rows rows of $C
//% if parts > 1 then
 * for each of $parts parts of the rows
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $rows, C = $C, FEW = $few, WIDE = GA_LANES * FEW, GROUPS = $threads / GA_LANES };
    enum { ACROSS = (C + WIDE - 1) / WIDE };
    __shared__ real partial[GROUPS][WIDE];
    const int lane = threadIdx.x % GA_LANES, group = threadIdx.x / GA_LANES;
    const ga_int64 part = blockIdx.x / ACROSS, first = part * ROWS;
    const int left = (int)blockIdx.x % ACROSS * WIDE, j = left + lane * FEW;
    real sum[FEW] = {};
#pragma unroll 4
    for (ga_int64 i = first + group; i < first + ROWS && j < C; i += GROUPS) {
        const auto of_x = ga_read<FEW>(x + i * C + j);
        const auto of_dy = ga_read<FEW>(dy + i * C + j);
//% if centred then
        const real middle = mean[i], factor = rstd[i];
        for (int e = 0; e < FEW; e++) sum[e] += ga_get(of_dy.at[e]) * ((ga_get(of_x.at[e]) - middle) * factor);
//% else
        const real factor = rstd[i];
        for (int e = 0; e < FEW; e++) sum[e] += ga_get(of_dy.at[e]) * (ga_get(of_x.at[e]) * factor);
//% end
    }
    for (int e = 0; e < FEW; e++) partial[group][lane * FEW + e] = sum[e];
    __syncthreads();
    const int c = threadIdx.x;
    if (c >= WIDE || left + c >= C) return;
    real value = partial[0][c];
    for (int g = 1; g < GROUPS; g++) value += partial[g][c];
    const ga_int64 at = part * C + left + c;
    $store
}
