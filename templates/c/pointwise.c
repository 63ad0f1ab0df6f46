// pointwise: formulas for each element by itself.

//@ map(fn, params, source, n, formula, loads, store)
/* $fn: $formula
 * $source */
static void $fn($params) {
    enum { N = $n, TILE = $(n > 65536 and 4096 or 1024) };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int i = from; i < to; i++) {
            $loads
            $store
        }
    }
}

//@ map_late(fn, params, source, n, formula, loads, row, store)
/* $fn: $formula
 * Results are rounded RUN at a time.
 * $source */
static void $fn($params) {
    enum { N = $n, TILE = $(n > 65536 and 4096 or 1024), RUN = 256 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int first = from; first < to; first += RUN) {
            const int n = first + RUN < to ? RUN : to - first;
            real row[RUN];
            INDEPENDENT for (int k = 0; k < n; k++) {
                $loads
                $store
            }
            narrow_row($row + first, row, n);
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
