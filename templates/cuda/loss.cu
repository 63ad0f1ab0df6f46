// loss: losses, the gradients that the backward pass starts with, and the sums of a cycle. A loss whose target is
// IGNORE, or whose row is missing (from micro->rows on), has weight 0.

//@ cross_entropy(fn, params, source, threads, rows, C, row, classes, type, hit, exp, log)
/* $fn: -log softmax(logits)[target] of $rows rows of $C classes, one block per row;
 * lse: log of the sum of exp(logits)
//% if classes.smooth then
 * label smoothing: $(classes.smoothing) of each target is spread evenly over all classes
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, ROW = $(row.apart), FEW = $(row.few), THREADS = $threads }; /* ROW: from one row to the next */
//% if classes.weighted then
    static const real class_weight[C] = {
        $(classes.weights)
    };
//% end
    __shared__ real scratch[GA_LANES];
    const ga_int64 i = blockIdx.x;
    const $type *row = logits + i * ROW;
    const real none = -ga_infinity((real)0);
    real largest = none, sum = 0; /* the sum of exp(x - largest) of what a thread has seen */
    ga_few_of_row<C, ROW, THREADS, FEW>(row, i, none, [&](const real (&some)[FEW]) {
        real most = largest;
        for (real x : some) most = max(most, x); /* one that is no number comes into the sum */
        if (most > largest) {
            sum *= $exp(largest - most);
            largest = most;
        }
        const real from = largest == none ? (real)0 : largest;
        for (real x : some) sum += $exp(x - from);
    });
    const real of_all = ga_block_max(largest, scratch);
    sum = ga_block_sum(largest == none && sum == 0 ? sum : sum * $exp(largest - of_all), scratch);
    const real whole = of_all + $log(sum);
//% if classes.smooth then
    real all = 0;
//% if classes.weighted then
    ga_each_of_row<C, ROW, THREADS, FEW>(row, i, [&](int c, real x) { all += class_weight[c] * (whole - x); });
//% else
    ga_each_of_row<C, ROW, THREADS, FEW>(row, i, [&](int, real x) { all += whole - x; });
//% end
    all = ga_block_sum(all, scratch);
//% end
    if (threadIdx.x == 0) {
        real value = 0;
        if (target[i] != IGNORE) {
            value = whole - $hit;
//% if classes.weighted then
            value *= class_weight[target[i]];
//% end
//% if classes.smooth then
            value = $(classes.rest) * value + $(classes.smoothing) / C * all;
//% end
        }
        lse[i] = whole;
        y[i] = value;
    }
}

//@ cross_entropy_dx(fn, params, source, threads, rows, C, row, classes, type, out, exp, adds)
/* $fn: dy times the derivative by the logits: softmax(logits) - one_hot(target)
//% if classes.smooth and classes.weighted then
 * with the weights of the classes and label smoothing
//% elseif classes.weighted then
 * with the weights of the classes
//% elseif classes.smooth then
 * with label smoothing
//% end
 * $rows rows of $C classes, one block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, ROW = $(row.apart), FEW = $(row.few), THREADS = $threads }; /* ROW: from one row to the next */
//% if classes.weighted then
    static const real class_weight[C] = {
        $(classes.weights)
    };
//% end
    const ga_int64 r = blockIdx.x;
    const $type *row = logits + r * ROW;
    $out *d = y + r * ROW;
    const real whole = lse[r];
//% if classes.masked then
    const real counted = target[r] == IGNORE ? (real)0 : dy[r];
//% else
    const real counted = dy[r];
//% end
    const int label = target[r] == IGNORE ? 0 : target[r]; /* the gradient is 0 where it is ignored */
//% if classes.weighted then
    const real hit = $(classes.rest) * class_weight[label], all = hit + $(classes.total);
//% elseif classes.smooth then
    const real hit = $(classes.rest), all = 1;
