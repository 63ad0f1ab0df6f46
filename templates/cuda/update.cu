// update: what runs over the flat space at the boundary.

//@ gradient_partials(fn, params, source, threads, says, name, largest, few, reads, read, add, writes)
/* $fn: per tile of the gradient $says and the count of elements that are
 * not finite; added up in tile order by decide.
 * $source */
GA_KERNEL($threads) $fn($params) {
    __shared__ double scratch[GA_LANES];
    enum { FEW = $few };
    const ga_int64 from = (ga_int64)blockIdx.x * NORM_TILE;
    const ga_int64 end = from + NORM_TILE < count ? from + NORM_TILE : count; /* a multiple of 16 elements */
    double $name = 0, bad = 0;
    for (ga_int64 first = from + threadIdx.x * FEW; first < end; first += $threads * FEW) {
        $reads
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            $read
            $add
        }
        $writes
    }
//% if largest then
    $name = ga_block_max($name, scratch);
//% else
    $name = ga_block_sum($name, scratch);
//% end
    bad = ga_block_sum(bad, scratch);
    if (threadIdx.x == 0) ga_write(partials + 2 * blockIdx.x, ga_few<double, 2>{$name, bad});
}

//@ totals(ranks, by_sum, divisor, full)
//% if ranks then
const double losses = s->small[SMALL_LOSS];
s->weight = s->small[SMALL_WEIGHT];
s->rows = s->small[SMALL_ROWS];
s->stop = s->small[SMALL_STOP];
//% else
const double losses = s->sums[SUM_LOSS];
s->weight = s->sums[SUM_WEIGHT];
s->rows = s->sums[SUM_ROWS];
//% end
//% if by_sum then
s->loss = losses;
const double mean = 1$divisor; /* the sum of the losses is what is minimised */
//% else
s->loss = losses / s->weight;
const double mean = s->weight > 0 ? s->nominal / s->weight$divisor : 0; /* exactly $full for full cycles */
//% end

//@ sum_up(totals, ranks, by_sum, shares)
//% if shares then
/* The factor that turns a sum over this rank's list of a group, times the mean's factor over all ranks, into the mean
 * over the list. */
GA_DEVICE double share_of(const step *s, int group) {
//% if by_sum then
    return (double)$ranks / s->list_ranks[group - 1];
//% else
    const double weight = s->small[SMALL_LISTS + s->lists[group - 1]];
    return weight > 0 ? s->weight / weight : 0;
//% end
}

//% end
/* sum_up: the sums of the cycle, by which the gradient is divided before it is changed. */
GA_KERNEL(32) sum_up(step *s) {
    if (threadIdx.x != 0) return;
    $totals
    s->mean = (real)mean;
//% if shares then
    real *share = s->share;
    $shares
//% end
}

//@ small_values(lists)
/* small_values: this rank's part of a small sum over the ranks; the host adds SMALL_STOP. */
GA_KERNEL(32) small_values(step *s) {
    if (threadIdx.x != 0) return;
    s->small[SMALL_LOSS] = s->sums[SUM_LOSS];
    s->small[SMALL_WEIGHT] = s->sums[SUM_WEIGHT];
    s->small[SMALL_ROWS] = s->sums[SUM_ROWS];
//% if lists > 0 then
    for (int i = SMALL_LISTS; i < SMALL_NONFINITE; i++) s->small[i] = 0;
    for (int k = 0; k < $lists; k++) s->small[SMALL_LISTS + s->lists[k]] = s->sums[SUM_WEIGHT];
//% end
}

//@ own_norms(threads, largest)
/* own_norms: this rank's part of the norm, group by group, and the count of elements of its gradient that are not
 * finite. */
GA_KERNEL($threads) own_norms(step *s, const double *partials) {
    __shared__ double scratch[GA_LANES];
    double bad = 0;
    for (int k = 0; k < NORMS; k++) {
        double part = 0;
        for (ga_int64 i = (k > 0 ? s->norm_ends[k - 1] : 0) + threadIdx.x; i < s->norm_ends[k]; i += $threads) {
            const auto of_tile = ga_read<2>(partials + 2 * i);
//% if largest then
            part = fmax(part, of_tile.at[0]);
//% else
            part += of_tile.at[0];
//% end
            bad += of_tile.at[1];
        }
//% if largest then
        part = ga_block_max(part, scratch);
//% else
        part = ga_block_sum(part, scratch);
//% end
        if (threadIdx.x == 0) s->small[SMALL_NORM + k] = part;
    }
    bad = ga_block_sum(bad, scratch);
    if (threadIdx.x == 0) s->small[SMALL_NONFINITE] = bad;
}

