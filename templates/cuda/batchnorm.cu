// batchnorm: channels of (rows, channels, rest) normalised, by groups of rows. A block has WIDE neighbouring channels,
// 1 or an octet, and a part of the rows of a group. A thread moves FEW neighbours at once.

//@ batchnorm_stats(fn, params, source, threads, shape, eps, sqrt)
//% if shape.parts then
/* $fn: averages of channels in parts of each group of rows, and the sums of the squared distances from these,
 * as (part, group, 2, channel)
 * $source */
//% else
/* $fn: average and variance of channels in each group of rows; in evaluation, the running ones
 * $source */
//% end
GA_KERNEL($threads) $fn($params) {
    enum { FEW = $(shape.few), WIDE = $(shape.wide) };
    __shared__ real scratch[$threads / GA_LANES][WIDE];
    $(place { })
    const real n = (real)s.values;
//% if shape.parts then
    if (!micro->training) return;
//% else
    const int at = group * s.channels + c;
//% end
    real middle[WIDE] = {}, squares[WIDE] = {};
//% if not shape.parts then
    if (micro->training) {
//% end
    $(moments { threads = threads })
//% if shape.parts then
    if (threadIdx.x > 0) return;
    real *to = parts + (ga_int64)groups * (2 * s.channels) + c;
    ga_write_channels(to, middle);
    ga_write_channels(to + s.channels, squares);
//% else
    } else {
        ga_read_channels(middle, running_mean + c);
        ga_read_channels(squares, running_var + c);
    }
    if (threadIdx.x > 0) return;
    real inverse[WIDE];
#pragma unroll
    for (int e = 0; e < WIDE; e++) {
        if (micro->training) squares[e] /= n;
        inverse[e] = 1 / $sqrt(squares[e] + $eps);
    }
    ga_write_channels(mean + at, middle);
    ga_write_channels(var + at, squares);
    ga_write_channels(rstd + at, inverse);
//% end
}

//@ place()
const int plane = blockIdx.x % s.planes, groups = blockIdx.x / s.planes, c = plane * WIDE;
const int part = groups / s.groups, group = groups % s.groups;

//@ moments(threads)
typedef decltype(ga_read<FEW>(x)) few_of_x;
auto fetch = [&](ga_int64 i) { return ga_read<FEW>(x + i); };
ga_each_of_channels<FEW, $threads>(s, plane, group, part, fetch, [&](ga_int64, const few_of_x &some) {
#pragma unroll
    for (int e = 0; e < FEW; e++) middle[e % WIDE] += ga_get(some.at[e]);
});
ga_block_sums(middle, scratch);
#pragma unroll
for (int e = 0; e < WIDE; e++) middle[e] /= n;
ga_each_of_channels<FEW, $threads>(s, plane, group, part, fetch, [&](ga_int64, const few_of_x &some) {
#pragma unroll
    for (int e = 0; e < FEW; e++) {
        const real apart = ga_get(some.at[e]) - middle[e % WIDE];
        squares[e % WIDE] += apart * apart;
    }
});
ga_block_sums(squares, scratch);

//@ batchnorm_joined(fn, params, source, threads, shape)
/* $fn: averages and squared distances of channels in tiles of each group of rows, joined to fewer parts, as (part, group, 2, channel)
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { WIDE = $(shape.wide) };
    __shared__ real scratch[$threads / GA_LANES][WIDE];
    $(place { })
    const ga_int64 first = (ga_int64)(part * s.parts * s.groups.by + group) * (2 * s.channels) + c;
    const real n = (real)s.values;
    real *to = parts + (ga_int64)groups * (2 * s.channels) + c;
    real middle[WIDE], spread[WIDE];
    if (!micro->training) return;
    ga_parts_moments<WIDE, $threads>(middle, spread, tiles + first, s, n, scratch);
    if (threadIdx.x > 0) return;
#pragma unroll
    for (int e = 0; e < WIDE; e++) spread[e] *= n * s.parts;
    ga_write_channels(to, middle);
    ga_write_channels(to + s.channels, spread);
}

//@ batchnorm(fn, params, source, threads, at_least, shape, moves, out, last, behind, eps, sqrt)
/* $fn: (x - mean) rstd weight + bias for channels, in groups of rows
//% if shape.parts then
 * mean and variance are those of parts, in evaluation the running ones
//% end
//% if moves then
 * in training, the running ones are moved
//% end
 * $source */
