// channels: the elements of WIDE neighbouring channels of (rows, channels, rest), 1 or an octet, in parts by many
// blocks; what the parts say of a channel, added up by each block that needs it.

//@ channels()
/* Calls see(i, fetch(i)) for each FEW neighbours that a thread of the block has, from element i on, in a part of a plane
 * of all rows of a group. Some are fetched before the first are seen. */
template <int FEW, int THREADS, typename F, typename G>
GA_DEVICE void ga_each_of_channels(const channel_sizes &s, int plane, int group, int part, F fetch, G see) {
    enum { AT_ONCE = 2 };
    const ga_int64 first = (ga_int64)group * s.rows * s.image + plane * (s.row.by * FEW);
    const int from = part * s.share, end = s.runs - from < s.share ? s.runs : from + s.share;
#pragma unroll 1
    for (int begin = from + threadIdx.x; begin < end; begin += AT_ONCE * THREADS) {
        ga_int64 at[AT_ONCE];
        decltype(fetch(first)) few[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int k = begin + j * THREADS;
            at[j] = first + (ga_int64)(k / s.row) * s.image + k % s.row * FEW;
            if (k < end) few[j] = fetch(at[j]);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++)
            if (begin + j * THREADS < end) see(at[j], few[j]);
    }
}

/* The sums over the warps of a block of what each has in scratch, in their order. */
template <int N, int WARPS> GA_DEVICE void ga_warps_sum(real (&sum)[N], const real (&scratch)[WARPS][N]) {
#pragma unroll
    for (int e = 0; e < N; e++) sum[e] = scratch[0][e];
#pragma unroll 1
    for (int warp = 1; warp < WARPS; warp++)
#pragma unroll
        for (int e = 0; e < N; e++) sum[e] += scratch[warp][e];
}

/* The sums of N values over the threads of a block, the same in each. */
template <int N, int WARPS> GA_DEVICE void ga_block_sums(real (&v)[N], real (&scratch)[WARPS][N]) {
#pragma unroll
    for (int e = 0; e < N; e++) v[e] = ga_warp_sum(v[e]);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < N; e++)
        if (threadIdx.x % GA_LANES == 0) scratch[threadIdx.x / GA_LANES][e] = v[e];
    __syncthreads();
    ga_warps_sum(v, scratch);
}

/* Reads what neighbouring channels have in an array, 16 bytes at a time; likewise writes or adds it, by one thread. */
template <int WIDE> GA_DEVICE void ga_read_channels(real (&v)[WIDE], const real *from) {
    enum { FEW = WIDE < 4 ? WIDE : 4 };
#pragma unroll
    for (int e = 0; e < WIDE; e += FEW) {
        const auto few = ga_read<FEW>(from + e);
#pragma unroll
        for (int k = 0; k < FEW; k++) v[e + k] = few.at[k];
    }
}

template <int WIDE> GA_DEVICE void ga_write_channels(real *to, const real (&v)[WIDE], bool add = false) {
    enum { FEW = WIDE < 4 ? WIDE : 4 };
    real old[WIDE] = {};
    if (add) ga_read_channels(old, to);
#pragma unroll
    for (int e = 0; e < WIDE; e += FEW) {
        ga_few<real, FEW> few;
#pragma unroll
        for (int k = 0; k < FEW; k++) few.at[k] = add ? old[e + k] + v[e + k] : v[e + k];
        ga_write(to + e, few);
    }
}

$(channel_parts { })

//@ channel_parts()
/* The sums over `parts` parts of what add(own, p, e) adds to `own` of part p, for channels e, e + 1, ... of WIDE. All
 * threads of a block have them. */
template <int WIDE, int THREADS, typename F>
GA_DEVICE void ga_parts_sum(real (&sum)[WIDE], int parts, real (&scratch)[THREADS / GA_LANES][WIDE], F add) {
    enum { FEW = WIDE < 4 ? WIDE : 4, TEAM = WIDE / FEW };
    const int lane = threadIdx.x % GA_LANES, e = threadIdx.x % TEAM * FEW;
    real own[FEW] = {};
#pragma unroll 1
    for (int p = threadIdx.x / TEAM; p < parts; p += THREADS / TEAM) add(own, p, e);
#pragma unroll
    for (int step = GA_LANES / 2; step >= TEAM; step /= 2)
#pragma unroll
        for (int k = 0; k < FEW; k++) own[k] += __shfl_xor_sync(GA_ALL_LANES, own[k], step);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < FEW; k++)
        if (lane < TEAM) scratch[threadIdx.x / GA_LANES][e + k] = own[k];
    __syncthreads();
    ga_warps_sum(sum, scratch);
}

/* Averages and variances of WIDE channels from those of their parts: of each group of rows averages of n values each,
 * and behind those of all channels the sums of squared distances from these. */
template <int WIDE, int THREADS>
GA_DEVICE void ga_parts_moments(real (&middle)[WIDE], real (&spread)[WIDE], const real *from, const channel_sizes &s,
                                real n, real (&scratch)[THREADS / GA_LANES][WIDE]) {
    enum { FEW = WIDE < 4 ? WIDE : 4 };
    const int parts = s.parts;
    const ga_int64 stride = s.groups.by * (2 * s.channels);
    ga_parts_sum<WIDE, THREADS>(middle, parts, scratch, [&](real (&own)[FEW], int p, int e) {
        const auto some = ga_read<FEW>(from + p * stride + e);
        for (int k = 0; k < FEW; k++) own[k] += some.at[k];
    });
#pragma unroll
    for (int k = 0; k < WIDE; k++) middle[k] /= parts;
    ga_parts_sum<WIDE, THREADS>(spread, parts, scratch, [&](real (&own)[FEW], int p, int e) {
        const auto some = ga_read<FEW>(from + p * stride + e);
        const auto squares = ga_read<FEW>(from + p * stride + s.channels + e);
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real middle_of = WIDE == FEW || e == 0 ? middle[k] : middle[(WIDE - FEW) + k];
            const real apart = some.at[k] - middle_of;
            own[k] += squares.at[k] + n * (apart * apart);
        }
    });
#pragma unroll
    for (int k = 0; k < WIDE; k++) spread[k] /= n * parts;
}
