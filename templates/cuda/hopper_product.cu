// hopper_product: products for sm_90a. Blocks stay, have whole tiles in turns, and share the slices of the last ones.

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
/* -- a product of sm_90a. A tile has 128 rows and `wide` columns, 256 or 192; a slice of it is 64 terms deep. The
 * CLUSTER blocks of a cluster have tiles below each other, a pile: each copies its rows of A, and to all of them a part
 * of the columns of B. Clusters take the first piles in turns, so that those which run at the same time read the same
 * rows and columns. The last piles may be shared: `shares` clusters have `share` slices of each, all at the same terms;
 * the slices behind them, the tails of these piles, are one line, cut into equal runs for the other clusters. The sums of
 * a shared pile are parts: a second kernel adds them up in the order of their terms. So the sizes that the host gives,
 * clusters among them, decide about the order of each sum. The first warpgroup of a block copies slices into a ring, two
 * others multiply: each 64 of the rows. */

enum {
    GA_RING = 4,          /* slices */
    GA_DEEP = 64,         /* terms of a slice: rows of 128 bytes, or panels of 64 rows of 64 neighbours */
    GA_PANEL = 64 * 128,  /* bytes */
    GA_TALL = 128, GA_WIDEST = 256, GA_NARROW = 192,
    GA_A_BYTES = GA_TALL * 128, GA_SLICE_BYTES = (GA_TALL + GA_WIDEST) * 128, /* of a place */
    GA_PART_ROWS = 16     /* of a tile, whose parts a block of the second kernel adds up */
};

/* Slices that a cluster computes at a stretch: `count` of a pile; part: number of its place among the parts, or -1 if
 * they are all slices of the pile. */
struct ga_piece {
    int pile, from, count, part;
};

//@ walks(type, half)
/* The pieces of each cluster. WIDE: the columns of tiles; 0: as the sizes say. */
template <int CLUSTER, int WIDE> struct ga_run {
    enum { PILE = CLUSTER * GA_TALL };
    const product_sizes &size;

    __device__ __forceinline__ int slices() const { return (size.K + GA_DEEP - 1) / GA_DEEP; }
    __device__ __forceinline__ int wide() const { return WIDE ? WIDE : size.wide; }
    __device__ __forceinline__ int across() const { return (size.N + wide() - 1) / wide(); }
    /* Piles that are shared, clusters that have shares of them; the others, and the slices of a tail. */
    __device__ __forceinline__ int shared() const { return (size.M + PILE - 1) / PILE * across() - size.whole; }
    __device__ __forceinline__ int sharers() const { return size.shares * shared(); }
    __device__ __forceinline__ int others() const { return size.clusters - sharers(); }
    __device__ __forceinline__ int tail() const { return max(slices() - size.shares * size.share, 0); }
    /* The place of the first part of a shared pile, which has one for each share, and two for its tail. */
    __device__ __forceinline__ int first_part(int of_shared) const { return of_shared * (size.shares + 2); }
    /* Where the run of one of the clusters that have tails begins. */
    __device__ __forceinline__ int tail_run(int other) const { return shared() * tail() * other / others(); }

    /* Piece n of a cluster; false: there are fewer. */
    __device__ __forceinline__ bool piece(ga_piece &p, int cluster, int n) const {
        const int own = (size.whole - cluster + size.clusters - 1) / size.clusters;
        if (n < own) {
            p = {cluster + n * size.clusters, 0, slices(), -1};
            return true;
        }
        n -= own;
        if (cluster < sharers()) {
            const int number = cluster / shared(), of_shared = cluster % shared(), from = number * size.share;
            p = {size.whole + of_shared, from, min(size.share, slices() - from), first_part(of_shared) + number};
            return n == 0;
        }
        if (tail() == 0 || shared() == 0) return false;
        const int other = cluster - sharers(), begin = tail_run(other), end = tail_run(other + 1);
        const int of_shared = begin / tail() + n, first = of_shared * tail(), from = max(begin, first);
        p = {size.whole + of_shared, size.shares * size.share + from - first, min(first + tail(), end) - from,
             first_part(of_shared) + size.shares + (from > first)};
        return from < end;
    }
    /* The same with the first row and column of this block's tile; false: there are fewer. */
    __device__ __forceinline__ bool begin(ga_piece &p, int &i0, int &j0, int cluster, int n) const {
        if (!piece(p, cluster, n)) return false;
        place(i0, j0, p.pile);
        return true;
    }
    __device__ __forceinline__ void place(int &i0, int &j0, int pile) const {
        ga_tile_place(PILE, wide(), size.M, size.N, i0, j0, pile);
        i0 += blockIdx.x % CLUSTER * GA_TALL;
    }
    /* The parts of a shared pile: one or two of its tail. */
    __device__ __forceinline__ int parts_of(int of_shared) const {
        if (tail() == 0) return size.shares;
        const int begin = of_shared * tail();
        int other = begin * others() / (shared() * tail());
        while (tail_run(other) <= begin) other++;
        return size.shares + (tail_run(other) < begin + tail() ? 2 : 1);
    }
    /* Where the sums of A over the terms of a piece are kept, beside all parts of tiles: those of rows from i0 on. */
    __device__ __forceinline__ ga_int64 terms_at(const ga_piece &p, int i0) const {
        const int number = p.part < 0 ? 0 : p.part - first_part(p.pile - size.whole);
        return (ga_int64)first_part(shared()) * (PILE * wide()) + (i0 / PILE * (size.shares + 2) + number) * PILE + i0 % PILE;
    }
    /* The pieces that the first pile of a row of piles comes in; the first one. */
    __device__ __forceinline__ int pieces_of(ga_piece &p, int row) const {
        p.pile = row / 8 * 8 * across() + row % 8; /* as ga_tile_place has it */
        p.part = p.pile < size.whole ? -1 : first_part(p.pile - size.whole);
        return p.part < 0 ? 1 : parts_of(p.pile - size.whole);
    }
    /* Where this block of a cluster keeps a part of its tile. */
    __device__ __forceinline__ ga_int64 at(int part) const {
        return (ga_int64)(part * CLUSTER + blockIdx.x % CLUSTER) * (GA_TALL * wide());
    }
};

