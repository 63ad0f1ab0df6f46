// hopper_attention_dx: the gradient of attention for sm_90a. Blocks stay and go along the tiles of all heads.

//@ walks(type, half)
/* -- the gradient of attention of sm_90a. A tile is 128 rows of a head: keys, with their values, or queries, with the
 * gradients of their results (dy). A block keeps both matrices of its tile and walks over the rows of the other side,
 * 64 at a time; a slice of the ring has both matrices of these. Products with 64 rows of the tile are the work of one
 * warpgroup. A tile is the work of one block, so no sum depends on the number of blocks. */

enum {
    GA_WALK_ROWS = 64,       /* of a step */
    GA_WALK_PANEL = 64 * 128 /* bytes: 64 rows of 64 elements */
};

/* Of a thread: numbers of the pairs of 64 rows of the tile, which are the work of a warpgroup, and those of a step. */
typedef float ga_walk_scores[1][GA_WALK_ROWS / 8][4];

/* The walk of a tile: its first row and its head, and the rows of the other side, `first` to `end` of each of `heads`
 * heads from `head` on. Both sides are of one sequence, the sheet. */
struct ga_walk {
    int sheet, own, row, head, heads, first, end;
    __device__ __forceinline__ int of_head() const {
        return first < end ? (end - first + GA_WALK_ROWS - 1) / GA_WALK_ROWS : 0;
    }
    __device__ __forceinline__ int steps() const {
        return heads * of_head();
    }
    __device__ __forceinline__ int head_at(int step) const {
        return heads > 1 ? head + step / of_head() : head;
    }
    __device__ __forceinline__ int row_at(int step) const {
        return first + (heads > 1 ? step % of_head() : step) * GA_WALK_ROWS;
    }
};

/* Begins the copies of 64 rows of a head. */
template <int D>
GA_DEVICE void ga_walk_copy(ga_byte *to, const ga_boxes &from, ga_uint64 *gate, int head, int row, int sheet) {
    for (int panel = 0; panel < D / 64; panel++)
        ga_sheet_box(to + panel * GA_WALK_PANEL, from, gate, head * D + panel * 64, row, sheet);
}

/* The work of the first warpgroup for the tiles of a side: one thread copies all that they need. `tiles` and n: how
 * many tiles and slices came before. next(round, w): the walk of this block; false: there are no more. */
template <int D, typename NEXT>
GA_DEVICE void ga_walks_copy(const ga_head_memory<D, 2> &m, int &tiles, int &n, const ga_boxes &own,
                             const ga_boxes &own_too, const ga_boxes &other, const ga_boxes &other_too, NEXT next) {
    enum { SLICE = ga_head_memory<D, 2>::SLICE, HALF = SLICE / 2 };
    ga_walk w;
    for (int round = 0; next(round, w); round++, tiles++) {
        ga_gate_wait(m.answered, ~tiles & 1);
        ga_gate_expect(m.asked, 2 * SLICE);
        for (int half = 0; half < 2; half++) {
            ga_walk_copy<D>(m.own + half * HALF, own, m.asked, w.own, w.row + half * 64, w.sheet);
            ga_walk_copy<D>(m.own + SLICE + half * HALF, own_too, m.asked, w.own, w.row + half * 64, w.sheet);
        }
        for (int step = 0; step < w.steps(); step++, n++) {
            const int place = n % GA_HEAD_RING, head = w.head_at(step), row = w.row_at(step);
            ga_uint64 *full = m.full + 2 * place;
            ga_gate_wait(m.empty + 2 * place, ~(n / GA_HEAD_RING) & 1);
            ga_gate_expect(full, SLICE);
            ga_walk_copy<D>(m.ring + place * SLICE, other, full, head, row, w.sheet);
            ga_walk_copy<D>(m.ring + place * SLICE + HALF, other_too, full, head, row, w.sheet);
        }
    }
}

//@ facts(type, half)
/* Facts of 64 queries, which a warp has in shared memory of its own: 64 times lse, to base 2, then 64 times delta. A
 * lane reads four of these numbers; n of the queries are there, the others get zeros. T: positions of a sequence. */
