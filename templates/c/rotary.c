// rotary: positions as turns of pairs of elements of queries and keys.

//@ rotary(fn, params, source, shape, base, sign, place, load, store)
//% if shape.heads > 1 then
/* $fn: pairs (i, i + $(shape.d) / 2) of each of $(shape.heads) heads,
//% else
/* $fn: pairs (i, i + $(shape.d) / 2) of a head,
//% end
 * turned by the angle $(sign)t $base^(-2i / $(shape.d)) at position t
 * Angles are computed in double, once for a tile of positions.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), D = $(shape.d), HALF = D / 2, TILE = 16 };
    enum { ROW = $(shape.row) };
    for (ga_tiles t = ga_tiles_begin(w, (T + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < T ? from + TILE : T;
        real cosine[TILE][HALF], sine[TILE][HALF];
        for (int c = 0; c < HALF; c++) {
            const double step = $(sign)pow($base, -2.0 * c / D);
            for (int p = from; p < to; p++) {
                cosine[p - from][c] = (real)cos($place * step);
                sine[p - from][c] = (real)sin($place * step);
            }
        }
        for (int i = 0; i < B * (to - from) * HEADS; i++) {
            const int p = i / HEADS % (to - from);
            const size_t at = ((size_t)(i / HEADS / (to - from)) * T + from + p) * ROW + i % HEADS * D;
            for (int c = 0; c < HALF; c++) {
                const real low = $(load.low) * cosine[p][c] - $(load.high) * sine[p][c];
                const real high = $(load.high) * cosine[p][c] + $(load.low) * sine[p][c];
                $(store.low)
                $(store.high)
            }
        }
//% if store.rest then
        for (int i = 0; i < B * (to - from); i++) { /* what stands behind the heads is copied */
            const size_t row = ((size_t)(i / (to - from)) * T + from + i % (to - from)) * ROW;
            for (size_t at = row + HEADS * D; at < row + ROW; at++) {
                const real value = $(load.rest);
                $(store.rest)
            }
        }
//% end
    }
}
