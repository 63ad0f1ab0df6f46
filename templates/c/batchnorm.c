// batchnorm: channels of (rows, channels, rest) normalised, by groups of rows. One worker computes the sums of a
// channel of a group from start to end.

//@ batchnorm_stats(fn, params, source, type, B, C, S, rows, eps, sqrt)
/* $fn: average and variance of $C channels of $S elements in each group of $rows rows; in evaluation, the
 * running ones
 * $source */
static void $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, GROUPS = $B / ROWS };
    for (ga_tiles t = ga_tiles_begin(w, GROUPS * C); ga_tile_next(&t);) {
        const int c = (int)t.index % C;
        real middle = running_mean[c], spread = running_var[c];
        if (micro->training) {
            const $type *first = x + ((size_t)(t.index / C) * ROWS * C + c) * S;
            middle = planes_sum(first, (size_t)C * S, ROWS, S) / ((size_t)ROWS * S);
            spread = planes_spread(first, (size_t)C * S, ROWS, S, middle) / ((size_t)ROWS * S);
        }
        mean[t.index] = middle;
        var[t.index] = spread;
        rstd[t.index] = 1 / $sqrt(spread + $eps);
    }
}

//@ batchnorm(fn, params, source, x, row, store, B, C, S, rows)
/* $fn: (x - mean) rstd weight + bias for $C channels of $S elements, in groups of $rows rows
 * $source */
static void $fn($params) {
    enum { B = $B, C = $C, S = $S, ROWS = $rows, PLANES = B * C, TILE = 1 + 4096 / S };
//% if row then
    enum { RUN = S < 256 ? S : 256 }; /* rounded at a time */
//% end
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (int p = from; p < to; p++) {
            const int c = p % C, group = p / C / ROWS * C + c;
            const real middle = mean[group], factor = rstd[group] * weight[c], shift = bias[c];
//% if row then
            for (int first = 0; first < S; first += RUN) {
                const int n = first + RUN < S ? RUN : S - first;
                real row[RUN];
                INDEPENDENT for (int k = 0; k < n; k++) {
                    const size_t at = (size_t)p * S + first + k;
                    const real value = ($x - middle) * factor + shift;
                    $store
                }
                narrow_row($row + (size_t)p * S + first, row, n);
            }
//% else
            INDEPENDENT for (size_t at = (size_t)p * S; at < (size_t)(p + 1) * S; at++) {
                const real value = ($x - middle) * factor + shift;
                $store
            }
//% end
        }
    }
}

//@ batchnorm_sums(fn, params, source, B, C, S, rows)
/* $fn: sums of dy and of dy (x - mean) rstd for $C channels of $S elements in each group of $rows rows
 * $source */
static void $fn($params) {
    enum { C = $C, S = $S, ROWS = $rows, GROUPS = $B / ROWS };
    for (ga_tiles t = ga_tiles_begin(w, GROUPS * C); ga_tile_next(&t);) {
        const size_t first = ((size_t)(t.index / C) * ROWS * C + t.index % C) * S;
        const size_t stride = (size_t)C * S;
        sum[t.index] = planes_sum(dy + first, stride, ROWS, S);
        moment[t.index] = planes_lever(dy + first, x + first, stride, ROWS, S, mean[t.index]) * rstd[t.index];
    }
}

//@ batchnorm_dx(fn, params, source, x, dy, B, C, S, rows, n, row, store)
/* $fn: the gradient of (x - mean) rstd weight with respect to x, for $C channels of $S elements, in groups
 * of $rows rows
 * $source */