//@ slices(type, half)
/* Copies one of PARTS equal parts of a slice of an operand to BLOCKS blocks: the slice has `extent` rows (columns) from
 * i0 on, its terms from k0 on; a part has some of the rows, or of the terms where it would have no whole panels. */
template <int BLOCKS, int PARTS, bool TURNED>
GA_DEVICE void ga_slice_copy(ga_byte *to, const ga_boxes &from, ga_uint64 *gate, int extent, int i0, int k0, int part) {
    const int own = extent / PARTS, i = part * own, k = part * (GA_DEEP / PARTS);
    const bool by_terms = TURNED && own % 64 != 0;
    if (by_terms)
        for (int panel = 0; panel < extent / 64; panel++)
            ga_box_to<BLOCKS>(to + panel * GA_PANEL + k * 128, from, gate, i0 + panel * 64, k0 + k);
    else if (TURNED)
        for (int panel = 0; panel < own / 64; panel++)
            ga_box_to<BLOCKS>(to + i * 128 + panel * GA_PANEL, from, gate, i0 + i + panel * 64, k0);
    else
        ga_box_to<BLOCKS>(to + i * 128, from, gate, k0, i0 + i);
}

/* The work of the first warpgroup: one thread copies all slices of the run, when no block of the cluster reads their
 * place any more. */