//@ give_statistics(threads)
/* give_statistics: two numbers of each channel, and how many values of a channel this rank has, unless it is 0. */
GA_KERNEL($threads) give_statistics(double *own, const real *first, const real *second, int channels, double values) {
    const ga_int64 c = ga_thread_first();
    if (c >= channels) return;
    own[c] = first[c];
    own[channels + c] = second[c];
    if (c == 0 && values > 0) own[2 * channels] = values;
}

//@ take_part(threads)
/* take_part: the sums of this rank's cut of a window, written to what it keeps of the gradient, or added. */
GA_KERNEL($threads) take_part(real *kept, const real *window, ga_int64 n, bool adds) {
    const ga_int64 i = ga_thread_first();
    if (i < n) kept[i] = adds ? kept[i] + window[i] : window[i];
}

//@ clear_gaps(threads, rows)
/* Elements between two tensors of a bucket, from the bucket's beginning. */
static __device__ const struct { ga_int64 at; int n; } GAPS[] = {
    $rows
};

/* clear_gaps: no kernel writes these elements; a window had other gradients there before. */
GA_KERNEL($threads) clear_gaps(real *window, int first) {
    const ga_int64 at = GAPS[first + blockIdx.x].at;
    if (threadIdx.x < GAPS[first + blockIdx.x].n) window[at + threadIdx.x] = 0;
}

//@ norm(ranks, threads, sum, largest, groups, group_tiles)
//% if ranks then
bad = s->small[SMALL_NONFINITE];
//% if groups > 0 then
const double *of_group = s->small + SMALL_NORM;
double $sum = 0;
//% if largest then
for (int k = 0; k < NORMS; k++) $sum = fmax($sum, of_group[k]);
//% else
for (int k = 0; k < NORMS; k++) $sum += of_group[k];
//% end
//% else
const double $sum = s->small[SMALL_NORM];
//% end
//% else
//% if groups > 0 then
const int GROUP_TILES[$groups + 1] = {$group_tiles};
double of_group[$groups], $sum = 0;
for (int k = 0; k < $groups; k++) {
    double part = 0;
    for (ga_int64 i = GROUP_TILES[k] + threadIdx.x; i < GROUP_TILES[k + 1]; i += $threads) {
        const auto of_tile = ga_read<2>(partials + 2 * i);
//% if largest then
        part = fmax(part, of_tile.at[0]);
//% else
        part += of_tile.at[0];
//% end
        bad += of_tile.at[1];
    }
//% if largest then
    of_group[k] = ga_block_max(part, scratch);
    $sum = fmax($sum, of_group[k]);
//% else
    of_group[k] = ga_block_sum(part, scratch);
    $sum += of_group[k];
//% end
}
//% else
double $sum = 0;
for (ga_int64 i = threadIdx.x; i < NORM_TILES; i += $threads) {
    const auto of_tile = ga_read<2>(partials + 2 * i);
//% if largest then
    $sum = fmax($sum, of_tile.at[0]);
//% else
    $sum += of_tile.at[0];
//% end
    bad += of_tile.at[1];
}
//% if largest then
$sum = ga_block_max($sum, scratch);
//% else
$sum = ga_block_sum($sum, scratch);
//% end
//% end
bad = ga_block_sum(bad, scratch);
//% end

//@ decide(threads, ranks, norm, totals, grad_norm, skip, outliers, factor, rate_lines, scalars, scale_moved)
/* decide: the decision about the update, in double, by one thread. A skipped update changes neither
 * parameters nor optimizer state nor the schedule. The next cycle starts with cleared sums. */
