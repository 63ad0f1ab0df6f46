// hopper_attention: attention for sm_90a. Blocks stay and go along the tiles of all heads.

//@ tiles(type, half)
/* -- attention of sm_90a. A tile is 128 queries of a head. The first warpgroup of a block copies the queries of its
 * tiles, and keys and values, 128 at a time, through a ring of slices: the keys of a step, then their values. The other
 * two compute 64 queries each. A tile is the work of one block, so no sum depends on the number of blocks. */

enum {
    GA_HEAD_TALL = 128,         /* queries of a tile */
    GA_HEAD_KEYS = 128,         /* of a step */
    GA_HEAD_RING = 4,           /* slices */
    GA_HEAD_PANEL = 128 * 128   /* bytes: 128 rows of 64 elements */
};

/* The tiles of all heads as a line. AT_ONCE heads, whose keys and values a cache holds, come before the next ones; of
 * these the last tile of each head comes first, which has the most keys. Blocks take one tile each, round by round, and
 * every second round in the other direction. */
template <int TILES, int HEADS, int AT_ONCE> struct ga_head_line {
    /* The tile of this block in a round, and its head, counted over all sequences; false: there are no more. */
    static __device__ __forceinline__ bool at(int round, int &tile, int &head) {
        const int block = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x, n = round * gridDim.x + block;
        const int first = n / (AT_ONCE * TILES) * AT_ONCE, place = n - first * TILES;
        const int heads = HEADS - first < AT_ONCE ? HEADS - first : (int)AT_ONCE;
        if (n >= TILES * HEADS) return false;
        tile = TILES - 1 - place / heads, head = first + place % heads;
        return true;
    }
};

/* The shared memory of a block, for heads of D elements; a tile has KEPT matrices of its own. */
template <int D, int KEPT> struct ga_head_memory {
    enum { PANELS = D / 64, SLICE = PANELS * GA_HEAD_PANEL };
    ga_byte *own, *ring;
    float *scratch;
    ga_uint64 *asked, *answered; /* the rows of a tile are there; they are not needed any more */
    ga_uint64 *full, *empty;     /* for each slice of the ring */
};

/* Places it from `memory` on, a multiple of 1024 bytes, and makes its gates. */
template <int D, int KEPT> GA_DEVICE ga_head_memory<D, KEPT> ga_head_open(ga_byte *memory) {
    enum { SLICE = ga_head_memory<D, KEPT>::SLICE };
    float *scratch = (float *)(memory + (KEPT + GA_HEAD_RING) * SLICE);
    ga_uint64 *gates = (ga_uint64 *)(scratch + 8 * GA_SCRATCH);
    if (threadIdx.x == 0) {
        for (int gate = 0; gate < 1 + GA_HEAD_RING; gate++) {
            ga_gate_init(gates + 2 * gate, 1);
            ga_gate_init(gates + 2 * gate + 1, 2);
        }
        ga_gates_ready();
    }
    __syncthreads(); /* all know the gates */
    return {memory, memory + KEPT * SLICE, scratch, gates, gates + 1, gates + 2, gates + 3};
}

//@ copies(type, half)
/* Begins the copies of 128 rows of a head. */
template <int D>
GA_DEVICE void ga_head_copy(ga_byte *to, const ga_boxes &from, ga_uint64 *gate, int column, int row, int sheet) {
    ga_gate_expect(gate, ga_head_memory<D, 1>::SLICE);
    for (int panel = 0; panel < D / 64; panel++)
        ga_sheet_box(to + panel * GA_HEAD_PANEL, from, gate, column + panel * 64, row, sheet);
}

/* The same for slice number n, when its place is free. */
template <int D>
GA_DEVICE void ga_head_slice(const ga_head_memory<D, 1> &m, int n, const ga_boxes &from, int column, int row,
                             int sheet) {
    const int place = n % GA_HEAD_RING;
    ga_gate_wait(m.empty + 2 * place, ~(n / GA_HEAD_RING) & 1);
    ga_head_copy<D>(m.ring + place * m.SLICE, from, m.full + 2 * place, column, row, sheet);
}

/* The work of the first warpgroup: one thread copies all that the tiles of the block need. stop(i0): the end of the keys
 * of the tile with query i0. */
