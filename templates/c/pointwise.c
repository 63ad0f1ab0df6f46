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