GA_KERNEL($threads$at_least) $fn($params) {
    enum { FEW = $(shape.few), WIDE = $(shape.wide) };
    $(place { })
    const int at = group * s.channels + c;
    real middle[WIDE], factor[WIDE], shift[WIDE];
//% if shape.parts then
    $(of_parts { threads = threads, eps = eps, sqrt = sqrt })
//% else
    ga_read_channels(middle, mean + at);
    ga_read_channels(factor, rstd + at);
//% end
    ga_read_channels(shift, weight + c);
#pragma unroll
    for (int e = 0; e < WIDE; e++) factor[e] *= shift[e];
    ga_read_channels(shift, bias + c);
    struct inputs {
        decltype(ga_read<FEW>(x)) x;
//% if behind and behind.early then
        $(behind.kept)
//% end
    };
    auto fetch = [&](ga_int64 first) {
        inputs of;
        of.x = ga_read<FEW>(x + first);
//% if behind and behind.early then
        $(behind.early)
//% end
        return of;
    };
    ga_each_of_channels<FEW, $threads>(s, plane, group, part, fetch, [&](ga_int64 first, const inputs &of) {
        ga_few<$last, FEW> to;
//% if behind then
//% if behind.both then
        ga_few<$out, FEW> own;
//% end
        $(behind.reads)
//% end
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real value = (ga_get(of.x.at[k]) - middle[k % WIDE]) * factor[k % WIDE] + shift[k % WIDE];
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
    });
//% if moves then
    $(moved { threads = threads, shape = shape, moves = moves })
//% end
}

//@ of_parts(threads, eps, sqrt)
__shared__ real scratch[$threads / GA_LANES][WIDE];
const real *of_group = parts + group * (2 * s.channels) + c, n = (real)s.values;
const bool training = micro->training != 0;
real spread[WIDE];
if (training) {
    ga_parts_moments<WIDE, $threads>(middle, spread, of_group, s, n, scratch);
} else {
    ga_read_channels(middle, running_mean + c);
    ga_read_channels(spread, running_var + c);
}
#pragma unroll
for (int e = 0; e < WIDE; e++) factor[e] = 1 / $sqrt(spread[e] + $eps);
if (part == 0 && threadIdx.x == 0) {
    ga_write_channels(mean + at, middle);
    ga_write_channels(var + at, spread);
    ga_write_channels(rstd + at, factor);
}

//@ moved(threads, shape, moves)
if (group > 0 || part > 0 || !training) return;
real old_mean[WIDE], old_var[WIDE];
//% if shape.several then
for (int g = 0; g < s.groups.by; g++) {
    if (g > 0) ga_parts_moments<WIDE, $threads>(middle, spread, of_group + g * (2 * s.channels), s, n, scratch);
    if (threadIdx.x > 0) continue;
    $(moved_group { moves = moves })
}
//% else
if (threadIdx.x > 0) return;
$(moved_group { moves = moves })
//% end
if (plane == 0 && threadIdx.x == 0) batches[0] += s.groups.by;

//@ moved_group(moves)
ga_read_channels(old_mean, moved_mean + c);
ga_read_channels(old_var, moved_var + c);
#pragma unroll
for (int e = 0; e < WIDE; e++) {
    old_mean[e] = $(moves.rest) * old_mean[e] + $(moves.momentum) * middle[e];
    old_var[e] = $(moves.rest) * old_var[e] + $(moves.momentum) * (spread[e] * s.unbiased);
}
ga_write_channels(moved_mean + c, old_mean);
ga_write_channels(moved_var + c, old_var);

