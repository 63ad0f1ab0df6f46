// hopper_product: products for sm_90a. Blocks stay and share the slices of all tiles in equal runs.

//@ strips(type, half)
enum {
    GA_STRIP = 32, /* columns that a warp takes through shared memory at once */
    GA_SCRATCH = 16 * (GA_STRIP + 8)
};

/* Calls put(i, j, value) for each eight neighbours of the sums of a warp, whose rows begin with i0. */
template <int EIGHTS, typename PUT>
GA_DEVICE void ga_group_store(float *scratch, const float (&sum)[EIGHTS][4], int i0, int lane, PUT put) {
    ga_strips_store<GA_STRIP>(scratch, (const float (&)[EIGHTS * 8 / GA_STRIP][GA_STRIP / 8][4])sum, lane,
                              [&](int c, int row, int column, float (&value)[8]) {
                                  put(i0 + row, c * GA_STRIP + column, value);
                              });
}

//@ runs(type, half)
/* -- a product of sm_90a. A tile has 128 rows and 256 columns, a slice of it is 64 terms deep. The CLUSTER blocks of a
 * cluster have tiles below each other: each copies its rows of A, and to all of them a part of the columns of B. All
 * slices of all such piles of tiles are one line, pile by pile, and each cluster has an equal run of it. The first
 * warpgroup of a block copies slices into a ring, two others multiply: each 64 of the rows. The sums of a pile that no
 * cluster has alone are parts: a second kernel adds them up in the order of their terms. So the sizes that the host
 * gives, clusters among them, decide about the order of each sum. */

enum {
    GA_RING = 4,          /* slices */
    GA_DEEP = 64,         /* terms of a slice: rows of 128 bytes, or panels of 64 rows of 64 neighbours */
    GA_PANEL = 64 * 128,  /* bytes */
    GA_TALL = 128, GA_WIDE = 256,
    GA_A_BYTES = GA_TALL * 128, GA_SLICE_BYTES = (GA_TALL + GA_WIDE) * 128
};

template <int CLUSTER> struct ga_run {
    enum { PILE = CLUSTER * GA_TALL };
    int M, N, clusters, piles, slices;

    __device__ __forceinline__ ga_run(const product_sizes &size)
        : M(size.M), N(size.N), clusters(size.clusters),
          piles((size.M + PILE - 1) / PILE * ((size.N + GA_WIDE - 1) / GA_WIDE)),
          slices((size.K + GA_DEEP - 1) / GA_DEEP) {}
    /* The first slice of a cluster's run; that behind the last cluster is the end of all. */
    __device__ __forceinline__ int first(int cluster) const {
        return piles * slices * cluster / clusters;
    }
    /* The first row and column of this block's tile of a pile. */
    __device__ __forceinline__ void place(int &i0, int &j0, int pile) const {
        ga_tile_place<PILE, GA_WIDE>(M, N, i0, j0, pile);
        i0 += blockIdx.x % CLUSTER * GA_TALL;
    }
    /* Where this block's number of a cluster keeps the part of a tile that has its first slice, or of one that it
     * begins with another slice. */
    __device__ __forceinline__ ga_int64 part(int cluster, bool begins) const {
        return (ga_int64)(2 * (cluster * CLUSTER + blockIdx.x % CLUSTER) + begins) * (GA_TALL * GA_WIDE);
    }
};

/* Copies a slice of an operand to BLOCKS blocks: EXTENT rows (columns) from i0 on, its terms from k0 on. */
template <int BLOCKS, int EXTENT, bool TURNED>
GA_DEVICE void ga_slice_copy(ga_byte *to, const ga_boxes &from, ga_uint64 *gate, int i0, int k0) {
    if (TURNED)
        for (int panel = 0; panel < EXTENT / 64; panel++)
            ga_box_to<BLOCKS>(to + panel * GA_PANEL, from, gate, i0 + panel * 64, k0);
    else
        ga_box_to<BLOCKS>(to, from, gate, k0, i0);
}

/* The work of the first warpgroup: one thread copies all slices of the run, when no block of the cluster reads their
 * place any more. */
