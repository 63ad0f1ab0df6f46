// block_before: sums over the threads of a block that come before each.

//@ block_before()
/* The sum over the threads of the block before this one; scratch is shared memory for 32 values. */
GA_DEVICE int ga_block_before(int v, int *scratch) {
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    int sum = v;
    for (int step = 1; step < GA_LANES; step *= 2) {
        const int other = __shfl_up_sync(GA_ALL_LANES, sum, step);
        if (lane >= step) sum += other;
    }
    __syncthreads();
    if (lane == GA_LANES - 1) scratch[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++) sum += scratch[w];
    return sum - v;
}