template <int T>
GA_DEVICE void ga_facts_read(float (&held)[4], const float *lse, const float *delta, int n, int lane) {
    enum { FEW = T % 4 == 0 ? 4 : 1 };
#pragma unroll
    for (int k = 0; k < 4; k += FEW) {
        const int at = k * GA_LANES + lane * FEW, i = at % GA_WALK_ROWS;
        const bool of_lse = at < GA_WALK_ROWS;
        ga_few<float, FEW> few = {};
        if (i < n) few = ga_read<FEW>((of_lse ? lse : delta) + i);
#pragma unroll
        for (int e = 0; e < FEW; e++) held[k + e] = few.at[e] * (of_lse ? GA_LOG2_E : 1);
    }
}

/* The warp has them behind its next __syncwarp. */
template <int T> GA_DEVICE void ga_facts_write(float *facts, const float (&held)[4], int lane) {
    enum { FEW = T % 4 == 0 ? 4 : 1 };
#pragma unroll
    for (int k = 0; k < 4; k += FEW)
#pragma unroll
        for (int e = 0; e < FEW; e++) facts[k * GA_LANES + lane * FEW + e] = held[k + e];
}

/* Number i, read with its neighbour, which the thread needs too. */
GA_DEVICE float ga_fact(const float *facts, int i) {
    const float2 two = ((const float2 *)facts)[i / 2];
    return i % 2 ? two.y : two.x;
}

/* Whether keys are seen, of 128 whose mask has n: bit i / 4 is that of row i of the tile, if the thread has it. */
GA_DEVICE ga_uint32 ga_rows_seen(const int *mask, int n, int lane) {
    ga_uint32 lanes[4];
    ga_mask_bits(lanes, mask, n, lane);
    const ga_uint32 even = lane / 8 % 2 ? lanes[2] : lanes[0], odd = lane / 8 % 2 ? lanes[3] : lanes[1];
    return lane / 4 % 2 ? odd : even;
}

//@ steps(type, half)
/* Waits until at most N groups of products go on; those that are over have read slice n, if it is no number below 0. */
template <int N, int D, int SUMS>
GA_DEVICE void ga_walk_free(float (&sum)[SUMS][D / 8][4], const ga_head_memory<D, 2> &m, int n) {
    ga_group_wait<N>();
    for (int k = 0; k < SUMS; k++) ga_settle(sum[k]);
    if (n >= 0 && threadIdx.x % 128 == 0) ga_gate_arrive(m.empty + n % GA_HEAD_RING * 2);
}

/* One step of a warpgroup, with slice n: p and ds begin as the products of its rows with the two matrices of the slice.
 * weigh(p) makes probabilities of scores, derive(p, ds) what rows of the slice are added up by: the first sums get ds
 * times the first matrix, others p times the second one. These products go on beside the next scores where registers
 * suffice. `before`: the slice of the step before; below 0: there is none. */
template <int D, int SUMS, typename WEIGH, typename DERIVE>
GA_DEVICE void ga_walk_step(float (&sum)[SUMS][D / 8][4], ga_walk_scores &p, ga_walk_scores &ds,
                            const ga_head_memory<D, 2> &m, int group, int n, int before, WEIGH weigh, DERIVE derive) {
    enum { SLICE = ga_head_memory<D, 2>::SLICE, HALF = SLICE / 2, BESIDE = SUMS * D <= 128 };
    const int place = n % GA_HEAD_RING;
    const ga_byte *own = m.own + group * HALF, *other = m.ring + place * SLICE;
    ga_uint32 weights[GA_WALK_ROWS / 16][4];
    if (!BESIDE) ga_walk_free<0, D>(sum, m, before);
    ga_gate_wait(m.full + 2 * place, n / GA_HEAD_RING & 1);
    ga_head_dots<D, GA_WALK_PANEL>(p[0], own, other);
    if (BESIDE) ga_walk_free<1, D>(sum, m, before);
    ga_head_dots<D, GA_WALK_PANEL>(ds[0], own + SLICE, other + HALF);
    ga_group_wait<1>();
    ga_settle(p[0]);
    weigh(p);
    ga_group_wait<0>();
    ga_settle(ds[0]);
    derive(p, ds);
    if (SUMS > 1) {
        ga_head_round(weights, p[0]);
        ga_head_add<GA_WALK_PANEL>(sum[SUMS - 1], weights, other + HALF);
    }
    ga_head_round(weights, ds[0]);
    ga_head_add<GA_WALK_PANEL>(sum[0], weights, other);
}

