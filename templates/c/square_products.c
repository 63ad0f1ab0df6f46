// square_products: weights and results of convolutions by squares (planes_squares.c).

//@ square_products()
/* G g of one axis. */
static inline __attribute__((always_inline)) void square_taps(vec to[4], vec a, vec b, vec c) {
    const vec half = vec_all((real)0.5), outer = half * (a + c), inner = half * b;
    to[0] = a;
    to[1] = outer + inner;
    to[2] = outer - inner;
    to[3] = c;
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

/* A^T m of one axis. */
static inline __attribute__((always_inline)) void square_results(vec to[2], vec a, vec b, vec c, vec d) {
    to[0] = a + b + c;
    to[1] = b - c - d;
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