template <int CLUSTER, int WIDE, bool A_TURNED, bool B_TURNED>
GA_DEVICE void ga_run_copy(ga_byte *ring, const ga_boxes &a, const ga_boxes &b, const ga_run<CLUSTER, WIDE> &run,
                           ga_uint64 *full, ga_uint64 *empty) {
    const int cluster = blockIdx.x / CLUSTER;
    ga_boxes_soon(a);
    ga_boxes_soon(b);
    ga_piece p;
    int i0, j0;
    for (int k = 0, n = 0; run.begin(p, i0, j0, cluster, k); k++)
        for (int s = p.from; s < p.from + p.count; s++, n++) {
            const int place = n % GA_RING;
            ga_byte *slice = ring + place * GA_SLICE_BYTES;
            ga_gate_wait(empty + place, ~(n / GA_RING) & 1);
            ga_gate_expect(full + place, (GA_TALL + run.wide()) * 128);
            ga_slice_copy<1, 1, A_TURNED>(slice, a, full + place, GA_TALL, i0, s * GA_DEEP, 0);
            ga_slice_copy<CLUSTER, CLUSTER, B_TURNED>(slice + GA_A_BYTES, b, full + place, run.wide(), j0,
                                                      s * GA_DEEP, blockIdx.x % CLUSTER);
        }
}

//@ run_terms(type, half)
/* The work of two other warps of that warpgroup in kernels with sums of A over the terms, A being turned: those of each
 * piece whose tile is the first of its row, to `to`. A warp has a panel of 64 columns, a lane eight of them at every
 * fourth term. */
template <int CLUSTER, int WIDE>
GA_DEVICE void ga_run_terms(const ga_byte *ring, const ga_run<CLUSTER, WIDE> &run, ga_uint64 *full, ga_uint64 *empty,
                            float *to) {
    const int lane = threadIdx.x % GA_LANES, panel = threadIdx.x / GA_LANES - 1, chunk = lane % 8;
    ga_piece p;
    int i0, j0;
    for (int k = 0, n = 0; run.begin(p, i0, j0, blockIdx.x / CLUSTER, k); k++) {
        float sums[8] = {};
        for (int s = 0; s < p.count; s++, n++) {
            const ga_byte *slice = ring + n % GA_RING * GA_SLICE_BYTES + panel * GA_PANEL;
            ga_gate_wait(full + n % GA_RING, n / GA_RING & 1);
#pragma unroll 4
            for (int term = lane / 8; term < GA_DEEP && j0 == 0; term += 4)
                ga_add8<true>(sums, (const $type *)(slice + term * 128 + (chunk ^ term % 8) * 16), 8);
            __syncwarp();
            if (lane == 0) ga_gate_arrive(empty + n % GA_RING);
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            sums[e] += __shfl_xor_sync(GA_ALL_LANES, sums[e], 8);
            sums[e] += __shfl_xor_sync(GA_ALL_LANES, sums[e], 16);
        }
        if (j0 == 0 && lane < 8) ga_put8<true>(to + run.terms_at(p, i0) + panel * 64 + chunk * 8, sums, 8);
    }
}

//@ beside(type, half)
/* Nothing is needed beside sums. */
struct ga_nothing {};

/* The operands beside the sums of a strip of a warp: read(i, j) of the two eights of a lane. */
template <typename BESIDE> struct ga_strip_reads {
    BESIDE upper, lower;
    template <typename READ> __device__ __forceinline__ void begin(int i, int j, READ read) {
        read(upper, i, j);
        read(lower, i + 8, j);
    }
};

/* Where four neighbours of a row of a strip lie in shared memory, number `four` of it: they are swapped so that neither
 * stores of pairs by eight rows nor reads of all of two rows meet in a bank. */
GA_DEVICE int ga_strip_four(int row, int four) {
    return row * GA_STRIP + (four ^ (row % 4 * 2 + row % 2)) * 4;
}

/* Eight neighbours of a row of a strip, from number `four` on, and, unless it is null, their bias. */
GA_DEVICE void ga_strip_eight(float (&value)[8], const float *strip, int row, int four, const float *bias) {
    const auto low = ga_read<4>(strip + ga_strip_four(row, four)), high = ga_read<4>(strip + ga_strip_four(row, four + 1));
    ga_few<float, 8> more = {};
    if (bias) more = ga_read<8>(bias);
#pragma unroll
    for (int e = 0; e < 8; e++) {
        value[e] = e < 4 ? low.at[e % 4] : high.at[e % 4];
        if (bias) value[e] += more.at[e];
    }
}

