// update: what runs over the flat space at the boundary.

//@ gradient_partials(params, says, name, term, largest, read)
/* gradient_partials: per tile of the gradient $says and the count of elements that are
 * not finite; added up in tile order by decide(). */
static void gradient_partials($params) {
    enum { LANES = 32 };
    for (ga_tiles t = ga_tiles_begin(worker, (to - from + NORM_TILE - 1) / NORM_TILE); ga_tile_next(&t);) {
        const int64_t first = from + t.index * NORM_TILE, end = first + NORM_TILE < to ? first + NORM_TILE : to;
        double $(name)[LANES] = {0}, bad[LANES] = {0}; /* element i goes to lane i % LANES */
        for (int64_t i = first; i < end; i += LANES) {
            const int n = end - i < LANES ? (int)(end - i) : LANES;
            for (int j = 0; j < n; j++) {
                $read
//% if largest then
                $(name)[j] = fmax($(name)[j], $term);
//% else
                $(name)[j] += $term;
//% end
            }
        }
//% if largest then
        for (int j = 1; j < LANES; j++) $(name)[0] = fmax($(name)[0], $(name)[j]), bad[0] += bad[j];
//% else
        for (int j = 1; j < LANES; j++) $(name)[0] += $(name)[j], bad[0] += bad[j];
//% end
        partials[2 * t.index] = $(name)[0];
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

//@ exchange(tile)
/* exchange: trained parameters and their averages change places. */
static void exchange(ga_worker *w, real *a, real *b) {
    enum { TILE = $tile };
    for (ga_tiles t = ga_tiles_begin(w, (TRAINED + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int64_t from = t.index * TILE, to = from + TILE < TRAINED ? from + TILE : TRAINED;
        for (int64_t i = from; i < to; i++) {
            const real x = a[i];
            a[i] = b[i];
            b[i] = x;
        }
    }
}
