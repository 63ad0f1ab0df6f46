// accumulate: sums over the micro-steps of a cycle, with the rounding errors kept apart, or in 16 bits.

//@ accumulate(fn, params, source, n)
/* $fn: y += x; residue += the error of that addition; the last micro-step adds the residue to y
 * $source */
static void $fn($params) {
    enum { N = $n, TILE = 4096 };
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t from = t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int64_t i = from; i < to; i++) {
            const real before = add ? y[i] : 0, sum = before + x[i];
            const real added = sum - before; /* x but for rounding; before is sum - added but for rounding */
            const real lost = (before - (sum - added)) + (x[i] - added);
            residue[i] = add ? residue[i] + lost : 0;
            y[i] = last ? sum + residue[i] : sum;
        }
    }
}

//@ accumulate_half(fn, params, source, n, draws, name)
//% if draws then
/* $fn: y += x, rounded to one of the two neighbours of 16 bits by a draw, more often to the nearer one
 * $source */
//% else
/* $fn: y += x, rounded to 16 bits
 * $source */
//% end
static void $fn($params) {
    enum { N = $n, TILE = 4096 };
//% if draws then
    const uint64_t key = ga_draw_key(micro->seed, ga_rng_stream($name), (uint64_t)iteration,
                                     (uint64_t)micro->cycle, (uint64_t)micro->row);
//% end
    for (ga_tiles t = ga_tiles_begin(w, (N + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t from = t.index * TILE, to = from + TILE < N ? from + TILE : N;
        for (int64_t i = from; i < to; i++) {
            const float sum = add ? bf16_widen(y[i]) + x[i] : x[i];
//% if draws then
            y[i] = bf16_narrow_between(sum, (uint32_t)(ga_rng_at(key, (uint64_t)i) >> 48));
//% else
            y[i] = bf16_narrow(sum);
//% end
        }
    }
}

//@ settle(tile)
/* settle: adds the residue to the gradient, if the cycle ended without a last micro-step. */
static void settle(ga_worker *w, real *y, real *residue) {
    enum { TILE = $tile };
    for (ga_tiles t = ga_tiles_begin(w, (TRAINED + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t from = t.index * TILE, to = from + TILE < TRAINED ? from + TILE : TRAINED;
        for (int64_t i = from; i < to; i++) y[i] += residue[i];
    }
    ga_barrier(w);
}