//% end
    for (int first = ga_first_of_row<ROW, FEW>(r); first < C; first += THREADS * FEW) {
        const auto few = ga_read_within<C, ROW, FEW>(row, first);
//% if adds then
        auto to = ga_read_within<C, ROW, FEW>(d, first);
//% else
        ga_few<$out, FEW> to = {};
//% end
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const int c = first + e;
            if (c < 0 || c >= C) continue;
            const real share = $exp(ga_get(few.at[e]) - whole);
//% if classes.weighted then
            const real spread = $(classes.smoothing) / C * class_weight[c];
            const real value = counted * (all * share - (c == label ? hit : (real)0) - spread);
//% elseif classes.smooth then
            const real spread = $(classes.smoothing) / C;
            const real value = counted * (all * share - (c == label ? hit : (real)0) - spread);
//% else
            const real value = counted * (share - (real)(c == label));
//% end
//% if adds then
            ga_put(to.at[e], add ? ga_get(to.at[e]) + value : value);
//% else
            ga_put(to.at[e], value);
//% end
        }
        ga_write_within<C, ROW, FEW>(d, first, to);
        if (C + FEW - 1 <= THREADS * FEW) return; /* a short row: each thread has written its only ones */
    }
}

//@ loss_seed(fn, params, source, threads, rows, few, counted, targets, micro, seed)
//% if micro then
/* $fn: scale / (micro-steps of a cycle) / (weight of this micro-step) for each loss that counts, else 0
//% else
/* $fn: the seed for each loss that counts, else 0
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { FEW = $few };
    const ga_int64 all = $(rows)ll, n = $counted;
//% if micro then
    const real each = sums[SUM_MICRO] > 0 ? (real)($seed / sums[SUM_MICRO]) : (real)0; /* 0: nothing counts */
//% else
    const real each = $seed;
//% end
    for (ga_int64 first = ga_thread_first() * FEW; first < all; first += ga_thread_count() * FEW) {
        ga_few<real, FEW> to;
//% if targets then
        const auto of_target = ga_read<FEW>(target + first);
#pragma unroll
        for (int k = 0; k < FEW; k++) to.at[k] = first + k < n && of_target.at[k] != IGNORE ? each : (real)0;
//% else
#pragma unroll
        for (int k = 0; k < FEW; k++) to.at[k] = first + k < n ? each : (real)0;
//% end
        ga_write(y + first, to);
    }
}

//@ micro_weight(fn, params, source, threads, each, weighted, weights)
/* $fn: the weight of all losses of this micro-step: each thread adds its rows, then their sums in one order
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { EACH = $each, THREADS = $threads }; /* EACH: losses of a row */
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    __shared__ double scratch[GA_LANES];
    double weight = 0;
    for (ga_int64 row = threadIdx.x; row < micro->rows; row += THREADS) {
        double of_row = 0;
        for (ga_int64 i = row * EACH; i < (row + 1) * EACH; i++) {
            if (target[i] == IGNORE) continue;
//% if weighted then
            of_row += class_weight[target[i]];
//% else
            of_row += 1;
//% end
        }
        weight += of_row;
    }
    weight = ga_block_sum(weight, scratch);
    if (threadIdx.x == 0) sums[SUM_MICRO] = weight;
}

//@ tally(fn, params, source, threads, counted, chunk, targets, weighted, weights, samples, micro)
/* $fn: adds the losses and their weight to the sums of the cycle: each thread its part, then in one order
//% if samples then
 * a row with a target that counts weighs 1
//% elseif micro then
 * in training, a micro-step with a target that counts weighs 1, and its loss is the mean
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
//% if chunk.is_row then
    enum { CHUNK = $(chunk.losses), FEW = $(chunk.few), THREADS = $threads }; /* CHUNK: losses of a row */
//% else
    enum { CHUNK = $(chunk.losses), FEW = $(chunk.few), THREADS = $threads };
//% end
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    __shared__ double scratch[GA_LANES];
    __shared__ ga_sums here;
    ga_copy(&here, (const ga_sums *)sums);
    double total = 0, weight = 0, count = 0;
    const ga_int64 n = $counted;
