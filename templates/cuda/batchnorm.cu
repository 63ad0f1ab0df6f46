// batchnorm: channels of (rows, channels, rest) normalised, by groups of rows. One block computes the sums of a
// channel of a group. A thread moves FEW neighbours of a plane at once.

//@ batchnorm_stats(fn, params, source, threads, few, B, C, S, rows, eps, sqrt)
/* $fn: average and variance of $C channels of $S elements in each group of $rows rows; in evaluation, the
 * running ones
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, GROUPS = $B / ROWS, FEW = $few };
    __shared__ real scratch[GA_LANES];
    const int c = blockIdx.x % C;
    const ga_int64 first = ((ga_int64)(blockIdx.x / C) * ROWS * C + c) * S, n = (ga_int64)ROWS * S;
    real middle = running_mean[c], spread = running_var[c];
    if (micro->training) {
        real sum = 0, squares = 0;
        ga_each_of_channel<C, S, FEW, $threads>(first, ROWS, [&](ga_int64 i) {
            const auto some = ga_read<FEW>(x + i);
#pragma unroll
            for (int e = 0; e < FEW; e++) sum += ga_get(some.at[e]);
        });
        middle = ga_block_sum(sum, scratch) / n;
        ga_each_of_channel<C, S, FEW, $threads>(first, ROWS, [&](ga_int64 i) {
            const auto some = ga_read<FEW>(x + i);
#pragma unroll
            for (int e = 0; e < FEW; e++) {
                const real apart = ga_get(some.at[e]) - middle;
                squares += apart * apart;
            }
        });
        spread = ga_block_sum(squares, scratch) / n;
    }
    if (threadIdx.x > 0) return;
    mean[blockIdx.x] = middle;
    var[blockIdx.x] = spread;
    rstd[blockIdx.x] = 1 / $sqrt(spread + $eps);
}

//@ batchnorm(fn, params, source, threads, few, out, last, behind, B, C, S, rows)
/* $fn: (x - mean) rstd weight + bias for $C channels of $S elements, in groups of $rows rows
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, FEW = $few, EACH = S / FEW };
    for (ga_int64 chunk = ga_thread_first(); chunk < (ga_int64)$B * C * EACH; chunk += ga_thread_count()) {
        const int c = (int)(chunk / EACH % C), at = (int)(chunk / EACH / C / ROWS) * C + c;
        const real middle = mean[at], factor = rstd[at] * weight[c], shift = bias[c];
        const ga_int64 first = chunk * FEW;
        const auto some = ga_read<FEW>(x + first);
        ga_few<$last, FEW> to;
//% if behind then
//% if behind.both then
        ga_few<$out, FEW> own;
//% end
        $(behind.reads)
//% end
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real value = (ga_get(some.at[k]) - middle) * factor + shift;
//% if behind then
//% if behind.both then
            ga_put(own.at[k], value);
//% end
            $(behind.lines)
//% else
            ga_put(to.at[k], value);
//% end
        }
//% if behind then
//% if behind.both then
        ga_write(y + first, own);
//% end
        ga_write($(behind.to) + first, to);
//% else
        ga_write(y + first, to);
//% end
    }
}

//@ batchnorm_sums(fn, params, source, threads, few, B, C, S, rows)
/* $fn: sums of dy and of dy (x - mean) rstd for $C channels of $S elements in each group of $rows rows
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, FEW = $few };
    __shared__ real scratch[GA_LANES];
    const ga_int64 first = ((ga_int64)(blockIdx.x / C) * ROWS * C + blockIdx.x % C) * S;
    const real middle = mean[blockIdx.x];
    real all = 0, lever = 0;
    ga_each_of_channel<C, S, FEW, $threads>(first, ROWS, [&](ga_int64 i) {
        const auto some = ga_read<FEW>(x + i);
        const auto slopes = ga_read<FEW>(dy + i);
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const real slope = ga_get(slopes.at[e]);
            all += slope;
            lever += slope * (ga_get(some.at[e]) - middle);
        }
    });
    all = ga_block_sum(all, scratch);
    lever = ga_block_sum(lever, scratch);
    if (threadIdx.x > 0) return;
    sum[blockIdx.x] = all;
    moment[blockIdx.x] = lever * rstd[blockIdx.x];
}

//@ batchnorm_dx(fn, params, source, threads, few, out, adds, B, C, S, rows, store)
/* $fn: the gradient of (x - mean) rstd weight with respect to x, for $C channels of $S elements, in groups
 * of $rows rows
 * $source */
GA_KERNEL($threads, 4) $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, FEW = $few, EACH = S / FEW };
    const real n = (real)ROWS * S;
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)$B * C * EACH; i += ga_thread_count()) {
        const int c = (int)(i / EACH % C), at = (int)(i / EACH / C / ROWS) * C + c;
        const real middle = mean[at], factor = weight[c] * rstd[at], average = sum[at] / n;
        const real slope = moment[at] / n * rstd[at];
        const auto some = ga_read<FEW>(x + i * FEW);
        const auto slopes = ga_read<FEW>(dy + i * FEW);
        ga_few<$out, FEW> to;
//% if adds then
        if (add) to = ga_read<FEW>(y + i * FEW);
//% end
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const real value = factor * (ga_get(slopes.at[e]) - average - (ga_get(some.at[e]) - middle) * slope);
            $store
        }
        ga_write(y + i * FEW, to);
    }
}

//@ batchnorm_collect(fn, params, source, threads, C, groups)
/* $fn: in training, average and variance of all values of $C channels in the cycle so far: those of earlier
 * micro-steps joined with $groups more groups
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, GROUPS = $groups };
    const int before = (int)micro->before * GROUPS;
    if (!micro->training) return;
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        real middle = before > 0 ? running_mean[c] : (real)0, spread = before > 0 ? running_var[c] : (real)0;
        for (int g = 0; g < GROUPS; g++) {
            const real k = (real)(before + g), share = 1 / (k + 1); /* groups before this one */
            const real apart = mean[g * C + c] - middle;
            middle += apart * share;
            spread = (k * spread + var[g * C + c]) * share + apart * apart * (k * share * share);
        }
        running_mean[c] = middle;
        running_var[c] = spread;
        if (c == 0) batches[0] = (real)(before + GROUPS);
    }
}

//@ batchnorm_add(fn, params, source, threads, C, groups)
/* $fn: in training, what $groups groups of $C channels add to the sums of the cycle over all ranks: d = average
 * - running average, variance + d^2, and the number of groups; no rank changes the running average in a cycle
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, GROUPS = $groups };
    const bool adds = micro->before > 0;
    if (!micro->training) return;
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        real sum = adds ? running_mean[c] : (real)0, squares = adds ? running_var[c] : (real)0;
        for (int g = 0; g < GROUPS; g++) {
            const real apart = mean[g * C + c] - centre[c];
            sum += apart;
            squares += var[g * C + c] + apart * apart;
        }
        running_mean[c] = sum;
        running_var[c] = squares;
        if (c == 0) batches[0] = (adds ? batches[0] : (real)0) + GROUPS;
    }
}

//@ batchnorm_running(fn, params, source, threads, C, groups, momentum, rest, unbiased)
/* $fn: in training, the running statistics of $C channels moved by those of $groups groups
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, GROUPS = $groups };
    if (!micro->training) return;
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        for (int g = 0; g < GROUPS; g++) {
            running_mean[c] = $rest * running_mean[c] + $momentum * mean[g * C + c];
            running_var[c] = $rest * running_var[c] + $momentum * (var[g * C + c] * $unbiased);
        }
        if (c == 0) batches[0] += GROUPS;
    }
}
