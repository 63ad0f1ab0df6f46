// attention_tiles: products of the tiles of attention, and their rows.

//@ attention_tiles()
enum { TILE_ROWS = STRIP_ROWS, TILE_FEW = 4, TILE_COLUMNS = 2 * VEC_LANES };

static __attribute__((noinline)) void tile_rows(strip s) { strip_sums(&s, TILE_ROWS, TILE_COLUMNS, NULL, NULL, NULL); }

static __attribute__((noinline)) void tile_few(strip s) { strip_sums(&s, TILE_FEW, TILE_COLUMNS, NULL, NULL, NULL); }

static __attribute__((noinline)) void tile_row(strip s) { strip_sums(&s, 1, TILE_COLUMNS, NULL, NULL, NULL); }

/* Query i of a tile sees the tile's keys 0 .. i + shift. A product then needs everything, the columns that row i sees,
 * the terms that row i sees, or the terms that see column i. */
typedef enum tile_edge { EDGE_NONE, EDGE_COLUMNS, EDGE_TERMS, EDGE_LATER } tile_edge;

/* out(i, j) = sum over k < n of a(i, k) b(k, j), k upwards, for tall x wide elements, added if `more`. Rows of out, a
 * and b are `out_row`, `a_row` and `b_row` elements apart, columns of a `a_column`. `wide` is a multiple of
 * TILE_COLUMNS. With an edge, columns that no query of a strip sees are not written, but for whole ROW_LANES (tile_hide),
 * and terms are left out that are 0 in all of its rows. */
static inline __attribute__((always_inline)) void tile_product(
    real *restrict out, size_t out_row, bool more, const real *a, size_t a_row, size_t a_column, const real *b,
    size_t b_row, int tall, int wide, int n, const tile_edge edge, int shift) {
    for (int i = 0, rows; i < tall; i += rows) {
        rows = i + TILE_ROWS <= tall ? TILE_ROWS : i + TILE_FEW <= tall ? TILE_FEW : 1;
        const int seen = i + rows + shift, whole = (seen + ROW_LANES - 1) / ROW_LANES * ROW_LANES;
        const int first = edge == EDGE_LATER && i > shift ? i - shift : 0;
        const int end = edge == EDGE_COLUMNS && whole < wide ? whole : wide;
        const int depth = (edge == EDGE_TERMS && seen < n ? seen : n) - first;
        for (int j = 0; j < end; j += TILE_COLUMNS) {
            real *c = out + i * out_row + j;
            const strip s = {depth, a + i * a_row + first * a_column, a_row, a_column, b + first * b_row + j, b_row,
                             more ? c : NULL, out_row, c, out_row};
            if (rows == TILE_ROWS) tile_rows(s);
            else if (rows == TILE_FEW) tile_few(s);
            else tile_row(s);
        }
    }
}

/* n rows of d elements as rows of a tile, with zeros behind them up to `wide`, whole vectors. */
static inline __attribute__((always_inline)) void tile_load(real *to, const int wide, const real *from, size_t stride,
                                                            int n, const int d) {
    const int whole = d / VEC_LANES * VEC_LANES;
    for (int i = 0; i < n; i++, to += wide, from += stride) {
        UNROLL for (int c = 0; c < whole; c += VEC_LANES) vec_store(to + c, vec_load(from + c, VEC_LANES), VEC_LANES);
        if (whole < d) vec_store(to + whole, vec_load(from + whole, d - whole), VEC_LANES);
        for (int c = (d + VEC_LANES - 1) / VEC_LANES * VEC_LANES; c < wide; c++) to[c] = 0;
    }
}

/* n rows of d elements of a tile. */
static inline void tile_store(real *to, size_t stride, const real *from, int wide, int n, int d) {
    for (int i = 0; i < n; i++, to += stride, from += wide)
        for (int c = 0; c < d; c++) to[c] = from[c];
}
