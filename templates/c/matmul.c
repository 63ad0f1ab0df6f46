// matmul: C(i, j) = sum over k of A(i, k) B(k, j), tiled over rows and columns of C.
// A tile is computed by one worker from start to end; the sum over k runs upwards.

//@ linear(fn, params, source, real, M, N, K, a_at, b_at, column, init)
/* $fn: ($M, $N) = ($M, $K) x ($K, $N)
 * $source */
static void $fn($params) {
    enum { M = $M, N = $N, K = $K, ROWS = 32, COLUMNS = 32 };
    enum { ACROSS = (N + COLUMNS - 1) / COLUMNS, DOWN = (M + ROWS - 1) / ROWS };
    for (ga_tiles t = ga_tiles_begin(w, ACROSS * DOWN); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / ACROSS) * ROWS, j0 = (int)(t.index % ACROSS) * COLUMNS;
        const int i1 = i0 + ROWS < M ? i0 + ROWS : M;
        const int n = j0 + COLUMNS < N ? COLUMNS : N - j0;
        for (int i = i0; i < i1; i++) {
            $real sum[COLUMNS];
            for (int j = 0; j < n; j++) sum[j] = $init;
            for (int k = 0; k < K; k++) {
                const $real x = a[$a_at];
                const $real *row = b + $b_at;
                for (int j = 0; j < n; j++) sum[j] += x * row[$column];
            }
            for (int j = 0; j < n; j++) c[(size_t)i * N + j0 + j] = sum[j];
        }
    }
}