/* Puts strip n of the sums of a warp into shared memory. */
template <int EIGHTS> GA_DEVICE void ga_strip_begin(float *scratch, const float (&sum)[EIGHTS][4], int n, int lane) {
#pragma unroll
    for (int v = 0; v < EIGHTS; v++) {
        if (v / (GA_STRIP / 8) != n) continue; /* registers have no index */
        float *at = scratch + ga_strip_four(lane / 4, v % (GA_STRIP / 8) * 2 + lane % 4 / 2) + lane % 2 * 2;
        *(float2 *)at = make_float2(sum[v][0], sum[v][1]);
        *(float2 *)(at + 8 * GA_STRIP) = make_float2(sum[v][2], sum[v][3]);
    }
    __syncwarp();
}

/* Calls put(i, j, value, beside) for each eight neighbours of a strip of a warp, whose lane begins with row i and column
 * j, and reads those beside the strip two places on. bias: of all columns, in shared memory, or null. */
template <typename BESIDE, typename READ, typename PUT>
GA_DEVICE void ga_strip_put(const float *scratch, const float *bias, ga_strip_reads<BESIDE> &beside, int i, int j,
                            int lane, READ read, PUT put) {
    float value[8], lower[8];
    ga_strip_eight(value, scratch, lane / 4, lane % 4 * 2, bias ? bias + j : nullptr);
    put(i, j, value, beside.upper);
    ga_strip_eight(lower, scratch, lane / 4 + 8, lane % 4 * 2, bias ? bias + j : nullptr);
    put(i + 8, j, lower, beside.lower);
    if (!__is_empty(BESIDE)) beside.begin(i, j + 2 * GA_STRIP, read);
}

/* The same for all strips of `wide` columns. They go through shared memory one by one; operands beside them are read two
 * strips ahead: the reads of a strip would wait for each other, since what put stores may be what they read. */
template <int EIGHTS, typename BESIDE, typename READ, typename PUT>
GA_DEVICE void ga_strips_put(float *scratch, const float (&sum)[EIGHTS][4], int wide, const float *bias,
                             ga_strip_reads<BESIDE> even, ga_strip_reads<BESIDE> odd, int i, int j, int lane, READ read,
                             PUT put) {
    bool is_odd = false;
#pragma unroll 1
    for (int n = 0; n < wide / GA_STRIP; n++, j += GA_STRIP, is_odd = !is_odd) {
        ga_strip_begin(scratch, sum, n, lane);
        if (__is_empty(BESIDE) || !is_odd)
            ga_strip_put(scratch, bias, even, i, j, lane, read, put);
        else
            ga_strip_put(scratch, bias, odd, i, j, lane, read, put);
        __syncwarp();
    }
}

//@ multiply(type, half)
/* Begins the products of a slice as one group; multiply(k): of its terms from 16 k on. */
template <typename MULTIPLY> GA_DEVICE void ga_group_slice(MULTIPLY multiply) {
    ga_group_begin();
#pragma unroll
    for (int k = 0; k < GA_DEEP / 16; k++) multiply(k);
    ga_group_commit();
}

/* Adds the products of `count` slices, the first one number n of the block, to the sums of a warpgroup, of which narrow
 * tiles have some; calls meanwhile() beside the last one. A thread for each block of the cluster tells it which place is
 * free. */
