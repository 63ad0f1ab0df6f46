// tensor_tile: a tile of C(i, j) = sum over k of A(i, k) B(k, j) on tensor cores.

//@ tensor_tile(type, half)
/* -- a tile of a product on tensor cores. Slices of A and of B, GA_DEPTH terms deep, go round in a ring of GA_STAGES
 * places in shared memory: while one is multiplied, the next ones are on their way. */

enum { GA_DEPTH = 32, GA_STAGES = 4, GA_STRIP = 16 };

/* Where 16 bytes of a slice lie: rows along the sum are of 64 bytes; a turned slice has panels of 64 neighbours, each
 * term a row of 128 bytes. The chunks of a row are swapped, so that eight rows at one chunk are in different banks. */
template <bool TURNED> GA_DEVICE int ga_chunk(int row, int chunk) {
    return TURNED ? row * 128 + ((chunk ^ (row & 7)) << 4) : row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}

/* Begins the copy of a slice: EXTENT rows (columns) of the operand from i0 on, its terms from k0 on; zeros beyond.
 * TURNED: the elements of one term are neighbours in memory, `stride` apart from those of the next one; else the terms
 * of one row are. */
template <int EXTENT, int THREADS, bool TURNED>
GA_DEVICE void ga_slice_begin(ga_byte *slice, const $type *x, int stride, int i0, int extent, int k0, int depth) {
#pragma unroll
    for (int n = 0; n < EXTENT * GA_DEPTH / 8 / THREADS; n++) {
        const int s = n * THREADS + threadIdx.x, panel = TURNED ? s / (8 * GA_DEPTH) : 0;
        const int row = TURNED ? s / 8 % GA_DEPTH : s / 4, chunk = TURNED ? s % 8 : s % 4;
        const int i = i0 + (TURNED ? panel * 64 + chunk * 8 : row), k = k0 + (TURNED ? row : chunk * 8);
        const bool there = i < extent && k < depth;
        const $type *from = x + (TURNED ? (ga_int64)k * stride + i : (ga_int64)i * stride + k);
        ga_copy_begin(slice + panel * (128 * GA_DEPTH) + ga_chunk<TURNED>(row, chunk), there ? from : x, there);
    }
}

/* The operand of ga_multiply of 16 rows of A from i on, and those of 16 columns of B from j on; terms from k on. */
template <bool TURNED> GA_DEVICE void ga_rows16(ga_uint32 (&a)[4], const ga_byte *slice, int i, int k, int lane) {
    if (TURNED)
        ga_matrices_turned(a, slice + i / 64 * (128 * GA_DEPTH) +
                                  ga_chunk<true>(k + lane / 16 * 8 + lane % 8, i % 64 / 8 + lane / 8 % 2));
    else
        ga_matrices(a, slice + ga_chunk<false>(i + lane % 16, k / 8 + lane / 16));
}

template <bool TURNED> GA_DEVICE void ga_columns16(ga_uint32 (&b)[4], const ga_byte *slice, int j, int k, int lane) {
    if (TURNED)
        ga_matrices_turned(b, slice + j / 64 * (128 * GA_DEPTH) +
                                  ga_chunk<true>(k + lane / 8 % 2 * 8 + lane % 8, j % 64 / 8 + lane / 16));
    else
        ga_matrices(b, slice + ga_chunk<false>(j + lane / 16 * 8 + lane % 8, k / 8 + lane / 8 % 2));
}

/* Adds the products of a slice to the sums of a warp: TALL x WIDE blocks of 16 x 16 from (wi, wj) of the tile on. */
template <int TALL, int WIDE, bool A_TURNED, bool B_TURNED>
GA_DEVICE void ga_slice_product(float (&sum)[TALL][2 * WIDE][4], const ga_byte *a, const ga_byte *b, int wi, int wj,
                                int lane) {
#pragma unroll
    for (int k = 0; k < GA_DEPTH; k += 16) {
        ga_uint32 x[TALL][4], y[WIDE][4];
#pragma unroll
        for (int u = 0; u < TALL; u++) ga_rows16<A_TURNED>(x[u], a, wi + u * 16, k, lane);
#pragma unroll
        for (int v = 0; v < WIDE; v++) ga_columns16<B_TURNED>(y[v], b, wj + v * 16, k, lane);
#pragma unroll
        for (int u = 0; u < TALL; u++)
#pragma unroll
            for (int v = 0; v < 2 * WIDE; v++)
                ga_multiply(sum[u][v], x[u], y[v / 2][v % 2 * 2], y[v / 2][v % 2 * 2 + 1]);
    }
}
