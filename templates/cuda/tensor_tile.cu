// tensor_tile: the product of two slices on tensor cores.

//@ tensor_tile(type, half)
/* The operand of ga_multiply of 16 rows of A from i on, and those of 16 columns of B from j on; terms from k on.
 * LONG: whether rows of turned slices are. */
template <bool TURNED, bool LONG>
GA_DEVICE void ga_rows16(ga_uint32 (&a)[4], const ga_byte *slice, int i, int k, int lane) {
    if (TURNED)
        ga_matrices_turned(a, slice + i / 64 * (128 * GA_DEPTH) +
                                  ga_chunk<LONG>(k + lane / 16 * 8 + lane % 8, i % 64 / 8 + lane / 8 % 2));
    else
        ga_matrices(a, slice + ga_chunk<false>(i + lane % 16, k / 8 + lane / 16));
}

template <bool TURNED, bool LONG>
GA_DEVICE void ga_columns16(ga_uint32 (&b)[4], const ga_byte *slice, int j, int k, int lane) {
    if (TURNED)
        ga_matrices_turned(b, slice + j / 64 * (128 * GA_DEPTH) +
                                  ga_chunk<LONG>(k + lane / 8 % 2 * 8 + lane % 8, j % 64 / 8 + lane / 16));
    else
        ga_matrices(b, slice + ga_chunk<false>(j + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
}

/* Adds the products of a slice to the sums of a warp: TALL x WIDE blocks of 16 x 16 from (wi, wj) of the tile on. */
template <int TALL, int WIDE, bool A_TURNED, bool B_TURNED, bool LONG = true>
GA_DEVICE void ga_slice_product(float (&sum)[TALL][2 * WIDE][4], const ga_byte *a, const ga_byte *b, int wi, int wj,
                                int lane) {
#pragma unroll
    for (int k = 0; k < GA_DEPTH; k += 16) {
        ga_uint32 x[TALL][4], y[WIDE][4];
#pragma unroll
        for (int u = 0; u < TALL; u++) ga_rows16<A_TURNED, LONG>(x[u], a, wi + u * 16, k, lane);
#pragma unroll
        for (int v = 0; v < WIDE; v++) ga_columns16<B_TURNED, LONG>(y[v], b, wj + v * 16, k, lane);
#pragma unroll
        for (int u = 0; u < TALL; u++)
#pragma unroll
            for (int v = 0; v < 2 * WIDE; v++)
                ga_multiply(sum[u][v], x[u], y[v / 2][v % 2 * 2], y[v / 2][v % 2 * 2 + 1]);
    }
}
