// square_products: weights and results of convolutions by squares (planes_squares.c).

//@ square_products(form)
//% local n, side = form.n, form.side
$(square_taps { form = form })

//% if form.place == 1 then
/* G g G^T of VEC_LANES outputs: taps lie `step` elements apart, backwards if that is below 0. */
$(square_products_call { form = form })
square_weights_$(form.name)(real *to, size_t apart, const real *from, int step) {
//% else
/* G g G^T of VEC_LANES outputs, with the taps g of a channel backwards. They lie `step` elements apart, those of the
 * four parts of an input by themselves: (1, 1), (1, even), (even, 1) and (even, even). */
$(square_products_call { form = form })
square_weights_$(form.name)(real *to, size_t apart, const real *const from[4], int channel, int step) {
//% end
    vec columns[3][$n];
    UNROLL for (int c = 0; c < 3; c++) {
        vec g[3];
//% if form.place == 1 then
        UNROLL for (int r = 0; r < 3; r++) g[r] = vec_load(from + (3 * r + c) * step, VEC_LANES);
//% else
        UNROLL for (int r = 0; r < 3; r++) {
            const int high = 2 - r % 2, wide = 2 - c % 2, tap = (2 - r) / 2 * wide + (2 - c) / 2;
            g[r] = vec_load(from[2 * high + wide - 3] + (channel * high * wide + tap) * step, VEC_LANES);
        }
//% end
        square_taps_$(form.name)(columns[c], g);
    }
    UNROLL for (int r = 0; r < $n; r++) {
        vec g[3], row[$n];
        UNROLL for (int c = 0; c < 3; c++) g[c] = columns[c][r];
        square_taps_$(form.name)(row, g);
        UNROLL for (int c = 0; c < $n; c++) vec_store(to + ($n * r + c) * apart, row[c], VEC_LANES);
    }
}

$(square_results { form = form })

/* A^T m A of VEC_LANES squares, whose $(n * n) sums lie `apart` elements from each other. */
$(square_products_call { form = form })
square_finish_$(form.name)(vec to[$side][$side], const real *from, size_t apart) {
    vec columns[$n][$side];
    UNROLL for (int c = 0; c < $n; c++) {
        vec m[$n];
        UNROLL for (int r = 0; r < $n; r++) m[r] = vec_load(from + ($n * r + c) * apart, VEC_LANES);
        square_results_$(form.name)(columns[c], m);
    }
    UNROLL for (int r = 0; r < $side; r++) {
        vec m[$n];
        UNROLL for (int c = 0; c < $n; c++) m[c] = columns[c][r];
        square_results_$(form.name)(to[r], m);
    }
}

//@ square_results(form)
//% local n, side = form.n, form.side
/* A^T m of one axis. */
static inline __attribute__((always_inline)) void square_results_$(form.name)(vec to[$side], const vec m[$n]) {
//% if form.place == 2 then
    to[0] = m[3];
    to[1] = m[0] + m[1];
    to[2] = m[4];
    to[3] = m[1] + m[2];
//% elseif form.stride == 2 then
    to[0] = m[0] + m[1] + m[3];
    to[1] = m[1] + m[2] + m[4];
//% elseif side == 2 then
    to[0] = m[0] + m[1] + m[2];
    to[1] = m[1] - m[2] - m[3];
//% else
    const vec p = vec_all((real)0.75), q = vec_all((real)1.5);
    const vec even_p = m[1] + m[2], odd_p = m[1] - m[2], even_q = m[3] + m[4], odd_q = m[3] - m[4];
    to[0] = m[0] + even_p + even_q;
    to[1] = vec_fma(p, odd_p, q * odd_q);
    to[2] = vec_fma(p * p, even_p, q * q * even_q);
    to[3] = vec_fma(p * p * p, odd_p, vec_fma(q * q * q, odd_q, m[5]));
//% end
}

//@ square_taps(form)
//% local n, side = form.n, form.side
/* G g of one axis. */
static inline __attribute__((always_inline)) void square_taps_$(form.name)(vec to[$n], const vec g[3]) {
//% if form.stride == 2 then
    to[0] = g[0];
    to[1] = g[0] + g[2];
    to[2] = g[2];
    to[3] = to[4] = g[1];
//% elseif side == 2 then
    const vec half = vec_all((real)0.5), outer = half * (g[0] + g[2]), inner = half * g[1];
    to[0] = g[0];
    to[1] = outer + inner;
    to[2] = outer - inner;
    to[3] = g[2];
//% else
    const vec of_p = vec_all((real)(-128.0 / 243)), of_q = vec_all((real)(32.0 / 243));
    const vec outer_p = of_p * vec_fma(vec_all((real)0.5625), g[2], g[0]), inner_p = vec_all((real)(-32.0 / 81)) * g[1];
    const vec outer_q = of_q * vec_fma(vec_all((real)2.25), g[2], g[0]), inner_q = vec_all((real)(16.0 / 81)) * g[1];
    to[0] = vec_all((real)(64.0 / 81)) * g[0];
    to[1] = outer_p + inner_p;
    to[2] = outer_p - inner_p;
    to[3] = outer_q + inner_q;
    to[4] = outer_q - inner_q;
    to[5] = g[2];
//% end
}

//@ square_products_call(form)
//% if form.n < 6 then
static inline __attribute__((always_inline)) void
//% else
static __attribute__((noinline)) void
//% end