//@ whole(type, half)
/* -- whole heads: their queries are one tile, and their keys another. The walk of the keys keeps ds, so that the
 * gradients of the queries need no walk of their own. */

enum { GA_WHOLE_ROW = 2 * GA_HEAD_TALL + 16 }; /* bytes from a row to the next: eight rows lie in different banks */

/* Keeps ds of the 16 keys of a warp and the queries of a step, rounded to $half, from this place on. */
GA_DEVICE void ga_whole_keep(ga_byte *at, const ga_walk_scores &ds, int lane) {
#pragma unroll
    for (int v = 0; v < GA_WALK_ROWS / 8; v++)
#pragma unroll
        for (int r = 0; r < 2; r++)
            *(ga_uint32 *)(at + (lane / 4 + r * 8) * GA_WHOLE_ROW + v * 16 + lane % 4 * 4) =
                ga_narrow_pair(ds[0][v][2 * r], ds[0][v][2 * r + 1]);
}

/* Adds up the gradients of 16 queries of a warp, from `own` on, over all keys; `kept`: a row for each of them, with ds of
 * all queries. Both warpgroups do so at the same time, and may then keep other ds. */
template <int D>
GA_DEVICE void ga_whole_queries(float (&sum)[D / 8][4], const ga_byte *kept, const ga_byte *keys, int own, int lane) {
    ga_uint32 weights[2][GA_WALK_ROWS / 16][4];
    ga_threads_wait<1, 256>(); /* all have kept theirs */
#pragma unroll
    for (int k = 0; k < GA_HEAD_TALL / 16; k++)
        ga_matrices_turned(weights[k / 4][k % 4],
                           kept + (k * 16 + lane / 16 * 8 + lane % 8) * GA_WHOLE_ROW + own * 2 + lane / 8 % 2 * 16);
    ga_threads_wait<1, 256>(); /* all have read what they need */
    ga_head_add<GA_WALK_PANEL>(sum, weights[0], keys);
    ga_head_add<GA_WALK_PANEL>(sum, weights[1], keys + ga_head_memory<D, 2>::SLICE / 2);
    ga_group_wait<0>();
    ga_settle(sum);
}

//@ attend_dx_boxes(fn, params, shape, tile, visible, softmax, dropout, out)
/* $fn for sm_90a
//% if tile.whole then
 * Blocks stay and go along all heads, over the queries of each. p is computed again from lse; ds lacks the factor of the
 * scores, which the sums get in the end. */
//% else
 * Blocks stay and go along the tiles of keys of all heads, over the queries that use them; then along the tiles of
 * queries, over the keys. p is computed again from lse; ds lacks the factor of the scores, which the sums get in the
 * end. */
//% end
GA_KERNEL(384, 1) $(fn)_boxes($(params.boxes)) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row), KEY_HEADS = HEADS / GROUP, TALL = GA_HEAD_TALL };
//% if shape.S then
    enum { S = $(shape.S), KEY_TILES = (S + TALL - 1) / TALL };  // keys; T: queries
//% end
    enum { TILES = (T + TALL - 1) / TALL };
    typedef ga_head_line<$(tile.of_keys), B * KEY_HEADS, $(tile.keys_at_once)> key_line;
    extern __shared__ __align__(128) ga_byte shared[];
    ga_byte *memory = shared + (-ga_shared(shared) & 1023);
//% if tile.whole then
    ga_byte *kept = memory + $(tile.whole);
//% else
    typedef ga_head_line<TILES, B * HEADS, $(tile.at_once)> query_line;
//% end
    const ga_head_memory<D, 2> m = ga_head_open<D, 2>(memory);
    auto of_keys = [](int round, ga_walk &w) {
        int tile, head;
        if (!key_line::at(round, tile, head)) return false;
        const int own = head % KEY_HEADS, j0 = ($(tile.of_keys) - 1 - tile) * TALL; /* the first has most queries */
        w = {head / KEY_HEADS, own, j0, own * GROUP, GROUP, $(visible.first), T};
        return true;
    };
//% if not tile.whole then
    auto of_queries = [](int round, ga_walk &w) {
        int tile, head;
        if (!query_line::at(round, tile, head)) return false;
        const int i0 = tile * TALL, n = i0 + TALL < T ? (int)TALL : T - i0;
        (void)n;
        w = {head / HEADS, head % HEADS, i0, head % HEADS / GROUP, 1, 0, (int)($(visible.stop))};
        return true;
    };