template <int CLUSTER, bool A_TURNED, bool B_TURNED>
GA_DEVICE void ga_run_copy(ga_byte *ring, const ga_boxes &a, const ga_boxes &b, const ga_run<CLUSTER> &run,
                           ga_uint64 *full, ga_uint64 *empty) {
    enum { WIDE = GA_WIDE / CLUSTER };
    const int cluster = blockIdx.x / CLUSTER, j = blockIdx.x % CLUSTER * WIDE;
    const int begin = run.first(cluster), count = run.first(cluster + 1) - begin;
    int pile = begin / run.slices, s = begin % run.slices, i0, j0;
    ga_boxes_soon(a);
    ga_boxes_soon(b);
    run.place(i0, j0, pile);
    for (int n = 0; n < count; n++, s++) {
        const int place = n % GA_RING;
        ga_byte *slice = ring + place * GA_SLICE_BYTES;
        if (s == run.slices) {
            s = 0;
            run.place(i0, j0, ++pile);
        }
        ga_gate_wait(empty + place, ~(n / GA_RING) & 1);
        ga_gate_expect(full + place, GA_SLICE_BYTES);
        ga_slice_copy<1, GA_TALL, A_TURNED>(slice, a, full + place, i0, s * GA_DEEP);
        ga_slice_copy<CLUSTER, WIDE, B_TURNED>(slice + GA_A_BYTES + j * 128, b, full + place, j0 + j, s * GA_DEEP);
    }
}

//@ sums(type, half)
/* Adds the products of `count` slices, the first one number n of the block, to the sums of a warpgroup. A thread for
 * each block of the cluster tells it which place is free. */
template <int CLUSTER, bool A_TURNED, bool B_TURNED>
GA_DEVICE void ga_run_multiply(float (&sum)[32][4], const ga_byte *ring, ga_uint64 *full, ga_uint64 *empty, int group,
                               int n, int count) {
    enum { A_STEP = A_TURNED ? 2048 : 32, B_STEP = B_TURNED ? 2048 : 32 }; /* bytes of 16 terms */
    const int block = threadIdx.x % 128;
    ga_settle(sum);
    for (int s = 0; s < count; s++, n++) {
        const ga_byte *slice = ring + n % GA_RING * GA_SLICE_BYTES;
        const ga_uint64 x = ga_operand(slice + group * GA_PANEL, GA_PANEL), y = ga_operand(slice + GA_A_BYTES, GA_PANEL);
        ga_gate_wait(full + n % GA_RING, n / GA_RING & 1);
        ga_group_begin();
#pragma unroll
        for (int k = 0; k < GA_DEEP / 16; k++)
            ga_group_multiply<A_TURNED, B_TURNED>(sum, x + k * (A_STEP >> 4), y + k * (B_STEP >> 4));
        ga_group_commit();
        ga_group_wait<1>(); /* the place of slice n - 1 is free */
        if (s > 0 && block < CLUSTER) ga_gate_arrive(empty + (n - 1) % GA_RING, block);
    }
    ga_group_wait<0>();
    ga_settle(sum);
    if (block < CLUSTER) ga_gate_arrive(empty + (n - 1) % GA_RING, block);
}

/* The work of the other two: the sums of each tile of the run, then store(i, j, value), or a part. */
template <int CLUSTER, bool A_TURNED, bool B_TURNED, typename STORE>
GA_DEVICE void ga_run_sums(const ga_byte *ring, float *scratch, const ga_run<CLUSTER> &run, ga_uint64 *full,
                           ga_uint64 *empty, float *parts, STORE store) {
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES - 4, group = warp / 4;
    const int cluster = blockIdx.x / CLUSTER, begin = run.first(cluster), end = run.first(cluster + 1);
    for (int at = begin; at < end;) {
        const int from = at % run.slices, rest = run.slices - from, count = rest < end - at ? rest : end - at;
        float sum[32][4] = {};
        ga_run_multiply<CLUSTER, A_TURNED, B_TURNED>(sum, ring, full, empty, group, at - begin, count);
        int i0, j0;
        run.place(i0, j0, at / run.slices);
        float *part = parts + run.part(cluster, from == 0);
        ga_group_store(scratch + warp * GA_SCRATCH, sum, warp * 16, lane, [&](int i, int j, float (&value)[8]) {
            if (count < run.slices)
                ga_put8<true>(part + i * GA_WIDE + j, value, 8);
            else if (i0 + i < run.M && j0 + j < run.N)
                store(i0 + i, j0 + j, value);
        });
        at += count;
    }
}