#pragma unroll 4
    for (ga_int64 first = threadIdx.x * CHUNK; first < n; first += THREADS * CHUNK) {
        double of_row = 0;
        for (ga_int64 i = first; i < first + CHUNK; i += FEW) {
            const auto some = ga_read<FEW>(loss + i);
//% if targets then
            const auto of_target = ga_read<FEW>(target + i);
//% end
#pragma unroll
            for (int k = 0; k < FEW; k++) {
//% if targets then
                if (of_target.at[k] == IGNORE || i + k >= n) continue;
//% else
                if (i + k >= n) continue;
//% end
                total += some.at[k];
                count += 1;
                of_row += $(chunk.of_loss);
            }
        }
//% if chunk.is_row then
        weight += of_row > 0;
//% else
        weight += of_row;
//% end
    }
    total = ga_block_sum(total, scratch);
    weight = ga_block_sum(weight, scratch);
    count = ga_block_sum(count, scratch);
    if (threadIdx.x == 0) {
        double *sums = here.at;
        sums[SUM_ROWS] += (double)micro->rows;
        sums[SUM_COUNT] += count;
//% if micro then
        sums[SUM_MICRO] = weight;
        if (micro->training && weight > 0) {
            total /= weight;
            weight = 1;
        }
//% if weighted then
        if (micro->training && weight == 0) total = 0; /* label smoothing: classes without weight have losses */
//% end
//% end
        sums[SUM_LOSS] += total;
        sums[SUM_WEIGHT] += weight;
    }
    __syncthreads();
    ga_copy((ga_sums *)sums, &here);
}

//@ tally_errors(fn, params, source, threads, counted)
/* $fn: adds the errors and their squares to the sums of an evaluation
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { THREADS = $threads };
    const ga_int64 n = $counted;
    __shared__ double scratch[GA_LANES];
    double total = 0, squares = 0;
    for (ga_int64 i = threadIdx.x; i < n; i += THREADS) {
        total += errors[i];
        squares += (double)errors[i] * errors[i];
    }
    total = ga_block_sum(total, scratch);
    squares = ga_block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        sums[SUM_ERRORS] += total;
        sums[SUM_SQUARES] += squares;
    }
}

//@ tally_spread(fn, params, source, threads, counted)
/* $fn: adds the targets less their shift, and the squares of that, to the sums of an evaluation
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { THREADS = $threads };
    const ga_int64 n = $counted;
    __shared__ double scratch[GA_LANES];
    double total = 0, squares = 0;
    for (ga_int64 i = threadIdx.x; i < n; i += THREADS) {
        const double x = (double)target[i] - sums[SUM_SHIFT];
        total += x;
        squares += x * x;
    }
    total = ga_block_sum(total, scratch);
    squares = ga_block_sum(squares, scratch);
    if (threadIdx.x == 0) {
        sums[SUM_TARGETS] += total;
        sums[SUM_TARGET_SQUARES] += squares;
    }
}

//@ tally_values(fn, params, source, threads, sum, each, of_row, targets, samples, weighted, weights)
/* $fn: adds the values of rows, weighed as their losses, to a sum of an evaluation
//% if of_row ~= each then
 * a row has $of_row values, whose mean weighs as its losses together
//% end
//% if samples then
 * a row with a target that counts weighs 1
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
//% if of_row ~= each then
    enum { EACH = $each, OF_ROW = $of_row, THREADS = $threads }; /* EACH, OF_ROW: losses and values of a row */
//% else
    enum { EACH = $each, THREADS = $threads }; /* EACH: losses of a row, and values */
