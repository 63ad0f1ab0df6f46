// tensor_strips: results of tensor cores on their way to memory, through shared memory.

//@ tensor_strips(type, half)
/* Calls store(n, i, j, value) for each eight neighbours of the sums of a warp: COUNT strips of 16 x WIDTH, one after the
 * other, row by row. `scratch`: 16 x (WIDTH + 8) floats of the warp in shared memory. The loops stay loops: what store
 * does is the longest part of many kernels, and would be compiled once for each turn. */
template <int WIDTH, int COUNT, typename STORE>
GA_DEVICE void ga_strips_store(float *scratch, const float (&sum)[COUNT][WIDTH / 8][4], int lane, STORE store) {
    enum { STRIDE = WIDTH + 8 };
#pragma unroll 1
    for (int n = 0; n < COUNT; n++) {
#pragma unroll
        for (int k = 0; k < COUNT * WIDTH / 8; k++) {
            if (k / (WIDTH / 8) != n) continue; /* registers have no index */
            const float (&four)[4] = sum[k / (WIDTH / 8)][k % (WIDTH / 8)];
            float *at = scratch + lane / 4 * STRIDE + k % (WIDTH / 8) * 8 + lane % 4 * 2;
            *(float2 *)at = make_float2(four[0], four[1]);
            *(float2 *)(at + 8 * STRIDE) = make_float2(four[2], four[3]);
        }
        __syncwarp();
#pragma unroll 1
        for (int s = lane; s < 16 * WIDTH / 8; s += GA_LANES) {
            const int row = s / (WIDTH / 8), column = s % (WIDTH / 8) * 8;
            const float4 *at = (const float4 *)(scratch + row * STRIDE + column);
            const float4 low = at[0], high = at[1];
            float value[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            store(n, row, column, value);
        }
        __syncwarp();
    }
}
