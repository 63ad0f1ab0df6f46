// channels: the elements of one channel of (rows, channels, rest), a block for each.

//@ channels()
/* Calls see(i) for each FEW neighbours of a channel that a thread of the block has, from element i on: `rows` planes of
 * S elements, the first one at element `first`, C planes in a row. */
template <int C, int S, int FEW, int THREADS, typename F>
GA_DEVICE void ga_each_of_channel(ga_int64 first, int rows, F see) {
    enum { EACH = S / FEW };
#pragma unroll 4
    for (ga_int64 k = threadIdx.x; k < (ga_int64)rows * EACH; k += THREADS)
        see(first + k / EACH * ((ga_int64)C * S) + k % EACH * FEW);
}
