// attention_tiles: products of the tiles of attention.

//@ attention_tiles()
enum { TILE_ROWS = 4, TILE_COLUMNS = 2 * VEC_LANES };

static __attribute__((noinline)) void tile_rows(const strip *s) { strip_multiply(s, TILE_ROWS, TILE_COLUMNS); }

static __attribute__((noinline)) void tile_row(const strip *s) { strip_multiply(s, 1, TILE_COLUMNS); }

/* out(i, j) += sum over k < n of a(i, k) b(k, j), k upwards, for tall x wide elements. Rows of out, b and a are
 * `out_row`, `b_row` and `a_row` elements apart, columns of a `a_column`. Calls give a literal for `wide`. */
static inline __attribute__((always_inline)) void tile_product(
    real *restrict out, size_t out_row, const real *a, size_t a_row, size_t a_column, const real *b,
    size_t b_row, int tall, const int wide, int n) {
    const int whole = wide / TILE_COLUMNS * TILE_COLUMNS;
    for (int j = 0; j < whole; j += TILE_COLUMNS)
        for (int i = 0; i < tall;) {
            real *c = out + i * out_row + j;
            const strip s = {n, a + i * a_row, a_row, a_column, b + j, b_row, c, out_row, c, out_row};
            const bool full = i + TILE_ROWS <= tall;
            if (full) tile_rows(&s);
            else tile_row(&s);
            i += full ? TILE_ROWS : 1;
        }
    for (int i = 0; whole < wide && i < tall; i++)
        for (int k = 0; k < n; k++) {
            const real x = a[i * a_row + k * a_column];
            for (int j = whole; j < wide; j++) out[i * out_row + j] += x * b[k * b_row + j];
        }
}

/* across(c, j) = rows(j, c) of n rows of d elements, `stride` apart; columns n .. wide - 1 are 0. */
static inline void tile_across(real *across, int wide, const real *rows, int n, size_t stride, int d) {
    for (int j = 0; j < wide; j++)
        for (int c = 0; c < d; c++) across[c * wide + j] = j < n ? rows[j * stride + c] : 0;
}