//% if ranks then
GA_KERNEL($threads) decide(step *all) {
    double bad;
//% else
GA_KERNEL($threads) decide(step *all, const double *partials) {
    __shared__ double scratch[GA_LANES];
    double bad = 0;
//% end
    __shared__ step here;
    step *const s = &here;
    ga_copy(s, all);
    __syncthreads();
    $norm
    if (threadIdx.x == 0) {
        s->nonfinite = bad;
        $totals
        s->grad_norm = $grad_norm;
        s->skip = $skip;
        $outliers
        $factor
        $rate_lines
        $scalars
        $scale_moved
        s->update += !s->skip;
        s->cycle++;
        for (int i = 0; i < SUMS; i++) s->sums[i] = 0;
    }
    __syncthreads();
    ga_copy(all, s);
}

//@ narrow_all(threads, half)
/* narrow_all: the copies of all trained parameters in 16 bits, which updates write from then on. */
GA_KERNEL($threads) narrow_all($half *copies, const real *w, ga_int64 count) {
    enum { FEW = 4 };
    for (ga_int64 first = ga_thread_first() * FEW; first < count; first += ga_thread_count() * FEW) {
        const auto from = ga_read<FEW>(w + first);
        ga_few<$half, FEW> to;
#pragma unroll
        for (int k = 0; k < FEW; k++) to.at[k] = $(half)_narrow(from.at[k]);
        ga_write(copies + first, to);
    }
}

//@ scaler(growth_factor, backoff_factor, min_scale, max_scale, growth_interval, hysteresis)
/* ga_scaler_take: how the scale of the loss moves, as runtime/loop/scaler.c has it. */
GA_DEVICE void ga_scaler_take(bool overflow, double *scale, ga_int64 *growth_step, ga_int64 *hysteresis_step) {
    if (overflow) {
        *growth_step = 0;
        *hysteresis_step += 1;
        if (*hysteresis_step >= $hysteresis) *scale = fmax(*scale * $backoff_factor, $min_scale);
        return;
    }
    *growth_step += 1;
    if (*growth_step < $growth_interval) return;
    *growth_step = 0;
    *hysteresis_step = 0;
    const double grown = fmin(*scale * $growth_factor, $max_scale);
    if (grown - grown == 0) *scale = grown;
}

//@ sums(fn, params, source, threads, formula, loads, statements, stores, names, adds, totals, tile)
/* $fn: sums over one tensor, one for each tile:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    enum { TILE = $tile };
    __shared__ double scratch[GA_LANES];
    const ga_int64 first = (ga_int64)blockIdx.x * TILE, end = first + TILE < count ? first + TILE : count;
    double $names;
    for (ga_int64 i = first + threadIdx.x; i < end; i += $threads) {
        $loads
        $statements
        $stores
        $adds
    }
//% for i, name in ipairs(totals) do
    $name = ga_block_sum($name, scratch);
    if (threadIdx.x == 0) sums[$(#totals) * blockIdx.x + $(i - 1)] = $name;
//% end
}

//@ scales(fn, params, source, threads, formula, names, totals, scales)
/* $fn: numbers of one tensor, from the sums over its tiles:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    __shared__ double scratch[GA_LANES];
    double $names;
    for (ga_int64 i = threadIdx.x; i < tiles; i += $threads) {
//% for i, name in ipairs(totals) do
        $name += sums[$(#totals) * i + $(i - 1)];
//% end
    }
//% for i, name in ipairs(totals) do
    $name = ga_block_sum($name, scratch);
//% end
    if (threadIdx.x != 0) return;
    $scales
}

//@ sweep(fn, params, source, threads, formula, loads, statements, stores, once, tile)
/* $fn:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    $once
    for (ga_int64 i = ga_thread_first(); i < count; i += ga_thread_count()) {
        $loads
        $statements
        $stores
    }
}

//@ sweep_few(fn, params, source, threads, formula, few, reads, lines, writes, kept)
/* $fn, over a multiple of 16 elements:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    enum { FEW = $few };
//% if kept then
    const step here = *s; /* its numbers stay in registers */
//% end
    for (ga_int64 first = ga_thread_first() * FEW; first < count; first += ga_thread_count() * FEW) {
//% if kept then
        const step *const s = &here;
//% end
        $reads
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            $lines
        }
        $writes
    }
}

