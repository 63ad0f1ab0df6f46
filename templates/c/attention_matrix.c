// attention_matrix: products of the tiles of attention by blocks of bf16 (templates/c/matrix.c).

//@ attention_matrix()
/* out(i, j) = sum over k < n of a(i, k) b(k, j), or added if `more`, for tall x wide elements, in whole blocks of 32
 * rows and columns. a is the sum of `parts` operands; a and the panel b are for depths up to `most`, with zeros behind n
 * up to a multiple of 32. */
static inline void tile_matrix(float *out, int out_row, bool more, const bf16 *a, int parts, const bf16 *b, int most,
                               int tall, int wide, int n) {
    for (int i = 0; i < tall; i += 32)
        for (int j = 0; j < wide; j += 32)
            matrix_block_of_parts(out + i * out_row + j, out_row, more, a + i * parts * SLICES * most, parts,
                                  (size_t)most, b + j * SLICES * most, (n + 31) / 32 * 32);
}
