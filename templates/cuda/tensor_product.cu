// tensor_product: the tiles of a product on tensor cores, from the copies of operands to rows of results.

//@ tensor_product(type, half)
/* The first row and column of a tile of rows x columns, by its number, which is that of its block. Tiles go down eight,
 * then to the right: blocks that run at the same time read few rows of A and columns of B, which stay in the cache. */
GA_DEVICE void ga_tile_place(int rows, int columns, int M, int N, int &i0, int &j0, int block = blockIdx.x) {
    const int down = (M + rows - 1) / rows, across = (N + columns - 1) / columns;
    const int first = block / (8 * across) * 8, tall = down - first < 8 ? down - first : 8;
    i0 = (first + block % (8 * across) % tall) * rows;
    j0 = block % (8 * across) / tall * columns;
}

/* Adds up the sums of DEEP teams of warps in their order, and calls store(i, j, value) for each eight neighbours of the
 * tile; scratch: DEEP x ROWS x (COLUMNS + 8) floats. */
template <int ROWS, int COLUMNS, int DEEP, int THREADS, int TALL, int WIDE, typename STORE>
GA_DEVICE void ga_teams_store(float *scratch, const float (&sum)[TALL][WIDE][4], int team, int wi, int wj, int lane,
                              STORE store) {
    enum { STRIDE = COLUMNS + 8 };
#pragma unroll
    for (int n = 0; n < TALL * WIDE; n++) {
        const float (&four)[4] = sum[n / WIDE][n % WIDE];
        const int row = team * ROWS + wi + n / WIDE * 16 + lane / 4, column = wj + n % WIDE * 8 + lane % 4 * 2;
        *(float2 *)(scratch + row * STRIDE + column) = make_float2(four[0], four[1]);
        *(float2 *)(scratch + (row + 8) * STRIDE + column) = make_float2(four[2], four[3]);
    }
    __syncthreads(); /* the sums of all teams are there */
#pragma unroll 1
    for (int s = threadIdx.x; s < ROWS * COLUMNS / 8; s += THREADS) {
        const int row = s / (COLUMNS / 8), column = s % (COLUMNS / 8) * 8;
        float value[8] = {};
#pragma unroll
        for (int t = 0; t < DEEP; t++) ga_add8<true>(value, scratch + (t * ROWS + row) * STRIDE + column, 8);
        store(row, column, value);
    }
}

$(teams_product { type = type })

//@ teams_product(type)
/* The block's tile of ROWS x COLUMNS by DEEP teams of DOWN x ACROSS warps, each with every DEEP-th slice; calls
 * store(i, j, value) for each eight neighbours that begin inside of C. The sum of a team takes 16 terms at a time,
 * upwards, so its bits depend on no tile. The blocks of the first column (row) also sum the operand OF over the terms,
 * and call put(i, sums) for each four of its rows (columns). */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int DEEP, bool A_TURNED, int A_LIES, bool B_TURNED, int B_LIES,
          int OF, typename PUT, typename STORE>
GA_DEVICE void ga_tensor_product(ga_byte *ring, const $type *a, const $type *b, const product_sizes &size, PUT put,
                                 STORE store) {
    const int M = size.M, N = size.N, K = size.K;
    enum { THREADS = DOWN * ACROSS * GA_LANES, TALL = ROWS / DOWN / 16, WIDTH = COLUMNS / ACROSS };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, SLICE = (ROWS + COLUMNS) * GA_DEPTH * 2 };
    enum { STAGE = DEEP * SLICE, STAGES = DEEP > 1 ? GA_DEEP_STAGES : GA_STAGES };
    const unsigned team = DEEP > 1 ? threadIdx.x / THREADS : 0, thread = threadIdx.x - team * THREADS;
    const int lane = thread % GA_LANES, warp = thread / GA_LANES;
    const int wi = warp % DOWN * (ROWS / DOWN), wj = warp / DOWN * WIDTH;
    const int turns = (K + DEEP * GA_DEPTH - 1) / (DEEP * GA_DEPTH);
    int i0, j0;
    ga_tile_place(ROWS, COLUMNS, M, N, i0, j0);
    unsigned short a_held[A_LIES == GA_ODD ? ROWS * GA_DEPTH / THREADS : 1];
    unsigned short b_held[B_LIES == GA_ODD ? COLUMNS * GA_DEPTH / THREADS : 1];
    ga_byte *const own = ring + team * SLICE;
    auto begin = [&](int turn) {
        ga_byte *slice = own + turn % STAGES * STAGE;
        const int k0 = (turn * DEEP + team) * GA_DEPTH;
        ga_slice_begin<ROWS, THREADS, A_TURNED, A_LIES>(slice, a_held, a, size.a_row, i0, M, k0, K, thread);
        ga_slice_begin<COLUMNS, THREADS, B_TURNED, B_LIES>(slice + A_BYTES, b_held, b, size.b_row, j0, N, k0, K,
                                                           thread);
    };
    auto end = [&](int turn) {
        ga_byte *slice = own + turn % STAGES * STAGE;
        ga_slice_end<ROWS, THREADS, A_TURNED, A_LIES>(slice, a_held, thread);
        ga_slice_end<COLUMNS, THREADS, B_TURNED, B_LIES>(slice + A_BYTES, b_held, thread);
    };
    enum { SUMMED = OF == GA_OF_A ? ROWS : COLUMNS };
    const bool has_sums = OF == GA_OF_A ? j0 == 0 : OF == GA_OF_B && i0 == 0;
    float sum[TALL][WIDTH / 8][4] = {}, terms[8] = {};
#pragma unroll 1
    for (int t = 0; t < STAGES - 1; t++) {
        if (t < turns) begin(t), end(t);
        ga_copy_commit();
    }
    for (int t = 0; t < turns; t++) {
        const int next = t + STAGES - 1;
        ga_copy_wait<STAGES - 2>();
        __syncthreads(); /* all have the slices of turn t, and none needs the place of those of turn t - 1 any more */
        if (next < turns) begin(next);
        ga_copy_commit();
        const ga_byte *slice = own + t % STAGES * STAGE;
        if (has_sums) ga_sum_terms<SUMMED>(terms, slice + (OF == GA_OF_B ? A_BYTES : 0), thread);
        ga_slice_product<TALL, WIDTH / 16, A_TURNED, B_TURNED, ROWS >= 64>(sum, slice, slice + A_BYTES, wi, wj, lane);
        if (next < turns) end(next);
    }
    __syncthreads(); /* the ring is free */
    if (has_sums)
        ga_sums_store<SUMMED, DEEP * GA_TEAMS>((float *)ring, terms, [&](int i, const ga_few<float, 4> &total) {
            put((OF == GA_OF_A ? i0 : j0) + i, total);
        });
    if (DEEP > 1) {
        ga_teams_store<ROWS, COLUMNS, DEEP, DEEP * THREADS>((float *)ring, sum, team, wi, wj, lane,
                                                            [&](int i, int j, float (&value)[8]) {
            if (i0 + i < M && j0 + j < N) store(i0 + i, j0 + j, value);
        });
        return;
    }
    float *scratch = (float *)ring + warp * (16 * (WIDTH + 8));
    ga_strips_store<WIDTH>(scratch, sum, lane, [&](int u, int row, int column, float (&value)[8]) {
        const int i = i0 + wi + u * 16 + row, j = j0 + wj + column;
        if (i < M && j < N) store(i, j, value);
    });
}
