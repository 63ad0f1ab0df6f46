// square_gradients: gradients of weights of convolutions by squares (planes_squares.c). With the results' gradients dy:
//
//   gradients of 3 x 3 taps = G^T (sum over squares of (B^T d B) . (A dy A^T)) G

//@ square_gradients(form)
//% local n, side = form.n, form.side
$(square_values { form = form })

/* A dy A^T for VEC_LANES outputs: the results of a square lie in $side rows, `row` elements apart. */
$(square_gradients_call { form = form })
square_spread_$(form.name)(real *to, size_t apart, const real *from, int row) {
    vec rows[$side][$n];
    UNROLL for (int r = 0; r < $side; r++) {
        vec dy[$side];
        UNROLL for (int c = 0; c < $side; c++) dy[c] = vec_load(from + r * row + c * VEC_LANES, VEC_LANES);
        square_values_$(form.name)(rows[r], dy);
    }
    UNROLL for (int c = 0; c < $n; c++) {
        vec dy[$side], column[$n];
        UNROLL for (int r = 0; r < $side; r++) dy[r] = rows[r][c];
        square_values_$(form.name)(column, dy);
        UNROLL for (int r = 0; r < $n; r++) vec_store(to + ($n * r + c) * apart, column[r], VEC_LANES);
    }
}

/* G^T s of one axis. */
static inline __attribute__((always_inline)) void square_gradients_$(form.name)(vec to[3], const vec s[$n]) {
//% if form.stride == 2 then
    to[0] = s[0] + s[1];
    to[1] = s[3] + s[4];
    to[2] = s[1] + s[2];
//% elseif side == 2 then
    const vec half = vec_all((real)0.5), outer = half * (s[1] + s[2]);
    to[0] = s[0] + outer;
    to[1] = half * (s[1] - s[2]);
    to[2] = outer + s[3];
//% else
    const vec even_p = s[1] + s[2], odd_p = s[1] - s[2], even_q = s[3] + s[4], odd_q = s[3] - s[4];
    const vec of_p = vec_all((real)(-128.0 / 243)), of_q = vec_all((real)(32.0 / 243));
    to[0] = vec_fma(of_p, even_p, vec_fma(of_q, even_q, vec_all((real)(64.0 / 81)) * s[0]));
    to[1] = vec_fma(vec_all((real)(-32.0 / 81)), odd_p, vec_all((real)(16.0 / 81)) * odd_q);
    to[2] = vec_fma(vec_all((real)(-8.0 / 27)), even_p, vec_fma(vec_all((real)(8.0 / 27)), even_q, s[5]));
//% end
}

/* G^T s G for at most VEC_LANES outputs, of $(n * n) sums `apart` elements from each other: the gradients of 9 taps,
 * `row` elements from each other. */
$(square_gradients_call { form = form })
square_sum_taps_$(form.name)(real *to, size_t row, const real *from, size_t apart, int outputs) {
    vec columns[$n][3];
    UNROLL for (int c = 0; c < $n; c++) {
        vec s[$n];
        UNROLL for (int r = 0; r < $n; r++) s[r] = vec_load(from + ($n * r + c) * apart, VEC_LANES);
        square_gradients_$(form.name)(columns[c], s);
    }
    UNROLL for (int r = 0; r < 3; r++) {
        vec s[$n], taps[3];
        UNROLL for (int c = 0; c < $n; c++) s[c] = columns[c][r];
        square_gradients_$(form.name)(taps, s);
        UNROLL for (int c = 0; c < 3; c++) {
            if (outputs >= VEC_LANES) vec_store(to + (3 * r + c) * row, taps[c], VEC_LANES);
            else memcpy(to + (3 * r + c) * row, &taps[c], (size_t)outputs * sizeof *to);
        }
    }
}

//@ square_values(form)
//% local n, side = form.n, form.side
/* A dy of one axis. */
static inline __attribute__((always_inline)) void square_values_$(form.name)(vec to[$n], const vec dy[$side]) {
//% if form.stride == 2 then
    to[0] = to[3] = dy[0];
    to[1] = dy[0] + dy[1];
    to[2] = to[4] = dy[1];
//% elseif side == 2 then
    to[0] = dy[0];
    to[1] = dy[0] + dy[1];
    to[2] = dy[0] - dy[1];
    to[3] = -dy[1];
//% else
    const vec p = vec_all((real)0.75), q = vec_all((real)1.5), pp = p * p, qq = q * q;
    const vec even_p = vec_fma(pp, dy[2], dy[0]), odd_p = vec_fma(pp, dy[3], dy[1]);
    const vec even_q = vec_fma(qq, dy[2], dy[0]), odd_q = vec_fma(qq, dy[3], dy[1]);
    to[0] = dy[0];
    to[1] = vec_fma(p, odd_p, even_p);
    to[2] = vec_fma(-p, odd_p, even_p);
    to[3] = vec_fma(q, odd_q, even_q);
    to[4] = vec_fma(-q, odd_q, even_q);
    to[5] = dy[3];
//% end
}

//@ square_gradients_call(form)
//% if form.n < 6 then
static inline __attribute__((always_inline)) void
//% else
static __attribute__((noinline)) void
//% end
