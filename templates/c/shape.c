// shape: values moved from one tensor to another. A tensor that is cut along an axis is seen as rows: the axes before
// it count the rows, the axis and all behind it are one row.

//@ slice_dx(fn, params, source, rows, width, first, count, type, begin, behind, element, store)
/* $fn: each of $rows rows of $count at element $first of a row of $width, 0 elsewhere
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, WIDTH = $width, FIRST = $first, COUNT = $count, TILE = 1 + 4096 / WIDTH };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            const $type *from_dy = dy + (size_t)r * COUNT;
            for (int c = $begin; c < $behind; c++) {
                const bool inside = c >= FIRST && c < FIRST + COUNT;
                const real value = inside ? $element : 0;
                const size_t i = (size_t)r * WIDTH + c;
                $store
            }
        }
    }
}

//@ concat(fn, params, source, rows, first, second)
/* $fn: $rows rows: $first elements of a, then $second of b
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, FIRST = $first, SECOND = $second, WIDTH = FIRST + SECOND };
    enum { TILE = 1 + 4096 / WIDTH };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (int r = from; r < to; r++) {
            for (int c = 0; c < FIRST; c++) y[(size_t)r * WIDTH + c] = a[(size_t)r * FIRST + c];
            for (int c = 0; c < SECOND; c++)
                y[(size_t)r * WIDTH + FIRST + c] = b[(size_t)r * SECOND + c];
        }
    }
}