//@ batchnorm_sums(fn, params, source, threads, at_least, shape)
/* $fn: sums of dy and of dy (x - mean) rstd for channels in each group of rows
//% if shape.parts then
 * in parts, as (part, group, 2, channel)
//% end
 * $source */
GA_KERNEL($threads$at_least) $fn($params) {
    enum { FEW = $(shape.few), WIDE = $(shape.wide) };
    __shared__ real scratch[$threads / GA_LANES][WIDE];
    $(place { })
    const int at = group * s.channels + c;
    real middle[WIDE], all[WIDE] = {}, lever[WIDE] = {};
    ga_read_channels(middle, mean + at);
    $(fetch_both { })
    ga_each_of_channels<FEW, $threads>(s, plane, group, part, fetch, [&](ga_int64, const inputs &of) {
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const real slope = ga_get(of.dy.at[e]);
            all[e % WIDE] += slope;
            lever[e % WIDE] += slope * (ga_get(of.x.at[e]) - middle[e % WIDE]);
        }
    });
    ga_block_sums(all, scratch);
    ga_block_sums(lever, scratch);
    if (threadIdx.x > 0) return;
    ga_read_channels(middle, rstd + at);
#pragma unroll
    for (int e = 0; e < WIDE; e++) lever[e] *= middle[e];
//% if shape.parts then
    real *to = parts + (ga_int64)groups * (2 * s.channels) + c;
    ga_write_channels(to, all);
    ga_write_channels(to + s.channels, lever);
//% else
    ga_write_channels(sum + at, all);
    ga_write_channels(moment + at, lever);
//% end
}

//@ fetch_both()
struct inputs {
    decltype(ga_read<FEW>(x)) x;
    decltype(ga_read<FEW>(dy)) dy;
};
auto fetch = [&](ga_int64 i) { return inputs{ga_read<FEW>(x + i), ga_read<FEW>(dy + i)}; };

//@ batchnorm_dx(fn, params, source, threads, at_least, shape, sums, out, adds, n, store)
/* $fn: the gradient of (x - mean) rstd weight with respect to x, in groups of rows
//% if shape.parts then
 * the sums over a group are those of parts
//% end
//% if sums then
 * with the sums over all groups: the gradients of weight and bias
//% end
 * $source */
GA_KERNEL($threads$at_least) $fn($params) {
    enum { FEW = $(shape.few), WIDE = $(shape.wide) };
    $(place { })
    const int at = group * s.channels + c;
    const real n = $n;
    real middle[WIDE], factor[WIDE], average[WIDE], slope[WIDE];
//% if shape.parts then
    $(sums_of_parts { threads = threads, shape = shape, sums = sums })
//% else
    ga_read_channels(average, sum + at);
    ga_read_channels(slope, moment + at);
//% end
    ga_read_channels(middle, rstd + at);
    ga_read_channels(factor, weight + c);
#pragma unroll
    for (int e = 0; e < WIDE; e++) {
        factor[e] *= middle[e];
        average[e] /= n;
        slope[e] = slope[e] / n * middle[e];
    }
    ga_read_channels(middle, mean + at);
    $(fetch_both { })
    ga_each_of_channels<FEW, $threads>(s, plane, group, part, fetch, [&](ga_int64 i, const inputs &of) {
        ga_few<$out, FEW> to;
//% if adds then
        if (add) to = ga_read<FEW>(y + i);
//% end
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const real apart = ga_get(of.x.at[e]) - middle[e % WIDE];
            const real value = factor[e % WIDE] * (ga_get(of.dy.at[e]) - average[e % WIDE] - apart * slope[e % WIDE]);
            $store
        }
        ga_write(y + i, to);
    });
}

