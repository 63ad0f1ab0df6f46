// tensor_strips: results of tensor cores on their way to memory, through shared memory.

//@ tensor_strips(type, half)
/* Calls store(i, j, value) for each eight neighbours of the 16 x WIDTH sums of a warp, row by row, `scratch` being
 * 16 x (WIDTH + 8) floats of the warp in shared memory. */
template <int WIDTH, typename STORE>
GA_DEVICE void ga_strip_store(float *scratch, const float (&sum)[WIDTH / 8][4], int i0, int j0, int lane, STORE store) {
    enum { STRIDE = WIDTH + 8 };
#pragma unroll
    for (int v = 0; v < WIDTH / 8; v++) {
        float *at = scratch + lane / 4 * STRIDE + v * 8 + lane % 4 * 2;
        *(float2 *)at = make_float2(sum[v][0], sum[v][1]);
        *(float2 *)(at + 8 * STRIDE) = make_float2(sum[v][2], sum[v][3]);
    }
    __syncwarp();
#pragma unroll
    for (int s = lane; s < 16 * WIDTH / 8; s += GA_LANES) {
        const int row = s / (WIDTH / 8), column = s % (WIDTH / 8) * 8;
        const float4 *at = (const float4 *)(scratch + row * STRIDE + column);
        const float4 low = at[0], high = at[1];
        float value[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        store(i0 + row, j0 + column, value);
    }
    __syncwarp();
}
