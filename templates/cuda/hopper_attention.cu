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

/* The shared memory of a block, for heads of D elements. */
template <int D> struct ga_head_memory {
    enum { PANELS = D / 64, SLICE = PANELS * GA_HEAD_PANEL };
    ga_byte *queries, *ring;
    float *scratch;
    ga_uint64 *asked, *answered; /* the queries of a tile are there; their scores are */
    ga_uint64 *full, *empty;     /* for each slice of the ring */
};

/* Places it from `memory` on, a multiple of 1024 bytes, and makes its gates. */
template <int D> GA_DEVICE ga_head_memory<D> ga_head_open(ga_byte *memory) {
    typedef ga_head_memory<D> own;
    float *scratch = (float *)(memory + (1 + GA_HEAD_RING) * own::SLICE);
    ga_uint64 *gates = (ga_uint64 *)(scratch + 8 * GA_SCRATCH);
    if (threadIdx.x == 0) {
        for (int gate = 0; gate < 1 + GA_HEAD_RING; gate++) {
            ga_gate_init(gates + 2 * gate, 1);
            ga_gate_init(gates + 2 * gate + 1, 2);
        }
        ga_gates_ready();
    }
    __syncthreads(); /* all know the gates */
    return {memory, memory + own::SLICE, scratch, gates, gates + 1, gates + 2, gates + 3};
}

//@ copies(type, half)
/* Begins the copies of 128 rows of a head. */
template <int D>
GA_DEVICE void ga_head_copy(ga_byte *to, const ga_boxes &from, ga_uint64 *gate, int column, int row, int sheet) {
    typedef ga_head_memory<D> own;
    ga_gate_expect(gate, own::SLICE);
    for (int panel = 0; panel < own::PANELS; panel++)
        ga_sheet_box(to + panel * GA_HEAD_PANEL, from, gate, column + panel * 64, row, sheet);
}

/* The same for slice number n, when its place is free. */
template <int D>
GA_DEVICE void ga_head_slice(const ga_head_memory<D> &m, int n, const ga_boxes &from, int column, int row, int sheet) {
    const int place = n % GA_HEAD_RING;
    ga_gate_wait(m.empty + 2 * place, ~(n / GA_HEAD_RING) & 1);
    ga_head_copy<D>(m.ring + place * m.SLICE, from, m.full + 2 * place, column, row, sheet);
}

/* The work of the first warpgroup: one thread copies all that the tiles of the block need. stop(i0): the end of the keys
 * of the tile with query i0. */
template <int D, int HEADS, int GROUP, typename LINE, typename STOP>
GA_DEVICE void ga_heads_copy(const ga_head_memory<D> &m, const ga_boxes &q, const ga_boxes &k, const ga_boxes &v,
                             STOP stop) {
    int tile, head, n = 0;
    ga_boxes_soon(q);
    ga_boxes_soon(k);
    ga_boxes_soon(v);
    for (int round = 0; LINE::at(round, tile, head); round++) {
        const int i0 = tile * GA_HEAD_TALL, h = head % HEADS, sheet = head / HEADS, end = stop(i0);
        ga_gate_wait(m.answered, ~round & 1);
        ga_head_copy<D>(m.queries, q, m.asked, h * D, i0, sheet);
        for (int j0 = 0; j0 < end; j0 += GA_HEAD_KEYS) {
            ga_head_slice<D>(m, n++, k, h / GROUP * D, j0, sheet);
            ga_head_slice<D>(m, n++, v, h / GROUP * D, j0, sheet);
        }
    }
}

//@ products(type, half)
/* What is done with these registers is done before here, or behind it. */
template <int N> GA_DEVICE void ga_settle(float (&d)[N][4]) {
#pragma unroll
    for (int v = 0; v < N; v++)
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[v][e])::"memory");
}

/* Waits for the products of both. */
template <int N, int M> GA_DEVICE void ga_head_wait(float (&score)[N][4], float (&sum)[M][4]) {
    ga_group_wait<0>();
    ga_settle(score);
    ga_settle(sum);
}

/* Begins the scores of 64 queries and the keys of slice n, when they are there. */
template <int D>
GA_DEVICE void ga_head_scores(float (&score)[GA_HEAD_KEYS / 8][4], const ga_head_memory<D> &m, int group, int n) {
    const int place = n % GA_HEAD_RING;
    const ga_uint64 x = ga_operand(m.queries + group * (GA_HEAD_PANEL / 2), GA_HEAD_PANEL);
    const ga_uint64 y = ga_operand(m.ring + place * m.SLICE, GA_HEAD_PANEL);
    ga_gate_wait(m.full + 2 * place, n / GA_HEAD_RING & 1);
    ga_group_begin();
    ga_group_dots<false>(score, x, y);
#pragma unroll
    for (int k = 16; k < D; k += 16) {
        const int step = (k / 64 * GA_HEAD_PANEL + k % 64 * 2) >> 4;
        ga_group_dots<true>(score, x + step, y + step);
    }
    ga_group_commit();
}

/* Begins to add the values of slice n, by these weights rounded to $half, when they are there. */
template <int D>
GA_DEVICE void ga_head_sums(float (&sum)[D / 8][4], const float (&weight)[GA_HEAD_KEYS / 8][4],
                            const ga_head_memory<D> &m, int n) {
    const int place = n % GA_HEAD_RING;
    const ga_uint64 y = ga_operand(m.ring + place * m.SLICE, GA_HEAD_PANEL);
    ga_uint32 a[GA_HEAD_KEYS / 16][4];
#pragma unroll
    for (int k = 0; k < GA_HEAD_KEYS / 8; k++) {
        a[k / 2][k % 2 * 2] = ga_narrow_pair(weight[k][0], weight[k][1]);
        a[k / 2][k % 2 * 2 + 1] = ga_narrow_pair(weight[k][2], weight[k][3]);
    }
    ga_gate_wait(m.full + 2 * place, n / GA_HEAD_RING & 1);
    ga_settle(sum);
    ga_group_begin();
#pragma unroll
    for (int k = 0; k < GA_HEAD_KEYS / 16; k++) ga_group_add(sum, a[k], y + k * (16 * 128 >> 4));
    ga_group_commit();
}

/* Of 128 keys' mask, n of which are there, that of this thread's columns: bit 2 v of seen[e % 2] is that of element e of
 * the v-th eight. */
GA_DEVICE void ga_keys_seen(ga_uint32 (&seen)[2], const int *mask, int n, int lane) {
    ga_few<int, 4> own = {};
    ga_uint32 lanes[4]; /* which lanes' keys are seen, of each four */
    if (4 * lane < n) own = ga_read<4>(mask + 4 * lane);
#pragma unroll
    for (int e = 0; e < 4; e++) lanes[e] = __ballot_sync(GA_ALL_LANES, own.at[e] != 0);
#pragma unroll
    for (int e = 0; e < 2; e++) seen[e] = (lane % 2 ? lanes[e + 2] : lanes[e]) >> lane % 4 / 2;
}
