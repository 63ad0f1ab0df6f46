// pointwise: formulas for each element by itself.

//@ map(fn, params, source, n, formula, loads, store)
/* $fn: $formula
 * $source */
static void $fn($params) {
    enum { N = $n, TILE = N > 65536 ? 4096 : 1024 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int i = from; i < to; i++) {
            $loads
            $store
        }
    }
}

//@ map_rows(fn, params, source, n, width, formula, loads, store)
/* $fn: $formula
 * Some of its rows are parts of wider ones.
 * $source */
static void $fn($params) {
    enum { N = $n, WIDTH = $width, ROWS = N / WIDTH, TILE = 1 + (N > 65536 ? 4096 : 1024) / WIDTH };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            for (int j = 0; j < WIDTH; j++) {
                $loads
                $store
            }
        }
    }
}