//@ sums_of_parts(threads, shape, sums)
enum { FEW_SUMS = WIDE < 4 ? WIDE : 4 };
__shared__ real scratch[$threads / GA_LANES][WIDE];
auto add_up = [&](real (&sum)[WIDE], int of_group, int which) {
    const real *from = parts + (of_group * 2 + which) * s.channels + c;
    ga_parts_sum<WIDE, $threads>(sum, s.parts, scratch, [&](real (&own)[FEW_SUMS], int p, int e) {
        const auto some = ga_read<FEW_SUMS>(from + (ga_int64)p * (s.groups.by * 2 * s.channels) + e);
        for (int k = 0; k < FEW_SUMS; k++) own[k] += some.at[k];
    });
};
add_up(average, group, 0);
add_up(slope, group, 1);
//% if sums then
if (group == 0 && part == 0) {
    real all[WIDE], lever[WIDE];
#pragma unroll
    for (int e = 0; e < WIDE; e++) all[e] = average[e], lever[e] = slope[e];
//% if shape.several then
    real more[WIDE];
#pragma unroll 1
    for (int g = 1; g < s.groups.by; g++) {
        add_up(more, g, 0);
#pragma unroll
        for (int e = 0; e < WIDE; e++) all[e] += more[e];
        add_up(more, g, 1);
#pragma unroll
        for (int e = 0; e < WIDE; e++) lever[e] += more[e];
    }
//% end
    if (threadIdx.x == 0) {
//% if sums.weight then
        ga_write_channels(d_weight + c, lever, $(sums.weight));
//% end
//% if sums.bias then
        ga_write_channels(d_bias + c, all, $(sums.bias));
//% end
    }
}
//% end

//@ batchnorm_join(fn, params, source, threads, C, n, eps, sqrt)
/* $fn: average and variance of $C channels over the rows of all ranks, each of which
 * has $n values of a channel; count: how many all have. In evaluation, the running ones that it gets.
 * all: of each rank the averages, the variances, the count. Values a and b together have, with d = mean_b - mean_a:
 *   mean = mean_a + d n_b / n,  variance = (n_a variance_a + n_b variance_b) / n + d^2 n_a n_b / n^2
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, NUMBERS = 2 * C + 1 };
    const bool joins = micro->training;
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        double middle = joins ? all[c] : own_mean[c], spread = joins ? all[C + c] : own_var[c];
        double n = joins ? all[2 * C] : $n;
        for (int rank = 1; joins && rank < ranks; rank++) {
            const double *its = all + (ga_int64)rank * NUMBERS;
            const double apart = its[c] - middle, before = n, more = its[2 * C];
            n = before + more;
            middle += apart * (more / n);
            spread = (before * spread + more * its[C + c]) / n;
            spread += apart * apart * (before / n) * (more / n);
        }
        mean[c] = (real)middle;
        var[c] = (real)spread;
        rstd[c] = 1 / $sqrt((real)spread + $eps);
        if (c == 0) count[0] = (real)n;
    }
}

//@ batchnorm_join_sums(fn, params, source, threads, C)
/* $fn: two sums of each of $C channels over all ranks, in their order
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C };
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        double level = all[c], lever = all[C + c];
        for (int rank = 1; rank < ranks; rank++) {
            level += all[(ga_int64)rank * (2 * C) + c];
            lever += all[(ga_int64)rank * (2 * C) + C + c];
        }
        sum[c] = (real)level;
        moment[c] = (real)lever;
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

//@ batchnorm_running(fn, params, source, threads, C, groups, momentum, rest, unbiased, joined)
//% if groups > 1 then
/* $fn: in training, the running statistics of $C channels moved by those of $groups groups
//% else
/* $fn: in training, the running statistics of $C channels moved by those of a micro-batch
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, GROUPS = $groups };
    if (!micro->training) return;
//% if joined then
    const real unbiased = (real)((double)count[0] / ((double)count[0] - 1));
//% end
    for (ga_int64 c = ga_thread_first(); c < C; c += ga_thread_count()) {
        for (int g = 0; g < GROUPS; g++) {
            running_mean[c] = $rest * running_mean[c] + $momentum * mean[g * C + c];
            running_var[c] = $rest * running_var[c] + $momentum * (var[g * C + c] * $unbiased);
        }
        if (c == 0) batches[0] += GROUPS;
    }
}
