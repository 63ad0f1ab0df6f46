// softmax: over the last axis, with its logarithm, and the gradients of both from the result s.

//@ softmax(fn, params, source, rows, C, exp)
/* $fn: softmax of each of $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const real *row = x + (size_t)r * C;
            real *out = y + (size_t)r * C;
            const real largest = row_greatest(row, C, -INFINITY);
            for (int c = 0; c < C; c++) out[c] = $exp(row[c] - largest);
            const real sum = row_sum(out, C);
            for (int c = 0; c < C; c++) out[c] /= sum;
        }
    }
}

//@ softmax_dx(fn, params, source, rows, C, store)
/* $fn: s (dy - sum of dy s), for each of $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const size_t first = (size_t)r * C;
            const real sum = row_dot(dy + first, s + first, C);
            for (size_t i = first; i < first + C; i++) {
                const real value = s[i] * (dy[i] - sum);
                $store
            }
        }
    }
}

//@ log_softmax(fn, params, source, rows, C, exp, log)
/* $fn: log softmax of each of $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const real *row = x + (size_t)r * C;
            const real largest = row_greatest(row, C, -INFINITY), log_sum = $log(row_exp_sum(row, largest, C));
            for (int c = 0; c < C; c++) y[(size_t)r * C + c] = row[c] - largest - log_sum;
        }
    }
}

//@ log_softmax_dx(fn, params, source, rows, C, exp, store)
/* $fn: dy - e^s (sum of dy), for each of $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 8 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const size_t first = (size_t)r * C;
            const real sum = row_sum(dy + first, C);
            for (size_t i = first; i < first + C; i++) {
                const real value = dy[i] - $exp(s[i]) * sum;
                $store
            }
        }
    }
}
