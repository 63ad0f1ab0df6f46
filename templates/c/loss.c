// loss: per-row losses and what starts and counts them. A row whose target is IGNORE, or that is
// not there (facts->rows), has weight 0.

//@ cross_entropy(fn, params, source, real, rows, C, exp, log, smooth, weighted, smoothing, rest, weights)
/* $fn: -log softmax(logits)[target] of $rows rows of $C classes; lse = log sum exp(logits)
//% if smooth then
 * a part $smoothing of each target is spread over all classes
//% end
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
//% if weighted then
    static const $real class_weight[C] = {
        $weights
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
            const $real *row = logits + (size_t)i * C;
            $real largest = row[0], sum = 0;
            for (int c = 1; c < C; c++) largest = row[c] > largest ? row[c] : largest;
            for (int c = 0; c < C; c++) sum += $exp(row[c] - largest);
            lse[i] = largest + $log(sum);
            y[i] = 0;
            if (target[i] == IGNORE) continue;
            y[i] = lse[i] - row[target[i]];
//% if weighted then
            y[i] *= class_weight[target[i]];
//% end
//% if smooth then
            $real all = 0;
//% if weighted then
            for (int c = 0; c < C; c++) all += class_weight[c] * (lse[i] - row[c]);
//% else
            for (int c = 0; c < C; c++) all += lse[i] - row[c];
//% end
            y[i] = $rest * y[i] + $smoothing / C * all;
//% end
        }
    }
}

//@ cross_entropy_dx(fn, params, source, real, rows, C, exp, store, smooth, weighted, smoothing, rest, weights, total)
/* $fn: dy times the derivative by the logits: softmax(logits) - one_hot(target)
//% if smooth or weighted then
 * where the target's class has its weight and its share, and every class its part
//% end
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
//% if weighted then
    static const $real class_weight[C] = {
        $weights
    };
//% end
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
//% if not smooth and not weighted then
            for (int c = 0; c < C; c++) {
                const size_t i = (size_t)r * C + c;
                const $real value = dy[r] * ($exp(logits[i] - lse[r]) - (c == target[r]));
                $store
            }
//% else
            const int label = target[r] == IGNORE ? 0 : target[r]; /* dy is 0 where it is ignored */
//% if weighted then
            const $real hit = $rest * class_weight[label], all = hit + $total;
//% else
            const $real hit = $rest, all = 1;
//% end
            for (int c = 0; c < C; c++) {
                const size_t i = (size_t)r * C + c;
                const $real spread = $smoothing / C//% if weighted then
 * class_weight[c]//% end
;
                const $real value = dy[r] *
                    (all * $exp(logits[i] - lse[r]) - (c == label ? hit : 0) - spread);
                $store
            }
//% end
        }
    }
}

//@ loss_seed(fn, params, source, real, rows, counted)
/* $fn: scale / nominal weight for each counted row
 * $source */
static void $fn($params) {
    enum { ROWS = $rows };
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);)
        for (int i = 0; i < ROWS; i++) y[i] = i < n && target[i] != IGNORE ? seed : 0;
}

//@ tally(fn, params, source, counted)
/* $fn: loss and weight of the counted rows, in row order
 * $source */
static void $fn($params) {
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        for (int64_t i = 0; i < n; i++) {
            if (target[i] == IGNORE) continue;
            sums[SUM_LOSS] += loss[i];
            sums[SUM_WEIGHT] += 1;
        }
    }
}

//@ tally_hits(fn, params, source, counted)
/* $fn: rows whose largest logit is the target's
 * $source */
static void $fn($params) {
    const int64_t n = $counted;
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);)
        for (int64_t i = 0; i < n; i++)
            if (target[i] != IGNORE) sums[SUM_HITS] += hits[i];
}

//@ hit(fn, params, source, real, rows, C)
/* $fn: 1 where the first of the largest logits is the target's
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
            const $real *row = logits + (size_t)i * C;
            int best = 0;
            for (int c = 1; c < C; c++) best = row[c] > row[best] ? c : best;
            y[i] = best == target[i];
        }
    }
}