//@ products(type, half)
/* The product of a block of three warpgroups; calls store(i, j, value) for each eight neighbours of whole tiles. */
template <int CLUSTER, bool A_TURNED, bool B_TURNED, typename STORE>
GA_DEVICE void ga_boxes_product(ga_byte *memory, const ga_boxes &a, const ga_boxes &b, const product_sizes &size,
                                float *parts, STORE store) {
    const ga_run<CLUSTER> run(size);
    float *scratch = (float *)(memory + GA_RING * GA_SLICE_BYTES);
    ga_uint64 *full = (ga_uint64 *)(scratch + 8 * GA_SCRATCH), *empty = full + GA_RING;
    if (threadIdx.x == 0) {
        for (int place = 0; place < GA_RING; place++) {
            ga_gate_init(full + place, 1);
            ga_gate_init(empty + place, 2 * CLUSTER);
        }
        ga_gates_ready();
    }
    ga_cluster_wait(); /* all know the gates */
    if (threadIdx.x < 128) {
        ga_registers_less<40>();
        if (threadIdx.x == 0) ga_run_copy<CLUSTER, A_TURNED, B_TURNED>(memory, a, b, run, full, empty);
    } else {
        ga_registers_more<232>();
        ga_run_sums<CLUSTER, A_TURNED, B_TURNED>(memory, scratch, run, full, empty, parts, store);
    }
    ga_cluster_wait(); /* no block arrives at gates of one that has ended */
}

/* The tile of this block, if it came in parts: their sums in the order of the terms, eight neighbours at a time. */
template <int CLUSTER, typename STORE>
GA_DEVICE void ga_parts_sum(const product_sizes &size, const float *parts, STORE store) {
    const ga_run<CLUSTER> run(size);
    const int pile = blockIdx.x / CLUSTER, from = pile * run.slices, end = from + run.slices;
    int first = pile * run.clusters / run.piles, i0, j0; /* the cluster with slice `from` */
    while (run.first(first + 1) <= from) first++;
    if (run.first(first + 1) >= end) return; /* it has all of the pile */
    run.place(i0, j0, pile);
    for (int s = threadIdx.x; s < GA_TALL * GA_WIDE / 8; s += blockDim.x) {
        const int i = s / (GA_WIDE / 8), j = s % (GA_WIDE / 8) * 8;
        if (i0 + i >= run.M || j0 + j >= run.N) continue;
        float value[8] = {};
        for (int cluster = first; cluster < run.clusters && run.first(cluster) < end; cluster++)
            if (run.first(cluster) < run.first(cluster + 1))
                ga_add8<true>(value, parts + run.part(cluster, run.first(cluster) <= from) + i * GA_WIDE + j, 8);
        store(i0 + i, j0 + j, value);
    }
}

//@ totals(type, half)
/* -- sums of a turned operand over the terms: of each of `count` columns, the terms in equal parts. A part has memory for
 * the columns up to a multiple of 4, so that each four of them are 16 bytes. */

enum { GA_TERM_TEAMS = 32 };

GA_DEVICE int ga_terms_row(int count) { return (count + 3) / 4 * 4; }

/* The sums of 64 columns in one of `parts` parts, x with rows `row` apart. A thread has eight neighbours of every
 * GA_TERM_TEAMS-th term. */
GA_DEVICE void ga_terms_sum(float (&teams)[GA_TERM_TEAMS][64], float *to, const $type *x, int row, int count, int terms,
                            int parts) {
    const int across = (count + 63) / 64, part = blockIdx.x / across, first = blockIdx.x % across * 64;
    const int chunk = threadIdx.x % 8 * 8, team = threadIdx.x / 8;
    const int begin = (int)((ga_int64)terms * part / parts), end = (int)((ga_int64)terms * (part + 1) / parts);
    float sums[8] = {};
#pragma unroll 4
    for (int k = begin + team; k < end && first + chunk < count; k += GA_TERM_TEAMS)
        ga_add8<true>(sums, x + (ga_int64)k * row + first + chunk, 8);
#pragma unroll
    for (int e = 0; e < 8; e++) teams[team][chunk + e] = sums[e];
    __syncthreads(); /* all teams have their sums there */
    const int to_row = ga_terms_row(count);
    if (threadIdx.x >= 64 || first + threadIdx.x >= to_row) return;
    float sum = 0;
    for (int t = 0; t < GA_TERM_TEAMS; t++) sum += teams[t][threadIdx.x];
    to[part * to_row + first + threadIdx.x] = sum;
}

/* Calls put(n, total) for each four columns that begin inside. */
template <typename PUT> GA_DEVICE void ga_terms_total(const float *from, int count, int parts, PUT put) {
    const int n = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (n >= count) return;
    ga_few<float, 4> total = {};
    for (int part = 0; part < parts; part++) {
        const auto some = ga_read<4>(from + part * ga_terms_row(count) + n);
        for (int e = 0; e < 4; e++) total.at[e] += some.at[e];
    }
    put(n, total);
}