//@ matrix_rows(fn, params, source, threads, formula, loads, term, row_var)
/* $fn: for each row of the matrices, a warp for each:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    const ga_int64 r = ga_thread_first() / GA_LANES;
    if (r >= count / columns) return;
    double sum = 0;
    for (int c = threadIdx.x % GA_LANES; c < columns; c += GA_LANES) {
        const ga_int64 i = r * columns + c;
        $loads
        sum += (double)($term);
    }
    sum = ga_warp_sum(sum);
    if (threadIdx.x % GA_LANES != 0) return;
    const real row_var = run_row_var[r], mean = (real)(sum / columns);
    run_row_var[r] = $row_var;
}

//@ matrix_columns(fn, params, source, threads, formula, loads, term, chunk)
/* $fn: for each column of the matrices, a thread for each chunk of its rows:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    enum { CHUNK = $chunk };
    const ga_int64 size = (ga_int64)rows * columns, chunks = (rows + CHUNK - 1) / CHUNK;
    const ga_int64 k = ga_thread_first() / columns, c = ga_thread_first() % columns;
    if (k >= count / size * chunks) return;
    const ga_int64 row = k % chunks * CHUNK, behind = row + CHUNK < rows ? row + CHUNK : rows;
    double sum = 0;
    for (ga_int64 r = row; r < behind; r++) {
        const ga_int64 i = k / chunks * size + r * columns + c;
        $loads
        sum += (double)($term);
    }
    sums[k * columns + c] = (real)sum;
}

//@ matrix_factors(fn, params, source, threads, formula, row, col_var, chunk)
/* $fn: for each matrix, a block for each:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    enum { CHUNK = $chunk };
    __shared__ double scratch[GA_LANES];
    const int chunks = (rows + CHUNK - 1) / CHUNK;
    const ga_int64 k = blockIdx.x;
    double sum = 0;
    for (ga_int64 r = k * rows + threadIdx.x; r < (k + 1) * rows; r += $threads) sum += (double)run_row_var[r];
    const real mean = (real)(ga_block_sum(sum, scratch) / rows);
    for (ga_int64 r = k * rows + threadIdx.x; r < (k + 1) * rows; r += $threads) {
        const real row_var = run_row_var[r];
        row_factors[r] = $row;
    }
    for (int c = threadIdx.x; c < columns; c += $threads) {
        double column = 0;
        for (int j = 0; j < chunks; j++) column += (double)sums[(k * chunks + j) * columns + c];
        const real col_var = run_col_var[k * columns + c], mean = (real)(column / rows);
        run_col_var[k * columns + c] = $col_var;
    }
}

//@ matrix_sums(fn, params, source, threads, formula, loads, statements, stores, names, adds, totals)
/* $fn: sums over one tensor, one for each tile of rows of its matrices:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    __shared__ double scratch[GA_LANES];
    const ga_int64 all = count / columns, first = (ga_int64)blockIdx.x * tall;
    const ga_int64 mine = (first + tall < all ? tall : all - first) * columns;
    double $names;
    for (ga_int64 k = threadIdx.x; k < mine; k += $threads) {
        const ga_int64 r = first + (int)k / columns, i = first * columns + k;
        const real row = row_factors[r], column = run_col_var[r / rows * columns + (int)k % columns];
        $loads
        $statements
        $stores
        $adds
    }
//% for i, name in ipairs(totals) do
    $name = ga_block_sum($name, scratch);
    if (threadIdx.x == 0) sums[$(#totals) * blockIdx.x + $(i - 1)] = $name;
//% end
}

//@ matrix_sweep(fn, params, source, threads, formula, loads, statements, stores, once)
/* $fn:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    $once
    const ga_int64 all = count / columns, first = (ga_int64)blockIdx.x * tall;
    const ga_int64 mine = (first + tall < all ? tall : all - first) * columns;
    for (ga_int64 k = threadIdx.x; k < mine; k += $threads) {
        const ga_int64 r = first + (int)k / columns, i = first * columns + k;
        const real row = row_factors[r], column = run_col_var[r / rows * columns + (int)k % columns];
        $loads
        $statements
        $stores
    }
}

//@ exchange(fn, params, source, threads, tile)
/* $fn: trained parameters and their averages change places.
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { TILE = $tile };
    const ga_int64 first = (ga_int64)blockIdx.x * TILE, end = first + TILE < count ? first + TILE : count;
    for (ga_int64 i = first + threadIdx.x; i < end; i += $threads) {
        const real x = run_w[i];
        run_w[i] = run_ema[i];
        run_ema[i] = x;
    }
}

//@ batchnorm_move(threads, params, ranks)
/* batchnorm_move: running statistics of the channels of a layer, moved by those of all values of the cycle,
 * `values` of each group, the variance as that of a sample. */
GA_KERNEL($threads) batchnorm_move($params) {
    if (s->skip) return;
    const double all = (double)cycle_batches[0] * (double)values;
    const real step_size = (real)momentum, rest = (real)(1 - momentum), unbiased = (real)(all / (all - 1));
    for (int c = threadIdx.x; c < channels; c += $threads) {
//% if ranks then
        const real apart = cycle_mean[c] / cycle_batches[0]; /* of the cycle's average from the running one */
        const real spread = cycle_variance[c] / cycle_batches[0] - apart * apart;
        mean[c] += step_size * apart;
        variance[c] = rest * variance[c] + step_size * ((spread < 0 ? 0 : spread) * unbiased);
//% else
        mean[c] = rest * mean[c] + step_size * cycle_mean[c];
        variance[c] = rest * variance[c] + step_size * (cycle_variance[c] * unbiased);
//% end
    }
    if (threadIdx.x == 0) batches[0] += 1;
}
