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
//
// With a stride of 2, a result has two taps at elements of one parity and one tap at one of the other. Two neighbours
// are F(2, 2) of the first, three products in place of four, and two products of the second: 5 in place of 6 along an
// axis, 25 in place of 36 for 2 x 2 results ("2_by_2"). The gradient of the input is the same the other way round, 4 x 4
// results from 3 x 3 elements ("4_by_2").

//@ planes_squares(form)
//% local n, reads, step = form.n, form.reads, form.step
/* B^T d of one axis. */
static inline __attribute__((always_inline)) void square_read_$(form.name)(vec to[$n], const vec d[$reads]) {
    $(square_reads { form = form })
}

/* B^T d B of VEC_LANES squares: element (r, c) is at from + r / $step * below + r % $step * next + c * beside. The
 * $(n * n) factors go to `to`, `apart` elements from each other. */
$(planes_squares_call { form = form })
square_factors_$(form.name)(real *to, size_t apart, const real *from, int below, int next, int beside) {
    vec columns[$reads][$n];
    UNROLL for (int c = 0; c < $reads; c++) {
        vec d[$reads];
        UNROLL for (int r = 0; r < $reads; r++)
            d[r] = vec_load(from + r / $step * below + r % $step * next + c * beside, VEC_LANES);
        square_read_$(form.name)(columns[c], d);
    }
    UNROLL for (int r = 0; r < $n; r++) {
        vec d[$reads], row[$n];
        UNROLL for (int c = 0; c < $reads; c++) d[c] = columns[c][r];
        square_read_$(form.name)(row, d);
        UNROLL for (int c = 0; c < $n; c++) vec_store(to + ($n * r + c) * apart, row[c], VEC_LANES);
    }
}

//@ square_reads(form)
//% if form.stride == 1 and form.side == 2 then
to[0] = d[0] - d[2];
to[1] = d[1] + d[2];
to[2] = d[2] - d[1];
to[3] = d[1] - d[3];
//% elseif form.stride == 1 then
const vec p = vec_all((real)0.75), q = vec_all((real)1.5), pp = p * p, qq = q * q;
const vec even_p = vec_fma(-qq, d[2], d[4]), odd_p = vec_fma(-qq, d[1], d[3]);
const vec even_q = vec_fma(-pp, d[2], d[4]), odd_q = vec_fma(-pp, d[1], d[3]);
to[0] = vec_fma(pp * qq, d[0], vec_fma(-(pp + qq), d[2], d[4]));
to[1] = vec_fma(p, odd_p, even_p);
to[2] = vec_fma(-p, odd_p, even_p);
to[3] = vec_fma(q, odd_q, even_q);
to[4] = vec_fma(-q, odd_q, even_q);
to[5] = vec_fma(pp * qq, d[1], vec_fma(-(pp + qq), d[3], d[5]));
//% elseif form.side == 2 then
to[0] = d[0] - d[2];
to[1] = d[2];
to[2] = d[4] - d[2];
to[3] = d[1];
to[4] = d[3];
//% else
to[0] = d[0] - d[1];
to[1] = d[1];
to[2] = d[2] - d[1];
to[3] = d[0];
to[4] = d[1];
//% end

//@ planes_squares_call(form)
//% if form.n < 6 then
static inline __attribute__((always_inline)) void
//% else
static __attribute__((noinline)) void
//% end