template <int CLUSTER, bool A_TURNED, bool B_TURNED, int EIGHTS, typename MEANWHILE>
GA_DEVICE void ga_run_multiply(float (&sum)[EIGHTS][4], bool narrow, const ga_byte *ring, ga_uint64 *full,
                               ga_uint64 *empty, int group, int n, int count, MEANWHILE meanwhile) {
    enum { A_STEP = A_TURNED ? 2048 : 32, B_STEP = B_TURNED ? 2048 : 32 }; /* bytes of 16 terms */
    const int block = threadIdx.x % 128;
    ga_settle(sum);
    for (int s = 0; s < count; s++, n++) {
        const ga_byte *slice = ring + n % GA_RING * GA_SLICE_BYTES;
        const ga_uint64 x = ga_operand(slice + group * GA_PANEL, GA_PANEL), y = ga_operand(slice + GA_A_BYTES, GA_PANEL);
        ga_gate_wait(full + n % GA_RING, n / GA_RING & 1);
        /* a group stands in one branch: behind two of them NVRTC would end it by an empty product of its own */
        if (narrow)
            ga_group_slice([&](int k) {
                ga_group_multiply_192<A_TURNED, B_TURNED>(sum, x + k * (A_STEP >> 4), y + k * (B_STEP >> 4));
            });
        else
            ga_group_slice([&](int k) {
                ga_group_multiply_256<A_TURNED, B_TURNED>(sum, x + k * (A_STEP >> 4), y + k * (B_STEP >> 4));
            });
        ga_group_wait<1>(); /* the place of slice n - 1 is free */
        if (s > 0 && block < CLUSTER) ga_gate_arrive(empty + (n - 1) % GA_RING, block);
    }
    meanwhile();
    ga_group_wait<0>();
    ga_settle(sum);
    if (count > 0 && block < CLUSTER) ga_gate_arrive(empty + (n - 1) % GA_RING, block);
}

//@ sums(type, half)
/* The bias of eight columns from j on of N, zeros without one. */
GA_DEVICE ga_few<float, 8> ga_bias8(const float *bias, int j, int N) {
    ga_few<float, 8> eight = {};
    if (bias && j < N) eight = ga_read<8>(bias + j);
    return eight;
}

/* The work of the other two: the sums of each piece of the run, then store(i, j, value, beside), or a part. read(i, j):
 * what store needs beside the sums, read while products go on. bias: of each column, or null; a warp keeps that of its
 * tile in shared memory. */
template <int CLUSTER, int WIDE, bool A_TURNED, bool B_TURNED, typename READ, typename STORE>
GA_DEVICE void ga_run_sums(const ga_byte *ring, float *scratch, const ga_run<CLUSTER, WIDE> &run, ga_uint64 *full,
                           ga_uint64 *empty, const float *bias, float *parts, READ read, STORE store) {
    typedef decltype(read(0, 0)) BESIDE;
    const int wide = run.wide();
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES - 4, cluster = blockIdx.x / CLUSTER;
    float *strip = scratch + warp * (GA_SCRATCH + GA_WIDEST), *own_bias = bias ? strip + GA_SCRATCH : nullptr;
    ga_piece next = {0, 0, 0, -1};
    int next_i0 = run.size.M, next_j0 = 0;
    bool more = true;
    for (int k = 0, n = 0; more; k++) { /* the first turn has no slices, and finds the first piece */
        const ga_piece p = next;
        const int i0 = next_i0, j0 = next_j0, i = warp * 16 + lane / 4, j = lane % 4 * 8;
        float *part = p.part < 0 ? nullptr : parts + run.at(p.part);
        auto read_here = [&](BESIDE &beside, int i, int j) {
            if (!part && i0 + i < run.size.M && j < wide && j0 + j < run.size.N) beside = read(i0 + i, j0 + j);
        };
        ga_strip_reads<BESIDE> even, odd;
        even.begin(i, j, read_here);
        odd.begin(i, j + GA_STRIP, read_here);
        const ga_few<float, 8> bias8 = ga_bias8(p.from == 0 ? bias : nullptr, j0 + lane * 8, run.size.N);
        float sum[GA_WIDEST / 8][4] = {};
        ga_run_multiply<CLUSTER, A_TURNED, B_TURNED>(
            sum, wide == GA_NARROW, ring, full, empty, warp / 4, n, p.count,
            [&]() { more = run.begin(next, next_i0, next_j0, cluster, k); });
        if (p.count == 0) continue;
        if (own_bias && lane * 8 < wide) *(ga_few<float, 8> *)(own_bias + lane * 8) = bias8;
        ga_strips_put(strip, sum, wide, own_bias, even, odd, i, j, lane, read_here,
                      [&](int i, int j, float (&value)[8], const BESIDE &beside) {
                          if (part)
                              ga_put8<true>(part + i * wide + j, value, 8);
                          else if (i0 + i < run.size.M && j0 + j < run.size.N)
                              store(i0 + i, j0 + j, value, beside);
                      });
        n += p.count;
    }
}

