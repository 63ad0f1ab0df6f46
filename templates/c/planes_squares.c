// planes_squares: squares of 2 x 2 or 4 x 4 results of a convolution with 3 x 3 taps, by Winograd's minimal filtering
// F(2 x 2, 3 x 3) and F(4 x 4, 3 x 3): Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015.
//
//   results = A^T ((G g G^T) . (B^T d B)) A        g: 3 x 3 taps; d: the 4 x 4 or 6 x 6 elements that a square reads
//
// The product in the middle is one of elements: 16 factors in place of 36, or 36 in place of 144. All of these are sums
// over channels, so each of them is a product of matrices. Lanes of vectors have squares.
//
// The points between which A, B and G interpolate are 0, 1, -1 and infinity, or 0, p, -p, q, -q and infinity with
// p = 3/4 and q = 3/2: A and B are exact, and errors less than half of those with the usual points 1 and 2.

//@ planes_squares(side)
//% local n = side + 2
/* B^T d of one axis. */
static inline __attribute__((always_inline)) void square_read_$(side)(vec to[$n], const vec d[$n]) {
//% if side == 2 then
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
//% else
    const vec p = vec_all((real)0.75), q = vec_all((real)1.5), pp = p * p, qq = q * q;
    const vec even_p = vec_fma(-qq, d[2], d[4]), odd_p = vec_fma(-qq, d[1], d[3]);
    const vec even_q = vec_fma(-pp, d[2], d[4]), odd_q = vec_fma(-pp, d[1], d[3]);
    to[0] = vec_fma(pp * qq, d[0], vec_fma(-(pp + qq), d[2], d[4]));
    to[1] = vec_fma(p, odd_p, even_p);
    to[2] = vec_fma(-p, odd_p, even_p);
    to[3] = vec_fma(q, odd_q, even_q);
    to[4] = vec_fma(-q, odd_q, even_q);
    to[5] = vec_fma(pp * qq, d[1], vec_fma(-(pp + qq), d[3], d[5]));
//% end
}

/* B^T d B of VEC_LANES squares: element (r, c) is at from + r / $side * below + r % $side * next + c * beside. The
 * $(n * n) factors go to `to`, `apart` elements from each other. */
$(planes_squares_call { side = side })
square_factors_$(side)(real *to, size_t apart, const real *from, int below, int next, int beside) {
    vec columns[$n][$n];
    UNROLL for (int c = 0; c < $n; c++) {
        vec d[$n];
        UNROLL for (int r = 0; r < $n; r++)
            d[r] = vec_load(from + r / $side * below + r % $side * next + c * beside, VEC_LANES);
        square_read_$(side)(columns[c], d);
    }
    UNROLL for (int r = 0; r < $n; r++) {
        vec d[$n], row[$n];
        UNROLL for (int c = 0; c < $n; c++) d[c] = columns[c][r];
        square_read_$(side)(row, d);
        UNROLL for (int c = 0; c < $n; c++) vec_store(to + ($n * r + c) * apart, row[c], VEC_LANES);
    }
}

//@ planes_squares_call(side)
//% if side == 2 then
static inline __attribute__((always_inline)) void
//% else
static __attribute__((noinline)) void
//% end
