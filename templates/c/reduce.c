// reduce: sums over rows in row order, means over the last axis, copies.

//@ column_sum(fn, params, source, real, rows, N, init)
/* $fn: the sum of $rows rows of $N
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, N = $N, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int j0 = (int)t.index * TILE, n = j0 + TILE < N ? TILE : N - j0;
        $real sum[TILE];
        for (int j = 0; j < n; j++) sum[j] = $init;
        for (int i = 0; i < ROWS; i++) {
            const $real *row = x + (size_t)i * N + j0;
            for (int j = 0; j < n; j++) sum[j] += row[j];
        }
        for (int j = 0; j < n; j++) y[j0 + j] = sum[j];
    }
}

//@ mean(fn, params, source, real, rows, C, factor, store)
/* $fn: the mean of each of $rows rows of $C
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
            const $real *row = x + (size_t)i * C;
            $real sum = 0;
            for (int c = 0; c < C; c++) sum += row[c];
            const $real value = sum * $factor;
            $store
        }
    }
}

//@ mean_dx(fn, params, source, real, rows, C, factor, store)
/* $fn: the gradient of a mean of $C, spread over its row
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const $real value = dy[r] * $factor;
            for (size_t i = (size_t)r * C; i < (size_t)(r + 1) * C; i++) $store
        }
    }
}

//@ copy(fn, params, source, n, store)
/* $fn: a copy of $n elements
 * $source */
static void $fn($params) {
    enum { N = $n, TILE = 4096 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int i = from; i < to; i++) $store
    }
}