template <int D, int HEADS, int GROUP, typename LINE, typename STOP>
GA_DEVICE void ga_heads_copy(const ga_head_memory<D, 1> &m, const ga_boxes &q, const ga_boxes &k, const ga_boxes &v,
                             STOP stop) {
    int tile, head, n = 0;
    ga_boxes_soon(q);
    ga_boxes_soon(k);
    ga_boxes_soon(v);
    for (int round = 0; LINE::at(round, tile, head); round++) {
        const int i0 = tile * GA_HEAD_TALL, h = head % HEADS, sheet = head / HEADS, end = stop(i0);
        ga_gate_wait(m.answered, ~round & 1);
        ga_head_copy<D>(m.own, q, m.asked, h * D, i0, sheet);
        for (int j0 = 0; j0 < end; j0 += GA_HEAD_KEYS) {
            ga_head_slice<D>(m, n++, k, h / GROUP * D, j0, sheet);
            ga_head_slice<D>(m, n++, v, h / GROUP * D, j0, sheet);
        }
    }
}

//@ products(type, half)
/* Waits for the products of both. */
template <int N, int M> GA_DEVICE void ga_head_wait(float (&score)[N][4], float (&sum)[M][4]) {
    ga_group_wait<0>();
    ga_settle(score);
    ga_settle(sum);
}

/* Begins the products of 64 rows a with rows b of D elements; PANEL bytes lie between elements 0 and 64 of a row. */
template <int D, int PANEL, int N>
GA_DEVICE void ga_head_dots(float (&score)[N][4], const ga_byte *a, const ga_byte *b) {
    const ga_uint64 x = ga_operand(a, PANEL), y = ga_operand(b, PANEL);
    ga_group_begin();
    ga_group_dots<false>(score, x, y);
#pragma unroll
    for (int k = 16; k < D; k += 16) {
        const int step = (k / 64 * PANEL + k % 64 * 2) >> 4;
        ga_group_dots<true>(score, x + step, y + step);
    }
    ga_group_commit();
}

/* Weights of 64 rows, rounded to $half: the first operand of a product. */
template <int N> GA_DEVICE void ga_head_round(ga_uint32 (&a)[N / 2][4], const float (&weight)[N][4]) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        a[k / 2][k % 2 * 2] = ga_narrow_pair(weight[k][0], weight[k][1]);
        a[k / 2][k % 2 * 2 + 1] = ga_narrow_pair(weight[k][2], weight[k][3]);
    }
}

/* Begins to add 16 N rows to the sums, by these weights. */
template <int PANEL, int M, int N>
GA_DEVICE void ga_head_add(float (&sum)[M][4], const ga_uint32 (&a)[N][4], const ga_byte *rows) {
    const ga_uint64 y = ga_operand(rows, PANEL);
    ga_settle(sum);
    ga_group_begin();
#pragma unroll
    for (int k = 0; k < N; k++) ga_group_add(sum, a[k], y + k * (16 * 128 >> 4));
    ga_group_commit();
}

/* Begins the scores of 64 queries and the keys of slice n, when they are there. */
template <int D>
GA_DEVICE void ga_head_scores(float (&score)[GA_HEAD_KEYS / 8][4], const ga_head_memory<D, 1> &m, int group, int n) {
    const int place = n % GA_HEAD_RING;
    ga_gate_wait(m.full + 2 * place, n / GA_HEAD_RING & 1);
    ga_head_dots<D, GA_HEAD_PANEL>(score, m.own + group * (GA_HEAD_PANEL / 2), m.ring + place * m.SLICE);
}

/* Begins to add the values of slice n, by these weights, when they are there. */
template <int D>
GA_DEVICE void ga_head_sums(float (&sum)[D / 8][4], const float (&weight)[GA_HEAD_KEYS / 8][4],
                            const ga_head_memory<D, 1> &m, int n) {
    const int place = n % GA_HEAD_RING;
    ga_uint32 a[GA_HEAD_KEYS / 16][4];
    ga_head_round(a, weight);
    ga_gate_wait(m.full + 2 * place, n / GA_HEAD_RING & 1);
    ga_head_add<GA_HEAD_PANEL>(sum, a, m.ring + place * m.SLICE);
}

/* Of 128 keys' mask, n of which are there: bit k of seen[e] is that of key 4 k + e. */
GA_DEVICE void ga_mask_bits(ga_uint32 (&seen)[4], const int *mask, int n, int lane) {
    ga_few<int, 4> own = {};
    if (4 * lane < n) own = ga_read<4>(mask + 4 * lane);
#pragma unroll
    for (int e = 0; e < 4; e++) seen[e] = __ballot_sync(GA_ALL_LANES, own.at[e] != 0);
}

/* Those of this thread's columns: bit 2 v of seen[e % 2] is that of element e of the v-th eight. */
GA_DEVICE void ga_keys_seen(ga_uint32 (&seen)[2], const int *mask, int n, int lane) {
    ga_uint32 lanes[4];
    ga_mask_bits(lanes, mask, n, lane);
#pragma unroll
    for (int e = 0; e < 2; e++) seen[e] = (lane % 2 ? lanes[e + 2] : lanes[e]) >> lane % 4 / 2;
}

