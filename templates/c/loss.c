// loss: losses, the gradients that the backward pass starts with, and the sums of a cycle. A loss whose target is
// IGNORE, or whose row is missing (from micro->rows on), has weight 0.

//@ cross_entropy(fn, params, source, rows, C, classes, half, exp, log)
/* $fn: -log softmax(logits)[target] of $rows rows of $C classes; lse: log of the sum of exp(logits)
//% if classes.smooth then
 * label smoothing: $(classes.smoothing) of each target is spread evenly over all classes
//% end
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
//% if classes.weighted then
    static const real class_weight[C] = {
        $(classes.weights)
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
//% if half then
            real row[C];
            widen_row(row, logits + (size_t)i * C, C);
//% else
            const real *row = logits + (size_t)i * C;
//% end
            const real largest = row_greatest(row, C, -INFINITY);
            lse[i] = largest + $log(row_exp_sum(row, largest, C));
            y[i] = 0;
            if (target[i] == IGNORE) continue;
            y[i] = lse[i] - row[target[i]];
//% if classes.weighted then
            y[i] *= class_weight[target[i]];
//% end
//% if classes.smooth then
            real all = 0;
//% if classes.weighted then
            for (int c = 0; c < C; c++) all += class_weight[c] * (lse[i] - row[c]);
//% else
            for (int c = 0; c < C; c++) all += lse[i] - row[c];
//% end
            y[i] = $(classes.rest) * y[i] + $(classes.smoothing) / C * all;
//% end
        }
    }
}

//@ cross_entropy_dx(fn, params, source, rows, C, classes, logit, exp, store)
/* $fn: dy times the derivative by the logits: softmax(logits) - one_hot(target)
//% if classes.smooth and classes.weighted then
 * with the weights of the classes and label smoothing
//% elseif classes.weighted then
 * with the weights of the classes
//% elseif classes.smooth then
 * with label smoothing
//% end
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
//% if classes.weighted then
    static const real class_weight[C] = {
        $(classes.weights)
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
//% if classes.masked then
            const real counted = target[r] == IGNORE ? 0 : dy[r];
//% end
//% if not classes.smooth and not classes.weighted then
            for (int c = 0; c < C; c++) {
                const size_t i = (size_t)r * C + c;
                const real value = $(classes.dy) * ($exp($logit - lse[r]) - (c == target[r]));
                $store
            }
//% else
            const int label = target[r] == IGNORE ? 0 : target[r]; /* the gradient is 0 where it is ignored */
//% if classes.weighted then
            const real hit = $(classes.rest) * class_weight[label], all = hit + $(classes.total);
//% else
            const real hit = $(classes.rest), all = 1;
//% end
            for (int c = 0; c < C; c++) {
                const size_t i = (size_t)r * C + c;
//% if classes.weighted then
                const real spread = $(classes.smoothing) / C * class_weight[c];
//% else
                const real spread = $(classes.smoothing) / C;
//% end
                const real value = $(classes.dy) *
                    (all * $exp($logit - lse[r]) - (c == label ? hit : 0) - spread);
                $store
            }
//% end
        }
    }
}

//@ loss_seed(fn, params, source, rows, counted, targets, micro, seed)
//% if micro then
/* $fn: scale / (micro-steps of a cycle) / (weight of this micro-step) for each loss that counts, else 0
//% else
/* $fn: the seed for each loss that counts, else 0
//% end
 * $source */
static void $fn($params) {
    enum { LOSSES = $rows };
    const int64_t n = $counted;
//% if micro then
    const real each = sums[SUM_MICRO] > 0 ? (real)($seed / sums[SUM_MICRO]) : 0; /* 0: nothing counts */
//% else
    const real each = $seed;
//% end
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);)
//% if targets then
        for (int i = 0; i < LOSSES; i++) y[i] = i < n && target[i] != IGNORE ? each : 0;
//% else
        for (int i = 0; i < LOSSES; i++) y[i] = i < n ? each : 0;
//% end
}

//@ micro_weight(fn, params, source, each, weighted, weights)
/* $fn: the weight of all losses of this micro-step
 * $source */
static void $fn($params) {
    enum { EACH = $each }; /* losses of a row */
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        double weight = 0;
        for (int64_t row = 0; row < micro->rows; row++) {
            double of_row = 0;
            for (int64_t i = row * EACH; i < (row + 1) * EACH; i++) {
                if (target[i] == IGNORE) continue;
//% if weighted then
                of_row += class_weight[target[i]];
//% else
                of_row += 1;
//% end
            }
            weight += of_row;
        }
        sums[SUM_MICRO] = weight;
    }
}

