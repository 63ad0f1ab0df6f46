// weight_sums: the sums of parts of the gradients of convolutions' weights.

//@ weight_sums()
/* `parts` gradients as (group, terms, out), to be added up to a weight (group, out, terms), by blocks from `first` on. */
struct conv_weights {
    real *y;
    const real *partial;
    int parts, groups, terms, out, first;
    bool add;
};

/* The sums of FEW neighbours of a tile of 32 terms and 32 outputs, in the order of the parts. */
template <int FEW, int THREADS>
GA_DEVICE void conv_parts_sum(real (&tile)[32][33], const conv_weights &w, int g, int k0, int o0) {
#pragma unroll 1
    for (int t = threadIdx.x; t < 32 * 32 / FEW; t += THREADS) {
        const int row = t / (32 / FEW), column = t % (32 / FEW) * FEW, k = k0 + row, o = o0 + column;
        if (k >= w.terms || o >= w.out) continue;
        const real *from = w.partial + ((ga_int64)g * w.terms + k) * w.out + o;
        real sum[FEW] = {};
#pragma unroll 4
        for (int p = 0; p < w.parts; p++) {
            const auto some = ga_read<FEW>(from + (ga_int64)p * w.groups * w.terms * w.out);
#pragma unroll
            for (int e = 0; e < FEW; e++) sum[e] += some.at[e];
        }
#pragma unroll
        for (int e = 0; e < FEW; e++) tile[row][column + e] = sum[e];
    }
}

/* Writes the tile to the weight, FEW terms at a time, or adds it. */
template <int FEW, int THREADS>
GA_DEVICE void conv_tile_turn(const real (&tile)[32][33], const conv_weights &w, int g, int k0, int o0) {
#pragma unroll 1
    for (int t = threadIdx.x; t < 32 * 32 / FEW; t += THREADS) {
        const int row = t % (32 / FEW) * FEW, column = t / (32 / FEW), k = k0 + row, o = o0 + column;
        if (k >= w.terms || o >= w.out) continue;
        real *to = w.y + ((ga_int64)g * w.out + o) * w.terms + k;
        ga_few<real, FEW> sums;
        if (w.add) sums = ga_read<FEW>(to);
#pragma unroll
        for (int e = 0; e < FEW; e++)
            sums.at[e] = w.add ? sums.at[e] + tile[row + e][column] : tile[row + e][column];
        ga_write(to, sums);
    }
}

/* The block's tile of a weight. */
template <int THREADS> GA_DEVICE void conv_weight_sum(const conv_weights &w, real (&tile)[32][33]) {
    const int down = (w.terms + 31) / 32, across = (w.out + 31) / 32, block = (int)blockIdx.x - w.first;
    const int k0 = block % down * 32, o0 = block / down % across * 32, g = block / down / across;
    if (w.out % 4 == 0)
        conv_parts_sum<4, THREADS>(tile, w, g, k0, o0);
    else
        conv_parts_sum<1, THREADS>(tile, w, g, k0, o0);
    __syncthreads();
    if (w.terms % 4 == 0)
        conv_tile_turn<4, THREADS>(tile, w, g, k0, o0);
    else
        conv_tile_turn<1, THREADS>(tile, w, g, k0, o0);
}