//% end
    int tiles = 0, n = 0; /* so far, and slices */
    if (threadIdx.x < 128) {
        ga_registers_less<24>();
        if (threadIdx.x > 0) return;
        ga_walks_copy<D>(m, tiles, n, key_boxes, value_boxes, query_boxes, dy_boxes, of_keys);
//% if not tile.whole then
        ga_walks_copy<D>(m, tiles, n, query_boxes, dy_boxes, key_boxes, value_boxes, of_queries);
//% end
        return;
    }
    ga_registers_more<240>();
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES - 4, group = warp / 4, own = warp * 16;
    const float scale = $(softmax.scale) * GA_LOG2_E;
    float *scratch = m.scratch + warp * GA_SCRATCH; /* of this warp: facts of queries, then sums */
    ga_walk w;
//% if shape.packed then
    $out *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
//% end
    for (int round = 0; of_keys(round, w); round++, tiles++) {
        $(walk_of_keys { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
    }
//% if not tile.whole then
    for (int round = 0; of_queries(round, w); round++, tiles++) {
        $(walk_of_queries { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
    }
//% end
}

//@ walk_of_keys(shape, tile, visible, softmax, dropout)
//% -- In attend_dx_boxes: the gradients of 128 keys and values, summed over the queries of all heads that use them; of
//% -- a whole head those of its queries, too.
enum { KEYS = TALL };
const int j0 = w.row, steps = w.steps();
const ga_int64 row = (ga_int64)w.sheet * T;  // the first of the sequence
//% if shape.S then
const ga_int64 key_row = (ga_int64)w.sheet * S;  // its first key
//% end
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
ga_walk_scores p, ds;
float sum[2][D / 8][4] = {}, held[4]; /* of dk, dv; facts of the next queries */
auto read = [&](int step) {
    const int i0 = w.row_at(step);
    const ga_int64 head = row * HEADS + w.head_at(step) * T + i0;
    ga_facts_read<T>(held, lse + head, delta + head, T - i0, lane);
};
if (steps > 0) read(0);
//% if tile.mask then
const ga_uint32 seen = ga_rows_seen(mask + $(shape.key_row) + j0, $(shape.keys) - j0, lane);
//% end
ga_gate_wait(m.asked, tiles & 1);
for (int step = 0; step < steps; step++, n++) {
    const int i0 = w.row_at(step);
//% if dropout then
    const int h = w.head_at(step);
//% end
    float *facts = scratch + step % 2 * (2 * GA_WALK_ROWS);
    ga_facts_write<T>(facts, held, lane);
    __syncwarp();
    if (step + 1 < steps) read(step + 1);
    auto weigh = [&](ga_walk_scores &p) {
        if ($(visible.edge))
            ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int down, int across) {
                const int j = j0 + own + down, i = i0 + across;
                if ($(visible.hidden_key)) p[u][v][e] = -ga_infinity((real)0);
            });
        ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int, int across) {
            p[u][v][e] = ga_exp2(p[u][v][e] * scale - ga_fact(facts, across));
        });
    };
//% if dropout then
    const ga_draws drawn =
        ga_draws_from(z, ((ga_int64)h * T + i0 + lane % 4 * 2) * $(shape.keys) + j0 + own + lane / 4);
//% end
    auto derive = [&](ga_walk_scores &p, ga_walk_scores &ds) {
        ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int, int across) {
            const float of_query = ga_fact(facts + GA_WALK_ROWS, across);
//% if dropout then
            const real kept = ga_draw(drawn, ga_score_at(1, $(shape.keys), u, v, e));
            ds[u][v][e] = p[u][v][e] * (kept * ds[u][v][e] - of_query);
            p[u][v][e] *= kept;
//% else
            ds[u][v][e] = p[u][v][e] * (ds[u][v][e] - of_query);
//% end
        });
//% if tile.whole then
        ga_whole_keep(kept + own * GA_WHOLE_ROW + i0 * 2, ds, lane);
//% end
    };
    ga_walk_step<D, 2>(sum, p, ds, m, group, n, step > 0 ? n - 1 : -1, weigh, derive);
}
ga_walk_free<0, D>(sum, m, steps > 0 ? n - 1 : -1);
//% if tile.whole then
float of_queries[D / 8][4] = {};
ga_whole_queries<D>(of_queries, kept, m.own, own, lane); /* and none of the warp needs facts any more */
//% else
__syncwarp(); /* none needs facts any more */
//% end
if (threadIdx.x % 128 == 0) ga_gate_arrive(m.answered);
$(store_keys { shape = shape, tile = tile, softmax = softmax })

