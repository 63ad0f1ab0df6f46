// attention_matrix: products of the tiles of attention by blocks of bf16 (templates/c/matrix.c).

//@ attention_matrix()
/* out(i, j) = sum over k < n of a(i, k) b(k, j), or added if `more`, for tall x wide elements, in whole blocks of 32
 * rows and columns. b is a panel for depths up to `most`; a has zeros behind n up to a multiple of 32. `low`, if not
 * NULL, has the rest of numbers that a has rounded. */
static inline void tile_matrix(float *out, int out_row, bool more, const bf16 *a, const bf16 *low, int a_row,
                               const bf16 *b, int most, int tall, int wide, int n) {
    for (int i = 0; i < tall; i += 32)
        for (int j = 0; j < wide; j += 32)
            matrix_block_of_two(out + i * out_row + j, out_row, more, a + i * a_row, low ? low + i * a_row : NULL,
                                (size_t)a_row, b + j * most, (n + 31) / 32 * 32);
}

/* n numbers as sums of two bf16: high has the first 8 bits, low the next 8; halves are rounded away from 0. A NaN stays
 * one, as its low bits come from numbers of 16 bits and are 0. */
static inline void tile_split(bf16 *high, bf16 *low, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        high[i].bits = (uint16_t)((ga_bits(x[i]) + 0x8000) >> 16);
        low[i].bits = (uint16_t)((ga_bits(x[i] - bf16_widen(high[i])) + 0x8000) >> 16);
    }
}