//@ tally(fn, params, source, each, targets, weighted, weights, samples, micro)
/* $fn: adds the losses and their weight to the sums of the cycle, in the order of rows
//% if samples then
 * a row with a target that counts weighs 1
//% elseif micro then
 * in training, a micro-step with a target that counts weighs 1, and its loss is the mean
//% end
 * $source */
static void $fn($params) {
    enum { EACH = $each }; /* losses of a row */
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        double total = 0, weight = 0, count = 0;
        for (int64_t row = 0; row < micro->rows; row++) {
            double of_row = 0;
            for (int64_t i = row * EACH; i < (row + 1) * EACH; i++) {
//% if targets then
                if (target[i] == IGNORE) continue;
//% end
                total += loss[i];
                count += 1;
//% if weighted then
                of_row += class_weight[target[i]];
//% else
                of_row += 1;
//% end
            }
//% if samples then
            weight += of_row > 0;
//% else
            weight += of_row;
//% end
        }
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
}

//@ tally_hits(fn, params, source, counted, sum, f1)
/* $fn: counts the hits of targets that count
//% if f1 then
 * and, of the rows of class 1, how many are found and how many missed
//% end
 * $source */
static void $fn($params) {
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);)
        for (int64_t i = 0; i < n; i++) {
            if (target[i] == IGNORE) continue;
            sums[$sum] += hits[i];
//% if f1 then
            if (target[i] == 1) sums[hits[i] > 0 ? SUM_FOUND : SUM_MISSED] += 1;
//% end
        }
}

//@ tally_errors(fn, params, source, counted)
/* $fn: adds the errors and their squares to the sums of an evaluation
 * $source */
static void $fn($params) {
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        double total = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            total += errors[i];
            squares += (double)errors[i] * errors[i];
        }
        sums[SUM_ERRORS] += total;
        sums[SUM_SQUARES] += squares;
    }
}

//@ tally_spread(fn, params, source, counted)
/* $fn: adds the targets less their shift, and the squares of that, to the sums of an evaluation
 * $source */
static void $fn($params) {
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        double total = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)target[i] - sums[SUM_SHIFT];
            total += x;
            squares += x * x;
        }
        sums[SUM_TARGETS] += total;
        sums[SUM_TARGET_SQUARES] += squares;
    }
}

//@ tally_values(fn, params, source, sum, each, of_row, targets, samples, weighted, weights)
/* $fn: adds the values of rows, weighed as their losses, to a sum of an evaluation
//% if of_row ~= each then
 * a row has $of_row values, whose mean weighs as its losses together
//% end
//% if samples then
 * a row with a target that counts weighs 1
//% end
 * $source */
static void $fn($params) {
//% if of_row ~= each then
    enum { EACH = $each, OF_ROW = $of_row }; /* losses and values of a row */
//% else
    enum { EACH = $each }; /* losses of a row, and values */
//% end
//% if weighted then
    static const real class_weight[] = {
        $weights
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        double total = 0;
        for (int64_t row = 0; row < micro->rows; row++) {
            double of_row = 0, weight = 0;
            for (int64_t i = row * EACH; i < (row + 1) * EACH; i++) {
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
            for (int64_t i = row * OF_ROW; i < (row + 1) * OF_ROW; i++) of_row += values[i];
            of_row *= weight / OF_ROW;
//% end
//% if samples then
            total += of_row / weight;
//% else
            total += of_row;
//% end
        }
        sums[$sum] += total;
    }
}

//@ hit(fn, params, source, half, rows, C)
/* $fn: 1 where the first of the largest logits is the target's, else 0
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
//% if half then
            real row[C];
            widen_row(row, logits + (size_t)i * C, C);
//% else
            const real *row = logits + (size_t)i * C;
//% end
            int best = 0;
            for (int c = 1; c < C; c++) best = row[c] > row[best] ? c : best;
            y[i] = best == target[i];
        }
    }
}

//@ top_hit(fn, params, source, half, rows, C, k)
/* $fn: 1 where fewer than $k classes have a greater logit than the target's, else 0; one that is no number is
 * the greatest, and 0 if it is the target's
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
//% if half then
            real row[C];
            widen_row(row, logits + (size_t)i * C, C);
//% else
            const real *row = logits + (size_t)i * C;
//% end
            y[i] = 0;
            if (target[i] == IGNORE) continue;
            const real own = row[target[i]];
            int greater = 0;
            for (int c = 0; c < C; c++) greater += !(row[c] <= own);
            y[i] = greater < $k;
        }
    }
}