//@ store_keys(shape, tile, softmax)
//% -- In walk_of_keys: writes the gradients.
const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + w.own * D;
ga_group_store(scratch, sum[0], own, lane, [&](int i, int c, float (&value)[8]) {
    for (int e = 0; e < 8; e++) value[e] *= $(softmax.scale);
    if (j0 + i < $(shape.keys)) ga_put8<true>(dk + at + (ga_int64)i * K_ROW + c, value, 8);
});
ga_group_store(scratch, sum[1], own, lane, [&](int i, int c, float (&value)[8]) {
    if (j0 + i < $(shape.keys)) ga_put8<true>(dv + at + (ga_int64)i * K_ROW + c, value, 8);
});
//% if tile.whole then
ga_group_store(scratch, of_queries, own, lane, [&](int i, int c, float (&value)[8]) {
    for (int e = 0; e < 8; e++) value[e] *= $(softmax.scale);
    if (i < T) ga_put8<true>(dq + (row + i) * Q_ROW + w.own * D + c, value, 8);
});
//% end

//@ walk_of_queries(shape, tile, visible, softmax, dropout)
//% -- In attend_dx_boxes: the gradients of 128 queries, summed over the keys.
enum { KEYS = GA_WALK_ROWS };
const int i0 = w.row, h = w.own, steps = w.steps();
const ga_int64 row = (ga_int64)w.sheet * T;  // the first of the sequence
//% if tile.mask and shape.S then
const ga_int64 key_row = (ga_int64)w.sheet * S;  // its first key
//% end
const ga_int64 head = row * HEADS + h * T + i0 + own;
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
ga_walk_scores p, ds;
float sum[1][D / 8][4] = {}, held[4];
ga_facts_read<T>(held, lse + head, delta + head, T - i0 - own, lane);
ga_facts_write<T>(scratch, held, lane);
__syncwarp();
ga_gate_wait(m.asked, tiles & 1);
for (int step = 0; step < steps; step++, n++) {
    const int j0 = w.row_at(step);
//% if tile.mask then
    ga_uint32 seen[2];
    ga_keys_seen(seen, mask + $(shape.key_row) + j0, $(shape.keys) - j0, lane);
//% end
    auto weigh = [&](ga_walk_scores &p) {
        if ($(visible.edge))
            ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int down, int across) {
                const int i = i0 + own + down, j = j0 + across;
                if ($(visible.hidden)) p[u][v][e] = -ga_infinity((real)0);
            });
        ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int down, int) {
            p[u][v][e] = ga_exp2(p[u][v][e] * scale - scratch[down]);
        });
    };
//% if dropout then
    const ga_draws drawn =
        ga_draws_from(z, ((ga_int64)h * T + i0 + own + lane / 4) * $(shape.keys) + j0 + lane % 4 * 2);
//% end
    auto derive = [&](ga_walk_scores &p, ga_walk_scores &ds) {
        ga_each_score<1, GA_WALK_ROWS>(lane, [&](int u, int v, int e, int down, int) {
            const float of_query = scratch[GA_WALK_ROWS + down];
//% if dropout then
            const real kept = ga_draw(drawn, ga_score_at($(shape.keys), 1, u, v, e));
            ds[u][v][e] = p[u][v][e] * (kept * ds[u][v][e] - of_query);
//% else
            ds[u][v][e] = p[u][v][e] * (ds[u][v][e] - of_query);
//% end
        });
    };
    ga_walk_step<D, 1>(sum, p, ds, m, group, n, step > 0 ? n - 1 : -1, weigh, derive);
}
ga_walk_free<0, D>(sum, m, steps > 0 ? n - 1 : -1);
if (threadIdx.x % 128 == 0) ga_gate_arrive(m.answered);
__syncwarp(); /* none needs facts any more */
ga_group_store(scratch, sum[0], own, lane, [&](int i, int c, float (&value)[8]) {
    for (int e = 0; e < 8; e++) value[e] *= $(softmax.scale);
    if (i0 + i < T) ga_put8<true>(dq + (row + i0 + i) * Q_ROW + h * D + c, value, 8);
});
