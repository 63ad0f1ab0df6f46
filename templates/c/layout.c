// layout: copies of weights in the order that products read, made once per update.

//@ pack_in_out(fn, params, source, N, K, value)
/* $fn: ($N, $K) transposed to ($K, $N)
 * $source */
static void $fn($params) {
    enum { N = $N, K = $K, TILE = 32, SIDE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int n0 = (int)t.index * TILE, n1 = n0 + TILE < N ? n0 + TILE : N;
        for (int k0 = 0; k0 < K; k0 += SIDE) { /* so many elements share a line of the cache */
            const int k1 = k0 + SIDE < K ? k0 + SIDE : K;
            for (int k = k0; k < k1; k++)
                for (int n = n0; n < n1; n++) y[(size_t)k * N + n] = $value;
        }
    }
}

//@ pack_in_out_turned(fn, params, source, N, K)
/* $fn: ($N, $K) transposed to ($K, $N)
 * $source */
static void $fn($params) {
    enum { N = $N, K = $K, TILE = 32, SIDE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int n = (int)t.index * TILE, rows = n + TILE < N ? TILE : N - n;
        for (int k = 0; k < K; k += SIDE) { /* so many elements share a line of the cache */
            const int columns = k + SIDE < K ? SIDE : K - k;
            turn_rows(y + (size_t)k * N + n, N, x + (size_t)n * K + k, K, rows, columns);
        }
    }
}