//% end
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    __shared__ double scratch[GA_LANES];
    double total = 0;
    for (ga_int64 row = threadIdx.x; row < micro->rows; row += THREADS) {
        double of_row = 0, weight = 0;
        for (ga_int64 i = row * EACH; i < (row + 1) * EACH; i++) {
//% if targets then
            if (target[i] == IGNORE) continue;
//% end
//% if weighted then
            const double of_loss = class_weight[target[i]];
//% else
            const double of_loss = 1;
//% end
            weight += of_loss;
//% if of_row == each then
            of_row += of_loss * values[i];
//% end
        }
        if (weight == 0) continue;
//% if of_row ~= each then
        for (ga_int64 i = row * OF_ROW; i < (row + 1) * OF_ROW; i++) of_row += values[i];
        of_row *= weight / OF_ROW;
//% end
//% if samples then
        total += of_row / weight;
//% else
        total += of_row;
//% end
    }
    total = ga_block_sum(total, scratch);
    if (threadIdx.x == 0) sums[$sum] += total;
}

//@ tally_hits(fn, params, source, threads, counted, few, sum, f1)
/* $fn: counts the hits of targets that count
//% if f1 then
 * and, of the rows of class 1, how many are found and how many missed
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { FEW = $few, THREADS = $threads };
    const ga_int64 n = $counted;
    __shared__ double scratch[GA_LANES];
    __shared__ ga_sums here;
    ga_copy(&here, (const ga_sums *)sums);
//% if f1 then
    double total = 0, found = 0, missed = 0;
//% else
    double total = 0;
//% end
    for (ga_int64 i = threadIdx.x * FEW; i < n; i += THREADS * FEW) {
        const auto of_hits = ga_read<FEW>(hits + i);
        const auto of_target = ga_read<FEW>(target + i);
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            if (of_target.at[k] == IGNORE || i + k >= n) continue;
            total += of_hits.at[k];
//% if f1 then
            if (of_target.at[k] == 1) (of_hits.at[k] > 0 ? found : missed) += 1;
//% end
        }
    }
    total = ga_block_sum(total, scratch);
//% if f1 then
    found = ga_block_sum(found, scratch);
    missed = ga_block_sum(missed, scratch);
//% end
    if (threadIdx.x == 0) {
        here.at[$sum] += total;
//% if f1 then
        here.at[SUM_FOUND] += found;
        here.at[SUM_MISSED] += missed;
//% end
    }
    __syncthreads();
    ga_copy((ga_sums *)sums, &here);
}

//@ hit(fn, params, source, threads, rows, C, row)
/* $fn: 1 where the first of the largest logits is the target's, else 0; one warp per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, ROW = $(row.apart), FEW = $(row.few), THREADS = $threads }; /* ROW: from one row to the next */
    const ga_int64 i = blockIdx.x;
    int best = C;
    real largest = -ga_infinity((real)0);
    ga_each_of_row<C, ROW, THREADS, FEW>(logits + i * ROW, i, [&](int c, real x) {
        if (c == 0 || x > largest) { /* the first one stays, even where it is no number */
            largest = x;
            best = c;
        }
    });
    for (int step = GA_LANES / 2; step > 0; step /= 2) {
        const real other = __shfl_xor_sync(GA_ALL_LANES, largest, step);
        const int at = __shfl_xor_sync(GA_ALL_LANES, best, step);
        if (other > largest || (other == largest && at < best)) {
            largest = other;
            best = at;
        }
    }
    if (threadIdx.x == 0) y[i] = best == target[i];
}

//@ top_hit(fn, params, source, threads, type, own, rows, C, row, k)
/* $fn: 1 where fewer than $k classes have a greater logit than the target's, else 0; one that is no number is
 * the greatest, and 0 if it is the target's; one warp per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, ROW = $(row.apart), FEW = $(row.few), THREADS = $threads }; /* ROW: from one row to the next */
    const ga_int64 i = blockIdx.x;
    const $type *row = logits + i * ROW;
    const bool counts = target[i] != IGNORE;
    const real own = counts ? $own : (real)0;
    int greater = 0;
    ga_each_of_row<C, ROW, THREADS, FEW>(row, i, [&](int, real x) { greater += !(x <= own); });
    for (int step = GA_LANES / 2; step > 0; step /= 2) greater += __shfl_xor_sync(GA_ALL_LANES, greater, step);
    if (threadIdx.x == 0) y[i] = counts && greater < $k;
}
