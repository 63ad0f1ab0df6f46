// cumsum: sums along rows, for a test.

//@ cumsum(fn, params, source, rows, columns, back, store)
/* $fn: sums along $rows rows of $columns
 * $source */
static void $fn($params) {
    for (ga_tiles t = ga_tiles_begin(w, $rows); ga_tile_next(&t);) {
        real sum = 0;
        for (int k = 0; k < $columns; k++) {
//% if back then
            const size_t i = t.index * (size_t)$columns + $columns - 1 - k;
//% else
            const size_t i = t.index * (size_t)$columns + k;
//% end
            sum += x[i];
            $store
        }
    }
}
