// update: what runs over the flat space at the boundary.

//@ gradient_partials(real, finite)
/* gradient_partials: per tile of the gradient the sum of squares and the count of elements that are
 * not finite; added up in tile order by decide(). */
static void gradient_partials(ga_worker *w, double *partials, const $real *gradients) {
    enum { LANES = 32 };
    for (ga_tiles t = ga_tiles_begin(w, NORM_TILES); ga_tile_next(&t);) {
        const int64_t from = t.index * NORM_TILE;
        const int64_t to = from + NORM_TILE < TRAINED ? from + NORM_TILE : TRAINED;
        double squares[LANES] = {0}, bad[LANES] = {0}; /* element i goes to lane i % LANES */
        for (int64_t i = from; i < to; i += LANES) {
            const int n = to - i < LANES ? (int)(to - i) : LANES;
            for (int j = 0; j < n; j++) {
                const double g = gradients[i + j];
                squares[j] += g * g;
                bad[j] += $finite(gradients[i + j]) ? 0 : 1;
            }
        }
        for (int j = 1; j < LANES; j++) squares[0] += squares[j], bad[0] += bad[j];
        partials[2 * t.index] = squares[0];
        partials[2 * t.index + 1] = bad[0];
    }
}

//@ sums(fn, params, source, formula, loads, statements, stores, names, adds, totals, tile)
/* $fn: of one tensor, by tiles:
$formula
 * $source */
static void $fn($params) {
    enum { TILE = $tile };
    for (ga_tiles t = ga_tiles_begin(worker, (to - from + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = from + t.index * TILE, end = first + TILE < to ? first + TILE : to;
        double $names;
        for (int64_t i = first; i < end; i++) {
            $loads
            $statements
            $stores
            $adds
        }
//% for i, name in ipairs(totals) do
        sums[$(#totals) * t.index + $(i - 1)] = $name;
//% end
    }
}

//@ scales(fn, params, source, formula, names, totals, scales)
/* $fn: of one tensor, from the sums of its tiles:
$formula
 * $source */
static void $fn($params) {
    if (worker->index != 0) return;
    double $names;
    for (int64_t i = 0; i < tiles; i++) {
//% for i, name in ipairs(totals) do
        $name += sums[$(#totals) * i + $(i - 1)];
//% end
    }
    $scales
}

//@ sweep(fn, params, source, formula, loads, statements, stores, once, tile)
/* $fn:
$formula
 * $source */
static void $fn($params) {
    enum { TILE = $tile };
    $once
    for (ga_tiles t = ga_tiles_begin(worker, (to - from + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = from + t.index * TILE, end = first + TILE < to ? first + TILE : to;
        for (int64_t i = first; i < end; i++) {
            $loads
            $statements
            $stores
        }
    }
}