static void $fn($params) {
    enum { B = $B, C = $C, S = $S, ROWS = $rows, PLANES = B * C, TILE = 1 + 4096 / S };
//% if row then
    enum { RUN = S < 256 ? S : 256 }; /* rounded at a time */
//% end
    for (ga_tiles t = ga_tiles_begin(w, (PLANES + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < PLANES ? from + TILE : PLANES;
        for (int p = from; p < to; p++) {
            const int c = p % C, at = p / C / ROWS * C + c;
            const real middle = mean[at], factor = weight[c] * rstd[at], n = $n;
            const real level = sum[at] / n, slope = moment[at] / n * rstd[at];
//% if row then
            for (int first = 0; first < S; first += RUN) {
                const int count = first + RUN < S ? RUN : S - first;
                real row[RUN];
                INDEPENDENT for (int k = 0; k < count; k++) {
                    const size_t i = (size_t)p * S + first + k;
                    const real value = factor * ($dy - level - ($x - middle) * slope);
                    $store
                }
                narrow_row($row + (size_t)p * S + first, row, count);
            }
//% else
            for (size_t i = (size_t)p * S; i < (size_t)(p + 1) * S; i++) {
                const real value = factor * ($dy - level - ($x - middle) * slope);
                $store
            }
//% end
        }
    }
}

//@ batchnorm_join(fn, params, source, C, n, eps, sqrt)
/* $fn: average and variance of $C channels over the rows of all ranks, each of which
 * has $n values of a channel; count: how many all have. In evaluation, the running ones that it gets
 * $source */
static void $fn($params) {
    enum { C = $C, NUMBERS = 1 + 2 * C };
    if (w->index != 0) return;
    double *const all = (double *)m->memory[ARENA_STATISTICS].base; /* NUMBERS of each rank */
    double *const own = micro->training ? all + NUMBERS * ga_comm_rank(m->comm) : all;
    own[0] = $n;
    for (int c = 0; c < C; c++) {
        own[1 + c] = own_mean[c];
        own[1 + C + c] = own_var[c];
    }
    const int code = micro->training ? ga_moments_join(m->comm, all, C, &m->error) : 0;
    if (code < 0) ga_team_fail(w, code);
    count[0] = (real)all[0];
    for (int c = 0; c < C; c++) {
        mean[c] = (real)all[1 + c];
        var[c] = (real)all[1 + C + c];
        rstd[c] = 1 / $sqrt(var[c] + $eps);
    }
}

//@ batchnorm_join_sums(fn, params, source, C)
/* $fn: two sums of each of $C channels over all ranks
 * $source */
static void $fn($params) {
    enum { C = $C, NUMBERS = 2 * C };
    if (w->index != 0) return;
    double *const all = (double *)m->memory[ARENA_STATISTICS].base; /* NUMBERS of each rank */
    double *const own = all + NUMBERS * ga_comm_rank(m->comm);
    for (int c = 0; c < C; c++) {
        own[c] = own_sum[c];
        own[C + c] = own_moment[c];
    }
    const int code = ga_moments_add(m->comm, all, NUMBERS, &m->error);
    if (code < 0) ga_team_fail(w, code);
    for (int c = 0; c < C; c++) {
        sum[c] = (real)all[c];
        moment[c] = (real)all[C + c];
    }
}

//@ batchnorm_collect(fn, params, source, C, groups)
/* $fn: in training, average and variance of all values of $C channels in the cycle so far: those of earlier
 * micro-steps joined with $groups more groups
 * $source */
static void $fn($params) {
    enum { C = $C, GROUPS = $groups, TILE = 256 };
    const int before = (int)micro->before * GROUPS;
    for (ga_tiles t = ga_tiles_begin(w, (C + TILE - 1) / TILE); micro->training && ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < C ? from + TILE : C;
        for (int g = 0; g < GROUPS; g++) {
            const real k = (real)(before + g), share = 1 / (k + 1); /* groups before this one */
            for (int c = from; c < to; c++) {
                const real middle = k > 0 ? running_mean[c] : 0, spread = k > 0 ? running_var[c] : 0;
                const real apart = mean[g * C + c] - middle;
                running_mean[c] = middle + apart * share;
                running_var[c] = (k * spread + var[g * C + c]) * share + apart * apart * (k * share * share);
            }
        }
        if (from == 0) batches[0] = (real)(before + GROUPS);
    }
}

//@ batchnorm_add(fn, params, source, C, groups)
/* $fn: in training, what $groups groups of $C channels add to the sums of the cycle over all ranks: d = average
 * - running average, variance + d^2, and the number of groups; no rank changes the running average in a cycle
 * $source */
static void $fn($params) {
    enum { C = $C, GROUPS = $groups, TILE = 256 };
    const bool adds = micro->before > 0;
    for (ga_tiles t = ga_tiles_begin(w, (C + TILE - 1) / TILE); micro->training && ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < C ? from + TILE : C;
        for (int c = from; c < to; c++) {
            real sum = adds ? running_mean[c] : 0, squares = adds ? running_var[c] : 0;
            for (int g = 0; g < GROUPS; g++) {
                const real apart = mean[g * C + c] - centre[c];
                sum += apart;
                squares += var[g * C + c] + apart * apart;
            }
            running_mean[c] = sum;
            running_var[c] = squares;
        }
        if (from == 0) batches[0] = (adds ? batches[0] : 0) + GROUPS;
    }
}

//@ batchnorm_running(fn, params, source, C, groups, momentum, rest, unbiased, joined)
//% if groups > 1 then
/* $fn: in training, the running statistics of $C channels moved by those of $groups groups
//% else
/* $fn: in training, the running statistics of $C channels moved by those of a micro-batch
//% end
 * $source */
static void $fn($params) {
    enum { C = $C, GROUPS = $groups, TILE = 256 };
    for (ga_tiles t = ga_tiles_begin(w, (C + TILE - 1) / TILE); micro->training && ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < C ? from + TILE : C;
//% if joined then
        const real unbiased = (real)((double)count[0] / ((double)count[0] - 1));
//% end
        for (int g = 0; g < GROUPS; g++) {
            for (int c = from; c < to; c++) {
                running_mean[c] = $rest * running_mean[c] + $momentum * mean[g * C + c];
                running_var[c] = $rest * running_var[c] + $momentum * (var[g * C + c] * $unbiased);
            }
        }
        if (from == 0) batches[0] += GROUPS;
    }
}
