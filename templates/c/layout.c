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

//@ pack_in_out_turned(fn, params, source, N, K, half)
/* $fn: ($N, $K) transposed to ($K, $N)
 * $source */
static void $fn($params) {
//% if half then
    enum { N = $N, K = $K, TILE = 64, SIDE = 16 };
    _Alignas(64) real turned[SIDE * TILE];
//% else
    enum { N = $N, K = $K, TILE = 32, SIDE = 16 };
//% end
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int n = (int)t.index * TILE, rows = n + TILE < N ? TILE : N - n;
        for (int k = 0; k < K; k += SIDE) { /* so many elements share a line of the cache */
            const int columns = k + SIDE < K ? SIDE : K - k;
//% if half then
            turn_rows(turned, TILE, x + (size_t)n * K + k, K, rows, columns);
            for (int c = 0; c < columns; c++) narrow_row(y + (size_t)(k + c) * N + n, turned + c * TILE, rows);
//% else
            turn_rows(y + (size_t)k * N + n, N, x + (size_t)n * K + k, K, rows, columns);
//% end
        }
    }
}

//@ pack_panels(fn, params, source, N, K, depth, turned)
//% if turned then
/* $fn: ($N, $K) as panels of ($K, $N)
//% else
/* $fn: ($K, $N) as panels
//% end
 * A panel has up to DEPTH terms k of all columns, in blocks of 32 columns: rows of 32 pairs, (k, n) beside (k + 1, n).
 * Blocks are whole, with zeros behind the terms and the columns.
 * $source */
static void $fn($params) {
    enum { N = $N, K = $K, DEPTH = $depth, BLOCKS = (N + 31) / 32 };
    _Alignas(64) bf16 rounded[32 * DEPTH];
    for (ga_tiles t = ga_tiles_begin(w, (K + DEPTH - 1) / DEPTH * BLOCKS); ga_tile_next(&t);) {
        const int k = (int)t.index / BLOCKS * DEPTH, depth = at_most(K - k, DEPTH), deep = (depth + 31) / 32 * 32;
        const int n = (int)t.index % BLOCKS * 32, columns = at_most(N - n, 32);
        bf16 *block = y + (size_t)k * 32 * BLOCKS + (size_t)n * deep;
//% if turned then
        for (int r = 0; r < columns; r++) narrow_row(rounded + r * depth, x + (size_t)(n + r) * K + k, depth);
        matrix_pack_columns(block, deep, columns, depth, rounded, depth);
//% else
        for (int r = 0; r < depth; r++) narrow_row(rounded + 32 * r, x + (size_t)(k + r) * N + n, columns);
        matrix_pack_rows(block, deep, columns, depth, rounded, 32);
//% end
    }
}

//@ pack_both_panels(fn, params, source, N, K, depth, turned_depth, past, fence)
/* $fn: ($N, $K) as panels, and as those of ($K, $N)
 * A panel of y has up to DEPTH rows, one of turned up to TURNED_DEPTH columns, as terms of all columns of a product: in
 * blocks of 32 columns, rows of 32 pairs of terms. Blocks are whole, with zeros behind the rows and the columns.
 * $source */
static void $fn($params) {
    enum { N = $N, K = $K, DEPTH = $depth, TURNED_DEPTH = $turned_depth };
    enum { ACROSS = (K + 31) / 32 * 32, DOWN = (N + 31) / 32 * 32 }; /* columns of products: all of a panel's blocks */
    for (ga_tiles t = ga_tiles_begin(w, DOWN / 32); ga_tile_next(&t);) {
        const int n = (int)t.index * 32, rows = at_most(N - n, 32), panel = n / DEPTH * DEPTH;
        const int deep = (at_most(N - panel, DEPTH) + 31) / 32 * 32;
        for (int k = 0; k < K; k += 32) {
            const int turned_panel = k / TURNED_DEPTH * TURNED_DEPTH;
            const int turned_deep = (at_most(K - turned_panel, TURNED_DEPTH) + 31) / 32 * 32;
            bf16 *to = y + (size_t)panel * ACROSS + (size_t)k * deep + (n - panel) * 32;
            bf16 *turned_to = turned + (size_t)turned_panel * DOWN + (size_t)n * turned_deep + (k - turned_panel) * 32;
            _Alignas(64) bf16 block[32 * 32];
            round_block(block, x + (size_t)n * K + k, K, rows, at_most(K - k, 32));
            put_pairs(to, block, $past);
            put_turned_pairs(turned_to, block, $past);
        }
//% if fence then
        _mm_sfence(); /* what went past the caches is there before the barrier */
//% end
    }
}
