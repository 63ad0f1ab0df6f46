// update: what runs over the flat space at the boundary.

//@ gradient_partials(real, finite)
/* gradient_partials: per tile of the gradient the sum of squares and the count of elements that are
 * not finite; added up in tile order by decide(). */
static void gradient_partials(ga_worker *w, double *partials, const $real *gradients) {
    for (ga_tiles t = ga_tiles_begin(w, NORM_TILES); ga_tile_next(&t);) {
        const int64_t from = t.index * NORM_TILE;
        const int64_t to = from + NORM_TILE < TRAINED ? from + NORM_TILE : TRAINED;
        double lane[8] = {0}, bad = 0;
        for (int64_t i = from; i < to; i += 8) {      /* the flat space is padded to 16 elements */
            for (int j = 0; j < 8; j++) {
                const double g = gradients[i + j];
                lane[j] += g * g;
                bad += !$finite(gradients[i + j]);
            }
        }
        double sum = 0;
        for (int j = 0; j < 8; j++) sum += lane[j];
        partials[2 * t.index] = sum;
        partials[2 * t.index + 1] = bad;
    }
}

//@ sweep(fn, params, source, formula, loads, statements, stores)
/* $fn:
$formula
 * $source */
static void $fn($params) {
    enum { TILE = 4096 };
    for (ga_tiles t = ga_tiles_begin(worker, (to - from + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t first = from + t.index * TILE, end = first + TILE < to ? first + TILE : to;
        for (int64_t i = first; i < end; i++) {
            $loads
            $statements
            $stores
        }
    }
}
