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