//@ attend_boxes(fn, params, shape, tile, visible, softmax, dropout)
/* $fn for sm_90a
 * Blocks stay and go along the tiles of all heads. While the scores of a step are computed, the values of the step
 * before are added up; exponentials of one warpgroup run beside products of the other. */
GA_KERNEL(384, 1) $(fn)_boxes($(params.boxes)) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { KEYS = GA_HEAD_KEYS, TILES = (T + GA_HEAD_TALL - 1) / GA_HEAD_TALL };
//% if shape.S then
    enum { S = $(shape.S) };  // keys; T: queries
//% end
    typedef ga_head_line<TILES, B * HEADS, $(tile.at_once)> line;
    extern __shared__ __align__(128) ga_byte shared[];
    const ga_head_memory<D, 1> m = ga_head_open<D, 1>(shared + (-ga_shared(shared) & 1023));
    auto stop_of = [](int i0) {
        const int n = i0 + GA_HEAD_TALL < T ? (int)GA_HEAD_TALL : T - i0;
        (void)i0, (void)n;
        return (int)($(visible.stop));
    };
    if (threadIdx.x < 128) {
        ga_registers_less<40>();
        if (threadIdx.x == 0) ga_heads_copy<D, HEADS, GROUP, line>(m, query_boxes, key_boxes, value_boxes, stop_of);
        return;
    }
    ga_registers_more<232>();
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES - 4, group = warp / 4, own = warp * 16;
    const bool speaks = threadIdx.x % 128 == 0;
    const float scale = $(softmax.scale) * GA_LOG2_E;
    for (int round = 0, n = 0, tile, head; line::at(round, tile, head); round++) {
        const int i0 = tile * GA_HEAD_TALL, h = head % HEADS, stop = stop_of(i0);
        const ga_int64 row = (ga_int64)(head / HEADS) * T;  // the first of the sequence
//% if dropout then
        const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
        float score[1][KEYS / 8][4], sum[1][D / 8][4] = {}, total[1][2] = {}, largest[1][2];
        largest[0][0] = largest[0][1] = -ga_infinity((real)0);
        ga_gate_wait(m.asked, round & 1);
        for (int j0 = 0; j0 < stop; j0 += KEYS, n += 2) {
//% if tile.mask then
            ga_uint32 seen[2];
            ga_keys_seen(seen, mask + row / T * $(shape.keys) + j0, $(shape.keys) - j0, lane);
//% end
            ga_head_scores(score[0], m, group, n);
            ga_head_wait(score[0], sum[0]);
            if (speaks) ga_gate_arrive(m.empty + n % GA_HEAD_RING * 2);
            if (speaks && j0 > 0) ga_gate_arrive(m.empty + (n - 1) % GA_HEAD_RING * 2);
            if (speaks && j0 + KEYS >= stop) ga_gate_arrive(m.answered);
            if ($(visible.edge))
                ga_each_score<1, KEYS>(lane, [&](int u, int v, int e, int down, int across) {
                    const int i = i0 + own + down, j = j0 + across;
                    if ($(visible.hidden)) score[u][v][e] = -ga_infinity((real)0);
                });
            ga_softmax_step(score, sum, largest, total, scale);
//% if dropout then
            const ga_draws drawn =
                ga_draws_from(z, ((ga_int64)h * T + i0 + own + lane / 4) * $(shape.keys) + j0 + lane % 4 * 2);
            ga_each_score<1, KEYS>(lane, [&](int u, int v, int e, int, int) {
                score[u][v][e] *= ga_draw(drawn, ga_score_at($(shape.keys), 1, u, v, e));
            });
//% end
            ga_head_sums(sum[0], score[0], m, n + 1);
        }
        ga_head_wait(score[0], sum[0]);
        if (speaks) ga_gate_arrive(m.empty + (n - 1) % GA_HEAD_RING * 2);
        ga_softmax_end(sum, largest, total, $(softmax.scale), lane, [&](int down, float x) {
            if (i0 + own + down < T) lse[row * HEADS + h * T + i0 + own + down] = x;
        });
        ga_group_store(m.scratch + warp * GA_SCRATCH, sum[0], own, lane, [&](int i, int c, float (&value)[8]) {
            if (i0 + i < T) ga_put8<true>(y + ((row + i0 + i) * HEADS + h) * D + c, value, 8);
        });
    }
}
