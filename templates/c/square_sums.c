// square_sums: the inner loops of convolutions by squares (planes_squares.c).

//@ square_part()
/* Elements are parted so that squares beside and below each other are neighbours: with squares of `reads` elements, each
 * `step` elements from the one before, and size = (down + 1) * across, element (r, c) of what square s reads goes to
 *   apart[(r % step * reads + c) * size + r / step * across + s] */

//@ square_part_function(name, rows, columns, parted)
//% local step = rows
/* $columns squares beside each other at a time, of a row of `across`; `row`: elements from row to row. */
static inline __attribute__((always_inline)) void $name(real *apart, const real *from, int row, const int reads,
                                                        const int down, const int across) {
    typedef real part __attribute__((vector_size($step * $columns * sizeof(real))));
    const int size = (down + 1) * across;
    for (int r = 0; r < $step * (down - 1) + reads; r++, from += row) {
        real *to = apart + r % $step * reads * size + r / $step * across;
        for (int s = 0; s < across; s += $columns) {
            UNROLL for (int c = 0; c < reads; c += $step) {
                part x;
                memcpy(&x, from + $step * s + c, sizeof x);
                x = (part){$parted};
                UNROLL for (int v = 0; v < $step; v++)
                    if (c + v < reads)
                        memcpy(to + (c + v) * size + s, (real *)&x + v * $columns, $columns * sizeof *to);
            }
        }
    }
}

//@ square_sums(rows, vectors)
/* Sums of a few rows by columns in registers:
 *   c(r, j) = start + sum over k of a(r, k) b(k, j)      start: c(r, j) if `more`, else 0
 * c_row, a_row, a_term: elements from row to row and from term to term; rows of b follow each other. Rows and columns
 * are literals where it is called: the loops over them unroll. */
static inline __attribute__((always_inline)) void square_add(real *c, int c_row, const real *a, const int a_row,
                                                             const int a_term, const real *b, int depth, bool more,
                                                             const int rows, const int columns) {
    const int wide = columns / VEC_LANES;
    vec sum[$rows][$vectors];
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < wide; v++)
            sum[r][v] = more ? vec_load(c + r * c_row + v * VEC_LANES, VEC_LANES) : (vec){0};
    }
    UNROLL_FOUR for (int k = 0; k < depth; k++, a += a_term, b += columns) {
        UNROLL for (int r = 0; r < rows; r++) {
            const vec factor = vec_all(a[r * a_row]);
            UNROLL for (int v = 0; v < wide; v++)
                sum[r][v] = vec_fma(factor, vec_load(b + v * VEC_LANES, VEC_LANES), sum[r][v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < wide; v++) vec_store(c + r * c_row + v * VEC_LANES, sum[r][v], VEC_LANES);
    }
}

//@ square_sums_function(name, rows, columns)
/* Rows of a lie beside each other, its terms `step` elements apart. */
static __attribute__((noinline)) void $name(real *c, int c_row, const real *a, int step, const real *b, int depth,
                                            bool more) {
    square_add(c, c_row, a, 1, step, b, depth, more, $rows, $columns);
}

//@ square_rows_function(name, rows, columns)
/* Terms of a lie beside each other, its rows `step` elements apart. */
static __attribute__((noinline)) void $name(real *c, int c_row, const real *a, int step, const real *b, int depth,
                                            bool more) {
    square_add(c, c_row, a, step, 1, b, depth, more, $rows, $columns);
}
