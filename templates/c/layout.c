// layout: packed views of weights, made once per update.

//@ pack_in_out(fn, params, source, N, K)
/* $fn: ($N, $K) transposed to ($K, $N)
 * $source */
static void $fn($params) {
    enum { N = $N, K = $K, TILE = 32 };
    for (ga_tiles t = ga_tiles_begin(w, (K + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < K ? from + TILE : K;
        for (int k = from; k < to; k++)
            for (int n = 0; n < N; n++) y[(size_t)k * N + n] = x[(size_t)n * K + k];
    }
}
