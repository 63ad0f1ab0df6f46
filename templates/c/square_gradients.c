// square_gradients: gradients of weights of convolutions by squares (planes_squares.c). With the results' gradients dy:
//
//   gradients of 3 x 3 taps = G^T (sum over squares of (B^T d B) . (A dy A^T)) G

//@ square_gradients()
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
