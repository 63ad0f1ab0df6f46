// embedding: rows of a table looked up by ids, and the gradient of the table, row by row.

//@ embedding(fn, params, source, ids, C, value)
/* $fn: the rows of the table, $C elements each, for $ids ids
 * $source */
static void $fn($params) {
    enum { IDS = $ids, C = $C, TILE = 1 + 4096 / C };
    for (ga_tiles t = ga_tiles_begin(w, (IDS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < IDS ? from + TILE : IDS;
        for (int i = from; i < to; i++) {
            const real *row = weight + (size_t)ids[i] * C;
            for (int c = 0; c < C; c++) y[(size_t)i * C + c] = $value;
        }
    }
}

//@ id_order(fn, params, source, ids, rows)
/* $fn: the places of $ids ids, sorted by id and then by place; those of row r of the table begin at first[r]
 * $source */
static void $fn($params) {
    enum { IDS = $ids, ROWS = $rows };
    for (ga_tiles t = ga_tiles_begin(w, 1); ga_tile_next(&t);) {
        for (int r = 0; r <= ROWS; r++) first[r] = 0;
        for (int i = 0; i < IDS; i++) first[ids[i] + 1]++;
        for (int r = 0, total = 0; r < ROWS; r++) {
            const int count = first[r + 1];
            first[r + 1] = total; /* where row r begins: moves on with each place below */
            total += count;
        }
        for (int i = 0; i < IDS; i++) order[first[ids[i] + 1]++] = i;
    }
}

//@ embedding_dw(fn, params, source, rows, C, adds, padding, type, term, store)
/* $fn: for each of $rows rows of $C elements, the sum of dy over the places of its id, in their order
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, C = $C, TILE = 1 + 4096 / C, WIDTH = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int begin = (int)t.index * TILE, end = begin + TILE < ROWS ? begin + TILE : ROWS;
        for (int r = begin; r < end; r++) {
            const int from = first[r];
//% if padding then
            const int to = r == $padding ? from : first[r + 1]; /* padding: no gradient */
//% else
            const int to = first[r + 1];
//% end
//% if adds then
            if (add && from == to) continue;
//% end
            for (int c0 = 0; c0 < C; c0 += WIDTH) {
                const int width = c0 + WIDTH < C ? WIDTH : C - c0;
                real sum[WIDTH];
                for (int c = 0; c < width; c++) sum[c] = 0;
                for (int k = from; k < to; k++) {
                    const $type *place = dy + (size_t)order[k] * C + c0;
                    for (int c = 0; c < width; c++) sum[c] += $term;
                }
                for (int c = 0; c < width; c++) {
                    const size_t i = (size_t)r * C + c0 + c;
                    const real value = sum[c];
                    $store
                }
            }
        }
    }
}