//@ products(type, half)
/* The product of a block of three warpgroups; calls store(i, j, value, read(i, j)) for each eight neighbours of whole
 * tiles. TERMS: whether parts get sums of A over the terms, too. */
template <int CLUSTER, int WIDE, bool A_TURNED, bool B_TURNED, bool TERMS, typename READ, typename STORE>
GA_DEVICE void ga_boxes_product(ga_byte *memory, const ga_boxes &a, const ga_boxes &b, const product_sizes &size,
                                const float *bias, float *parts, READ read, STORE store) {
    const ga_run<CLUSTER, WIDE> run = {size};
    float *scratch = (float *)(memory + GA_RING * GA_SLICE_BYTES);
    ga_uint64 *full = (ga_uint64 *)(scratch + 8 * (GA_SCRATCH + GA_WIDEST)), *empty = full + GA_RING;
    if (threadIdx.x == 0) {
        for (int place = 0; place < GA_RING; place++) {
            ga_gate_init(full + place, 1);
            ga_gate_init(empty + place, 2 * CLUSTER + (TERMS ? 2 : 0));
        }
        ga_gates_ready();
    }
    ga_cluster_wait(); /* all know the gates */
    if (threadIdx.x < 128) {
        ga_registers_less<TERMS ? 56 : 40>();
        if (threadIdx.x == 0) ga_run_copy<CLUSTER, WIDE, A_TURNED, B_TURNED>(memory, a, b, run, full, empty);
        const int warp = threadIdx.x / GA_LANES;
        if (TERMS && (warp == 1 || warp == 2)) ga_run_terms<CLUSTER, WIDE>(memory, run, full, empty, parts);
    } else {
        ga_registers_more<TERMS ? 224 : 232>();
        ga_run_sums<CLUSTER, WIDE, A_TURNED, B_TURNED>(memory, scratch, run, full, empty, bias, parts, read, store);
    }
    ga_cluster_wait(); /* no block arrives at gates of one that has ended */
}

/* Some rows of a tile of a shared pile: the sums of its parts in the order of the terms, eight neighbours at a time. */
template <int CLUSTER, int WIDE, typename READ, typename STORE>
GA_DEVICE void ga_parts_sum(const product_sizes &size, const float *parts, READ read, STORE store) {
    const ga_run<CLUSTER, WIDE> run = {size};
    const int of_shared = blockIdx.x / CLUSTER % run.shared(), rows = blockIdx.x / CLUSTER / run.shared() * GA_PART_ROWS;
    const int count = run.parts_of(of_shared), wide = run.wide();
    int i0, j0;
    run.place(i0, j0, size.whole + of_shared);
    for (int s = threadIdx.x; s < GA_PART_ROWS * wide / 8; s += blockDim.x) {
        const int i = rows + s / (wide / 8), j = s % (wide / 8) * 8;
        if (i0 + i >= run.size.M || j0 + j >= run.size.N) continue;
        const auto beside = read(i0 + i, j0 + j);
        float value[8] = {};
#pragma unroll 4
        for (int n = 0; n < count; n++)
            ga_add8<true>(value, parts + run.at(run.first_part(of_shared) + n) + i * wide + j, 8);
        store(i0 + i, j0 + j, value, beside);
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

/* Calls put(n, total) for each four rows that begin inside, whose sums over the terms a product left beside its parts. */
template <int CLUSTER, int WIDE, typename PUT>
GA_DEVICE void ga_run_total(const product_sizes &size, const float *parts, PUT put) {
    const ga_run<CLUSTER, WIDE> run = {size};
    const int n = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (n >= size.M) return;
    ga_piece p;
    ga_few<float, 4> total = {};
    for (int count = run.pieces_of(p, n / run.PILE); count > 0; count--, p.part++) {
        const auto some = ga_read<4>(parts + run.terms_at(p, n));
        for (int e = 0; e < 4; e++) total.at[e] += some.at[e];
    }
    put(n, total);
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
