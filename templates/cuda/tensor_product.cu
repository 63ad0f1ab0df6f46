// tensor_product: the tiles of a product on tensor cores, from the copies of operands to rows of results.

//@ tensor_product(type, half)
/* The first row and column of a tile, by its number, which is that of its block. Tiles go down eight, then to the right:
 * blocks that run at the same time read few rows of A and columns of B, which stay in the cache. */
template <int ROWS, int COLUMNS>
GA_DEVICE void ga_tile_place(int M, int N, int &i0, int &j0, int block = blockIdx.x) {
    const int down = (M + ROWS - 1) / ROWS, across = (N + COLUMNS - 1) / COLUMNS;
    const int first = block / (8 * across) * 8, tall = down - first < 8 ? down - first : 8;
    i0 = (first + block % (8 * across) % tall) * ROWS;
    j0 = block % (8 * across) / tall * COLUMNS;
}

/* The block's tile of ROWS x COLUMNS by DOWN x ACROSS warps; calls store(i, j, value) for each eight neighbours that
 * begin inside of C. A sum takes 16 terms at a time, upwards, so its bits depend on no tile. The blocks of the first
 * column (row) also sum the operand OF over the terms, and call put(i, sums) for each four of its rows (columns). */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, bool A_TURNED, int A_LIES, bool B_TURNED, int B_LIES, int OF,
          typename PUT, typename STORE>
GA_DEVICE void ga_tensor_product(ga_byte *ring, const $type *a, const $type *b, const product_sizes &size, PUT put,
                                 STORE store) {
    const int M = size.M, N = size.N, K = size.K;
    enum { THREADS = DOWN * ACROSS * GA_LANES, TALL = ROWS / DOWN / 16, WIDTH = COLUMNS / ACROSS };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, STAGE = (ROWS + COLUMNS) * GA_DEPTH * 2 };
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    const int wi = warp % DOWN * (ROWS / DOWN), wj = warp / DOWN * WIDTH, slices = (K + GA_DEPTH - 1) / GA_DEPTH;
    int i0, j0;
    ga_tile_place<ROWS, COLUMNS>(M, N, i0, j0);
    unsigned short a_held[A_LIES == GA_ODD ? ROWS * GA_DEPTH / THREADS : 1];
    unsigned short b_held[B_LIES == GA_ODD ? COLUMNS * GA_DEPTH / THREADS : 1];
    auto begin = [&](int slice) {
        ga_byte *stage = ring + slice % GA_STAGES * STAGE;
        const int k0 = slice * GA_DEPTH;
        ga_slice_begin<ROWS, THREADS, A_TURNED, A_LIES>(stage, a_held, a, size.a_row, i0, M, k0, K);
        ga_slice_begin<COLUMNS, THREADS, B_TURNED, B_LIES>(stage + A_BYTES, b_held, b, size.b_row, j0, N, k0, K);
    };
    auto end = [&](int slice) {
        ga_byte *stage = ring + slice % GA_STAGES * STAGE;
        ga_slice_end<ROWS, THREADS, A_TURNED, A_LIES>(stage, a_held);
        ga_slice_end<COLUMNS, THREADS, B_TURNED, B_LIES>(stage + A_BYTES, b_held);
    };
    enum { SUMMED = OF == GA_OF_A ? ROWS : COLUMNS };
    const bool has_sums = OF == GA_OF_A ? j0 == 0 : OF == GA_OF_B && i0 == 0;
    float sum[TALL][WIDTH / 8][4] = {}, terms[8] = {};
#pragma unroll 1
    for (int s = 0; s < GA_STAGES - 1; s++) {
        if (s < slices) begin(s), end(s);
        ga_copy_commit();
    }
    for (int s = 0; s < slices; s++) {
        const int next = s + GA_STAGES - 1;
        ga_copy_wait<GA_STAGES - 2>();
        __syncthreads(); /* all have slice s, and none needs the place of slice s - 1 any more */
        if (next < slices) begin(next);
        ga_copy_commit();
        const ga_byte *stage = ring + s % GA_STAGES * STAGE;
        if (has_sums) ga_sum_terms<SUMMED>(terms, stage + (OF == GA_OF_B ? A_BYTES : 0));
        ga_slice_product<TALL, WIDTH / 16, A_TURNED, B_TURNED>(sum, stage, stage + A_BYTES, wi, wj, lane);
        if (next < slices) end(next);
    }
    __syncthreads(); /* the ring is free */
    if (has_sums)
        ga_sums_store<SUMMED>((float *)ring, terms, [&](int i, const ga_few<float, 4> &total) {
            put((OF == GA_OF_A ? i0 : j0) + i, total);
        });
    float *scratch = (float *)ring + warp * (16 * (WIDTH + 8));
    ga_strips_store<WIDTH>(scratch, sum, lane, [&](int u, int row, int column, float (&value)[8]) {
        const int i = i0 + wi + u * 16 + row, j = j0 + wj + column;
        if (i < M && j < N) store(i, j, value);
    });
}
