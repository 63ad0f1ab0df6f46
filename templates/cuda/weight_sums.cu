// weight_sums: the sums of parts of the gradients of convolutions' weights.

//@ weight_sums()
/* Adds up PARTS gradients as (group, TERMS, OUT), in their order, to weights (group, OUT, TERMS): a tile of 32 terms and
 * 32 outputs, number `block` of all groups. The sum is added to y where `add` says so. */
template <int PARTS, int GROUPS, int TERMS, int OUT, int THREADS>
GA_DEVICE void conv_weight_sum(real *y, const real *parts, int block, real (&tile)[32][33], bool add) {
    enum { DOWN = (TERMS + 31) / 32, ACROSS = (OUT + 31) / 32, FEW = OUT % 4 ? 1 : 4, FEW_BACK = TERMS % 4 ? 1 : 4 };
    const int k0 = block % DOWN * 32, o0 = block / DOWN % ACROSS * 32, g = block / DOWN / ACROSS;
    for (int t = threadIdx.x; t < 32 * 32 / FEW; t += THREADS) {
        const int row = t / (32 / FEW), column = t % (32 / FEW) * FEW, k = k0 + row, o = o0 + column;
        if (k >= TERMS || o >= OUT) continue;
        const real *from = parts + ((ga_int64)g * TERMS + k) * OUT + o;
        real sum[FEW] = {};
#pragma unroll 4
        for (int p = 0; p < PARTS; p++) {
            const auto some = ga_read<FEW>(from + (ga_int64)p * (GROUPS * TERMS * OUT));
#pragma unroll
            for (int e = 0; e < FEW; e++) sum[e] += some.at[e];
        }
#pragma unroll
        for (int e = 0; e < FEW; e++) tile[row][column + e] = sum[e];
    }
    __syncthreads();
    for (int t = threadIdx.x; t < 32 * 32 / FEW_BACK; t += THREADS) {
        const int row = t % (32 / FEW_BACK) * FEW_BACK, column = t / (32 / FEW_BACK), k = k0 + row, o = o0 + column;
        if (k >= TERMS || o >= OUT) continue;
        real *to = y + ((ga_int64)g * OUT + o) * TERMS + k;
        ga_few<real, FEW_BACK> sums;
        if (add) sums = ga_read<FEW_BACK>(to);
#pragma unroll
        for (int e = 0; e < FEW_BACK; e++)
            sums.at[e] = add ? sums.at[e] + tile[row + e][column] : tile[row + e][column];
        ga_write(to, sums);
    }
}
