// update: what runs over the flat space at the boundary.

//@ gradient_partials(threads)
/* gradient_partials: per tile of the gradient the sum of squares and the count of elements that are
 * not finite; added up in tile order by decide. */
GA_KERNEL($threads) gradient_partials(double *partials, const real *gradients) {
    __shared__ double scratch[GA_LANES];
    const ga_int64 from = (ga_int64)blockIdx.x * NORM_TILE;
    const ga_int64 to = from + NORM_TILE < TRAINED ? from + NORM_TILE : TRAINED;
    double squares = 0, bad = 0;
    for (ga_int64 i = from + threadIdx.x; i < to; i += $threads) {
        const double g = gradients[i];
        squares += g * g;
        bad += !(g - g == 0);
    }
    squares = ga_block_sum(squares, scratch);
    bad = ga_block_sum(bad, scratch);
    if (threadIdx.x == 0) {
        partials[2 * blockIdx.x] = squares;
        partials[2 * blockIdx.x + 1] = bad;
    }
}

//@ small_values()
/* small_values: this rank's part of the one small sum over the ranks; stop is there already. */
GA_KERNEL(32) small_values(step *s) {
    if (threadIdx.x >= SMALL || threadIdx.x == SMALL_STOP) return;
    s->small[threadIdx.x] = threadIdx.x == SMALL_LOSS     ? s->sums[SUM_LOSS]
                            : threadIdx.x == SMALL_WEIGHT ? s->sums[SUM_WEIGHT]
                            : threadIdx.x == SMALL_ROWS   ? s->sums[SUM_ROWS]
                                                          : 0;
}

//@ decide(threads, source, rate, total, ddp, by_sum, skip, clip, rate_lines, scalars)
/* learning_rate: of the update after t updates
 * $source */
GA_DEVICE double learning_rate(const step *s, ga_int64 t) {
    $total
    return $rate;
}

/* decide: what the update is to be, in double, by one thread. A skipped update changes neither
 * parameters nor optimizer state nor the schedule. The next cycle starts with cleared sums. */
GA_KERNEL($threads) decide(step *s, const double *partials) {
    __shared__ double scratch[GA_LANES];
    double squares = 0, bad = 0;
    for (ga_int64 i = threadIdx.x; i < NORM_TILES; i += $threads) {
        squares += partials[2 * i];
        bad += partials[2 * i + 1];
    }
    squares = ga_block_sum(squares, scratch);
    bad = ga_block_sum(bad, scratch);
    if (threadIdx.x != 0) return;
    s->nonfinite = bad;
//% if ddp then
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
    const double mean = 1; /* the sum of the losses is what is minimised */
//% else
    s->loss = losses / s->weight;
    const double mean = s->weight > 0 ? s->nominal / s->weight : 0; /* exactly 1 for full cycles */
//% end
    s->grad_norm = sqrt(squares) * mean;
    s->skip = $skip;
    double factor = mean;
    $clip
    s->factor = (real)factor;
    $rate_lines
    $scalars
    s->update += !s->skip;
    s->cycle++;
    for (int i = 0; i < SUMS; i++) s->sums[i] = 0;
}

//@ sums(fn, params, source, threads, formula, loads, statements, stores, names, adds, totals, tile)
/* $fn: of one tensor, by tiles:
$formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    if (s->skip) return;
    enum { TILE = $tile };
    __shared__ double scratch[GA_LANES];
    const ga_int64 first = from + (ga_int64)blockIdx.x * TILE, end = first + TILE < to ? first + TILE : to;
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
/* $fn: of one tensor, from the sums of its tiles:
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
    for (ga_int64 i = from + ga_thread_first(); i < to; i += ga_thread_count()) {
        $loads
        $statements
        $stores
    }
}
