// reduce: sums and greatest values over the middle axis of (outer, n, inner), sums upwards; copies.

//@ axis_sum(fn, params, source, type, term, next, outer, n, inner, width, value, store)
/* $fn: the sum over the middle axis of ($outer, $n, $inner)
 * $source */
static void $fn($params) {
    enum { OUTER = $outer, N = $n, INNER = $inner, WIDTH = $width, ACROSS = (INNER + WIDTH - 1) / WIDTH };
    enum { RUN = 4, AHEAD = 16 }; /* rows that a sum in a register takes; rows asked for */
    for (ga_tiles t = ga_tiles_begin(w, OUTER * ACROSS); ga_tile_next(&t);) {
        const int o = (int)(t.index / ACROSS), i0 = (int)(t.index % ACROSS) * WIDTH;
        const int width = i0 + WIDTH < INNER ? WIDTH : INNER - i0;
        real sum[WIDTH];
        for (int k = 0; k < width; k++) sum[k] = 0;
        int j = 0;
        for (; j + RUN <= N; j += RUN) {
            const $type *row = x + ((size_t)o * N + j) * INNER + i0;
            if (j + AHEAD + RUN <= N)
                for (int r = AHEAD; r < AHEAD + RUN; r++)
                    fetch_row(row + r * INNER, sizeof *row * WIDTH);
            for (int k = 0; k < width; k++) {
                UNROLL for (int r = 0; r < RUN; r++) sum[k] += $next;
            }
        }
        for (; j < N; j++) {
            const $type *row = x + ((size_t)o * N + j) * INNER + i0;
            for (int k = 0; k < width; k++) sum[k] += $term;
        }
        for (int k = 0; k < width; k++) {
            const size_t i = (size_t)o * INNER + i0 + k;
            const real value = sum[k]$value;
            $store
        }
    }
}

//@ row_sum(fn, params, source, type, term, outer, n, value, store)
/* $fn: the sum of each of $outer rows of $n
 * $source */
static void $fn($params) {
    enum { ROWS = $outer, N = $n, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int i = from; i < to; i++) {
            const $type *row = x + (size_t)i * N;
            real sum = 0;
            for (int j = 0; j < N; j++) sum += $term;
            const real value = sum$value;
            $store
        }
    }
}

//@ axis_max(fn, params, source, outer, n, inner)
/* $fn: the greatest value over the middle axis of ($outer, $n, $inner), and the place of the first such
 * $source */
static void $fn($params) {
    enum { OUTER = $outer, N = $n, INNER = $inner, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (OUTER * INNER + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE;
        const int to = from + TILE < OUTER * INNER ? from + TILE : OUTER * INNER;
        for (int i = from; i < to; i++) {
            const real *row = x + (size_t)(i / INNER) * N * INNER + i % INNER;
            real best = row[0];
            int at = 0;
            for (int j = 1; j < N; j++) {
                const real value = row[(size_t)j * INNER];
                const bool better = !(value <= best) && best == best; /* the first NaN stays */
                best = better ? value : best;
                at = better ? j : at;
            }
            y[i] = best;
            place[i] = at;
        }
    }
}

//@ axis_max_dx(fn, params, source, outer, n, inner, store)
/* $fn: dy where the greatest value over the middle axis of ($outer, $n, $inner) was, else 0
 * $source */
static void $fn($params) {
    enum { OUTER = $outer, N = $n, INNER = $inner, TILE = 1 + 1024 / INNER };
    for (ga_tiles t = ga_tiles_begin(w, (OUTER * N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < OUTER * N ? from + TILE : OUTER * N;
        for (int r = from; r < to; r++) {
            for (int k = 0; k < INNER; k++) {
                const size_t at = (size_t)(r / N) * INNER + k, i = (size_t)r * INNER + k;
                const real value = place[at] == r % N ? dy[at] : 0;
                $store
            }
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
