// planes_squares: squares of 2 x 2 results of a convolution with 3 x 3 taps, by Winograd's minimal filtering
// F(2 x 2, 3 x 3): Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
//
//   results = A^T ((G g G^T) . (B^T d B)) A        g: 3 x 3 taps; d: the 4 x 4 elements that a square reads
//
// The product in the middle is one of elements: 16 factors in place of 36. All of these are sums over channels, so each
// of the 16 is a product of matrices. Lanes of vectors have squares.

//@ planes_squares()
/* B^T d of one axis. */
static inline __attribute__((always_inline)) void square_read(vec to[4], vec a, vec b, vec c, vec d) {
    to[0] = a - c;
    to[1] = b + c;
    to[2] = c - b;
    to[3] = b - d;
}

/* G g of one axis. */
static inline __attribute__((always_inline)) void square_taps(vec to[4], vec a, vec b, vec c) {
    const vec half = vec_all((real)0.5), outer = half * (a + c), inner = half * b;
    to[0] = a;
    to[1] = outer + inner;
    to[2] = outer - inner;
    to[3] = c;
}

/* A^T m of one axis. */
static inline __attribute__((always_inline)) void square_results(vec to[2], vec a, vec b, vec c, vec d) {
    to[0] = a + b + c;
    to[1] = b - c - d;
}

/* What squares read, below and beside each other: element (r, c) of square s in places(r, c) + s. Rows of elements with
 * even numbers and with odd ones lie apart, so that squares below each other are neighbours too.
 *   from, row, columns     the elements, and how far their rows are apart
 *   down, across           squares below and beside each other */
static inline __attribute__((always_inline)) void square_part(real *apart, const real *from, int row, const int down,
                                                              const int across) {
    const int size = (down + 1) * across;
    for (int r = 0; r < 2 * down + 2; r++, from += row) {
        real *to = apart + r % 2 * 4 * size + r / 2 * across;
        INDEPENDENT for (int s = 0; s < across; s++) {
            to[s] = from[2 * s];
            to[size + s] = from[2 * s + 1];
            to[2 * size + s] = from[2 * s + 2];
            to[3 * size + s] = from[2 * s + 3];
        }
    }
}

/* B^T d B of VEC_LANES squares: element (r, c) is at from + r / 2 * below + r % 2 * odd + c * beside. The 16 factors go
 * to `to`, `apart` elements from each other. */
static inline __attribute__((always_inline)) void square_factors(real *to, size_t apart, const real *from, int below,
                                                                 int odd, int beside) {
    vec columns[4][4];
    UNROLL for (int c = 0; c < 4; c++) {
        const real *at = from + c * beside;
        square_read(columns[c], vec_load(at, VEC_LANES), vec_load(at + odd, VEC_LANES),
                    vec_load(at + below, VEC_LANES), vec_load(at + below + odd, VEC_LANES));
    }
    UNROLL for (int r = 0; r < 4; r++) {
        vec row[4];
        square_read(row, columns[0][r], columns[1][r], columns[2][r], columns[3][r]);
        UNROLL for (int c = 0; c < 4; c++) vec_store(to + (4 * r + c) * apart, row[c], VEC_LANES);
    }
}

/* G g G^T of VEC_LANES outputs: taps lie `step` elements apart, backwards if that is below 0. */
static inline __attribute__((always_inline)) void square_weights(real *to, size_t apart, const real *from, int step) {
    vec columns[3][4];
    UNROLL for (int c = 0; c < 3; c++) {
        const real *at = from + c * step;
        square_taps(columns[c], vec_load(at, VEC_LANES), vec_load(at + 3 * step, VEC_LANES),
                    vec_load(at + 6 * step, VEC_LANES));
    }
    UNROLL for (int r = 0; r < 4; r++) {
        vec row[4];
        square_taps(row, columns[0][r], columns[1][r], columns[2][r]);
        UNROLL for (int c = 0; c < 4; c++) vec_store(to + (4 * r + c) * apart, row[c], VEC_LANES);
    }
}

/* A^T m A of VEC_LANES squares, whose 16 sums lie `apart` elements from each other. */
static inline __attribute__((always_inline)) void square_finish(vec to[2][2], const real *from, size_t apart) {
    vec columns[4][2];
    UNROLL for (int c = 0; c < 4; c++) {
        const real *at = from + c * apart;
        square_results(columns[c], vec_load(at, VEC_LANES), vec_load(at + 4 * apart, VEC_LANES),
                       vec_load(at + 8 * apart, VEC_LANES), vec_load(at + 12 * apart, VEC_LANES));
    }
    UNROLL for (int r = 0; r < 2; r++)
        square_results(to[r], columns[0][r], columns[1][r], columns[2][r], columns[3][r]);
}

/* A dy A^T for VEC_LANES outputs: the results of a square lie in two rows, `row` elements apart. */
static inline __attribute__((always_inline)) void square_spread(real *to, size_t apart, const real *from, int row) {
    vec rows[2][4];
    UNROLL for (int r = 0; r < 2; r++) {
        const vec a = vec_load(from + r * row, VEC_LANES), b = vec_load(from + r * row + VEC_LANES, VEC_LANES);
        rows[r][0] = a;
        rows[r][1] = a + b;
        rows[r][2] = a - b;
        rows[r][3] = -b;
    }
    UNROLL for (int c = 0; c < 4; c++) {
        vec_store(to + c * apart, rows[0][c], VEC_LANES);
        vec_store(to + (4 + c) * apart, rows[0][c] + rows[1][c], VEC_LANES);
        vec_store(to + (8 + c) * apart, rows[0][c] - rows[1][c], VEC_LANES);
        vec_store(to + (12 + c) * apart, -rows[1][c], VEC_LANES);
    }
}

/* G^T s of one axis. */
static inline __attribute__((always_inline)) void square_gradients(vec to[3], vec a, vec b, vec c, vec d) {
    const vec half = vec_all((real)0.5), outer = half * (b + c);
    to[0] = a + outer;
    to[1] = half * (b - c);
    to[2] = outer + d;
}

/* G^T s G for at most VEC_LANES outputs, of 16 sums `apart` elements from each other: the gradients of 9 taps, `row`
 * elements from each other. */
static inline __attribute__((always_inline)) void square_sum_taps(real *to, size_t row, const real *from, size_t apart,
                                                                  int outputs) {
    vec columns[4][3];
    UNROLL for (int c = 0; c < 4; c++) {
        const real *at = from + c * apart;
        square_gradients(columns[c], vec_load(at, VEC_LANES), vec_load(at + 4 * apart, VEC_LANES),
                         vec_load(at + 8 * apart, VEC_LANES), vec_load(at + 12 * apart, VEC_LANES));
    }
    UNROLL for (int r = 0; r < 3; r++) {
        vec taps[3];
        square_gradients(taps, columns[0][r], columns[1][r], columns[2][r], columns[3][r]);
        UNROLL for (int c = 0; c < 3; c++) {
            if (outputs >= VEC_LANES) vec_store(to + (3 * r + c) * row, taps[c], VEC_LANES);
            else memcpy(to + (3 * r + c) * row, &taps[c], (size_t)outputs * sizeof *to);
        }
    }
}
