// attention: gen/catalog/ops/attention.lua has the formulas. A tile is computed by one block,
// whose threads have some scores each, or on tensor cores.

//@ attend(fn, params, source, threads, shape, tile, visible, softmax, dropout, type)
/* $fn: softmax(q k^T / sqrt($(shape.d))) v, $(shape.heads) heads of $(shape.d) over $(shape.over)
 * One block computes a tile of queries. Keys come tile by tile; a score larger than all before scales the sums
 * down (Milakov and Gimelshein, 2018). lse: the log of the sum of the exponentials of a query's scores.
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
    enum { TILE = $(tile.side), DEPTH = $(tile.depth), SLICES = (D + DEPTH - 1) / DEPTH, TALL = TILE / GA_SIDE };
    enum { TILES = (T + TILE - 1) / TILE };
//% if shape.S then
    enum { S = $(shape.S) };  // keys; T: queries
//% end
    __shared__ real a_tile[TILE][DEPTH + 1], b_tile[TILE][DEPTH + 1], p_tile[TILE][TILE + 1];
    const int down = threadIdx.x / GA_SIDE, across = threadIdx.x % GA_SIDE;
    const int i0 = blockIdx.x % TILES * TILE, h = blockIdx.x / TILES % HEADS;
    const ga_int64 row = (ga_int64)(blockIdx.x / TILES / HEADS) * T;  // the first of the sequence
//% if shape.S then
    const ga_int64 key_row = row / T * S;  // its first key
//% end
    const int n = i0 + TILE < T ? (int)TILE : T - i0;
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + HEADS / GROUP * D;
//% end
//% if dropout then
    const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
    real sum[SLICES][TALL][DEPTH / GA_SIDE] = {}, total[TALL] = {}, largest[TALL];
    for (int u = 0; u < TALL; u++) largest[u] = -ga_infinity((real)0);
    for (int j0 = 0; j0 < $(visible.stop); j0 += TILE) {
        const int m = j0 + TILE < $(shape.keys) ? (int)TILE : $(shape.keys) - j0;
        const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
        real score[TALL][TALL];
        const $type *q = query + (row + i0) * Q_ROW + h * D;
        ga_tile_dots<TILE, DEPTH, D>(score, q, Q_ROW, n, key + at, K_ROW, m, a_tile, b_tile);
        for (int u = 0; u < TALL; u++) {
            const int i = i0 + down + u * GA_SIDE;
            real top = largest[u], part = 0;
            for (int x = 0; x < TALL; x++) {
                const int j = j0 + across + x * GA_SIDE;
                score[u][x] = $(visible.hidden) ? -ga_infinity((real)0) : score[u][x] * $(softmax.scale);
                top = score[u][x] <= top ? top : score[u][x];
            }
            top = ga_row_max(top);
            const real from = top == -ga_infinity((real)0) ? (real)0 : top;  // this query sees no key so far
            const real shrink = $(softmax.exp)(largest[u] - from);
            for (int x = 0; x < TALL; x++) {
                const real p = $(softmax.exp)(score[u][x] - from);
                part += p;
//% if dropout then
                const ga_int64 drawn = ((ga_int64)h * T + i) * $(shape.keys) + j0 + across + x * GA_SIDE;
                p_tile[down + u * GA_SIDE][across + x * GA_SIDE] = p * ga_draw(z, drawn);
//% else
                p_tile[down + u * GA_SIDE][across + x * GA_SIDE] = p;
//% end
            }
            total[u] = total[u] * shrink + ga_row_sum(part);
            largest[u] = top;
            for (int s = 0; s < SLICES; s++)
                for (int x = 0; x < DEPTH / GA_SIDE; x++) sum[s][u][x] *= shrink;
        }
        ga_tile_add<TILE, DEPTH, D>(sum, p_tile, value + at, K_ROW, m, b_tile);
    }
    real factor[TALL];
    for (int u = 0; u < TALL; u++) {
        const int i = down + u * GA_SIDE;
        factor[u] = total[u] == 0 ? (real)0 : 1 / total[u];
        if (i < n && across == 0)
            lse[row * HEADS + h * T + i0 + i] = total[u] == 0 ? (real)0 : largest[u] + $(softmax.log)(total[u]);
    }
    ga_tile_store<TILE, DEPTH, D>(y + ((row + i0) * HEADS + h) * D, HEADS * D, n, sum, factor);
}

//@ attend_delta(fn, params, source, threads, rows, heads, T, d, few, lanes)
/* $fn: dy . y for each of $heads heads of $d elements; those of a head's $T positions lie behind each other
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { T = $T, HEADS = $heads, D = $d, FEW = $few, LANES = $lanes }; /* LANES: threads of a head */
    const int head = (int)(ga_thread_first() / LANES), n = $rows * HEADS;
    real sum = 0;
#pragma unroll
    for (int from = 0; from < D; from += LANES * FEW) {
        const int c = from + (int)threadIdx.x % LANES * FEW;
        if (c >= D || head >= n) continue;
        const auto of_dy = ga_read<FEW>(dy + (ga_int64)head * D + c);
        const auto of_y = ga_read<FEW>(y + (ga_int64)head * D + c);
#pragma unroll
        for (int k = 0; k < FEW; k++) sum += ga_get(of_dy.at[k]) * ga_get(of_y.at[k]);
    }
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(GA_ALL_LANES, sum, step);
    if (threadIdx.x % LANES > 0 || head >= n) return;
    const int row = head / HEADS;
    delta[((ga_int64)row / T * HEADS + head % HEADS) * T + row % T] = sum;
}

//@ attend_dx(fn, params, source, threads, shape, tile, visible, softmax, dropout, type, out)
/* $fn: the gradients of attention with respect to queries, keys and values
 * The first blocks compute a tile of keys each, over the queries that use it; the others a tile of queries,
 * over the keys. p is computed again from lse.
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
    enum { TILE = $(tile.side), DEPTH = $(tile.depth), SLICES = (D + DEPTH - 1) / DEPTH, TALL = TILE / GA_SIDE };
//% if shape.S then
    enum { S = $(shape.S), KEY_TILES = (S + TILE - 1) / TILE };  // keys; T: queries
//% end
    enum { TILES = (T + TILE - 1) / TILE, KEY_HEADS = HEADS / GROUP, KEY_BLOCKS = B * KEY_HEADS * $(tile.of_keys) };
    enum { Y_ROW = HEADS * D };
    __shared__ real a_tile[TILE][DEPTH + 1], b_tile[TILE][DEPTH + 1], weight[TILE][TILE + 1];
    const int down = threadIdx.x / GA_SIDE, across = threadIdx.x % GA_SIDE;
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + KEY_HEADS * D;
    $out *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
//% end
    real p[TALL][TALL], ds[TALL][TALL], ones[TALL];
    for (int u = 0; u < TALL; u++) ones[u] = 1;
    if (blockIdx.x < KEY_BLOCKS) {
        $(gradients_of_keys { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout, type = type })
    } else {
        $(gradients_of_queries { shape = shape, visible = visible, softmax = softmax, dropout = dropout, type = type })
    }
}

//@ gradients_of_keys(shape, tile, visible, softmax, dropout, type)
//% -- In attend_dx: the gradients of a tile of keys and values, summed over the queries of all heads that use them.
const int j0 = blockIdx.x % $(tile.of_keys) * TILE, shared = blockIdx.x / $(tile.of_keys) % KEY_HEADS;
const ga_int64 row = (ga_int64)(blockIdx.x / $(tile.of_keys) / KEY_HEADS) * T;  // the first of the sequence
//% if shape.S then
const ga_int64 key_row = row / T * S;  // its first key
//% end
const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + shared * D;
const int m = j0 + TILE < $(shape.keys) ? (int)TILE : $(shape.keys) - j0;
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
real d_key[SLICES][TALL][DEPTH / GA_SIDE] = {}, d_value[SLICES][TALL][DEPTH / GA_SIDE] = {};
for (int h = shared * GROUP; h < (shared + 1) * GROUP; h++) {
    for (int i0 = $(visible.first); i0 < T; i0 += TILE) {
        const int n = i0 + TILE < T ? (int)TILE : T - i0;
        const $type *q = query + (row + i0) * Q_ROW + h * D, *d_out = dy + (row + i0) * Y_ROW + h * D;
        ga_tile_dots<TILE, DEPTH, D>(p, key + at, K_ROW, m, q, Q_ROW, n, a_tile, b_tile);
        ga_tile_dots<TILE, DEPTH, D>(ds, value + at, K_ROW, m, d_out, Y_ROW, n, a_tile, b_tile);
        for (int u = 0; u < TALL; u++) {
            for (int x = 0; x < TALL; x++) {
                const int j = j0 + down + u * GA_SIDE, i = i0 + across + x * GA_SIDE;
                const ga_int64 head = row * HEADS + h * T + (i < T ? i : T - 1);
                const bool hidden = i >= T || $(visible.hidden);
                p[u][x] = hidden ? (real)0 : $(softmax.exp)(p[u][x] * $(softmax.scale) - lse[head]);
//% if dropout then
                const real kept = ga_draw(z, ((ga_int64)h * T + i) * $(shape.keys) + j);
                ds[u][x] = p[u][x] * (kept * ds[u][x] - delta[head]) * $(softmax.scale);
                weight[down + u * GA_SIDE][across + x * GA_SIDE] = p[u][x] * kept;
//% else
                ds[u][x] = p[u][x] * (ds[u][x] - delta[head]) * $(softmax.scale);
                weight[down + u * GA_SIDE][across + x * GA_SIDE] = p[u][x];
//% end
            }
        }
        ga_tile_add<TILE, DEPTH, D>(d_value, weight, d_out, Y_ROW, n, b_tile);
        for (int u = 0; u < TALL; u++)
            for (int x = 0; x < TALL; x++) weight[down + u * GA_SIDE][across + x * GA_SIDE] = ds[u][x];
        ga_tile_add<TILE, DEPTH, D>(d_key, weight, q, Q_ROW, n, b_tile);
    }
}
ga_tile_store<TILE, DEPTH, D>(dk + at, K_ROW, m, d_key, ones);
ga_tile_store<TILE, DEPTH, D>(dv + at, K_ROW, m, d_value, ones);

//@ gradients_of_queries(shape, visible, softmax, dropout, type)
//% -- In attend_dx: the gradients of a tile of queries, summed over the keys.
const int tile = blockIdx.x - KEY_BLOCKS, i0 = tile % TILES * TILE, h = tile / TILES % HEADS;
const ga_int64 row = (ga_int64)(tile / TILES / HEADS) * T;  // the first of the sequence
//% if shape.S then
const ga_int64 key_row = row / T * S;  // its first key
//% end
const int n = i0 + TILE < T ? (int)TILE : T - i0;
const $type *q = query + (row + i0) * Q_ROW + h * D, *d_out = dy + (row + i0) * Y_ROW + h * D;
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
real d_query[SLICES][TALL][DEPTH / GA_SIDE] = {};
for (int j0 = 0; j0 < $(visible.stop); j0 += TILE) {
    const int m = j0 + TILE < $(shape.keys) ? (int)TILE : $(shape.keys) - j0;
    const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
    ga_tile_dots<TILE, DEPTH, D>(p, q, Q_ROW, n, key + at, K_ROW, m, a_tile, b_tile);
    ga_tile_dots<TILE, DEPTH, D>(ds, d_out, Y_ROW, n, value + at, K_ROW, m, a_tile, b_tile);
    for (int u = 0; u < TALL; u++) {
        for (int x = 0; x < TALL; x++) {
            const int i = i0 + down + u * GA_SIDE, j = j0 + across + x * GA_SIDE;
            const ga_int64 head = row * HEADS + h * T + (i < T ? i : T - 1);
            const bool hidden = i >= T || $(visible.hidden);
            p[u][x] = hidden ? (real)0 : $(softmax.exp)(p[u][x] * $(softmax.scale) - lse[head]);
//% if dropout then
            ds[u][x] *= ga_draw(z, ((ga_int64)h * T + i) * $(shape.keys) + j);
//% end
            weight[down + u * GA_SIDE][across + x * GA_SIDE] = p[u][x] * (ds[u][x] - delta[head]) * $(softmax.scale);
        }
    }
    ga_tile_add<TILE, DEPTH, D>(d_query, weight, key + at, K_ROW, m, b_tile);
}
ga_tile_store<TILE, DEPTH, D>(dq + (row + i0) * Q_ROW + h * D, Q_ROW, n, d_query, ones);

//@ attend_tensor(fn, params, source, threads, shape, tile, visible, softmax, dropout, type)
/* $fn: softmax(q k^T / sqrt($(shape.d))) v, $(shape.heads) heads of $(shape.d) over $(shape.over), on tensor cores
 * One block computes OWN queries, those with the most keys first. Keys and values come ROWS at a time, beside the
 * products of those that are there; a score larger than all before scales the sums down (Milakov and Gimelshein,
 * 2018). lse: the log of the sum of the exponentials of a query's scores.
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
    enum { TALL = $(tile.tall), OWN = 16 * TALL * GA_OWN_WARPS, ROWS = $(tile.rows), KEYS = ROWS };
    enum { TILES = (T + OWN - 1) / OWN, BYTES = ga_rows<D>::BYTES };
//% if shape.S then
    enum { S = $(shape.S) };  // keys; T: queries
//% end
    extern __shared__ __align__(128) ga_byte shared[];
    const int lane = threadIdx.x % GA_LANES, own = threadIdx.x / GA_LANES * (16 * TALL);
    const int i0 = (TILES - 1 - (int)(blockIdx.x % TILES)) * OWN, h = blockIdx.x / TILES % HEADS;
    const ga_int64 row = (ga_int64)(blockIdx.x / TILES / HEADS) * T;  // the first of the sequence
//% if shape.S then
    const ga_int64 key_row = row / T * S;  // its first key
//% end
    const int n = i0 + OWN < T ? (int)OWN : T - i0, stop = $(visible.stop);
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + HEADS / GROUP * D;
//% end
//% if dropout then
    const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
    auto stage_of = [&](int j0) { return shared + (OWN + j0 / ROWS % 2 * 2 * ROWS) * BYTES; };
//% if tile.mask then
    auto mask_of = [&](int j0) { return (int *)(shared + (OWN + 4 * ROWS) * BYTES) + j0 / ROWS % 2 * ROWS; };
//% end
    auto begin = [&](int j0) {
        const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
        ga_rows_begin<ROWS, D>(stage_of(j0), key + at, K_ROW, $(shape.keys) - j0);
        ga_rows_begin<ROWS, D>(stage_of(j0) + ROWS * BYTES, value + at, K_ROW, $(shape.keys) - j0);
//% if tile.mask then
        ga_mask_begin<ROWS>(mask_of(j0), mask + $(shape.key_row) + j0, $(shape.keys) - j0);
//% end
    };
    const float scale = $(softmax.scale) * GA_LOG2_E;
    float sum[TALL][ga_rows<D>::CHUNKS][4] = {}, total[TALL][2] = {}, largest[TALL][2];
    for (int u = 0; u < TALL; u++) largest[u][0] = largest[u][1] = -ga_infinity((real)0);
    ga_rows_begin<OWN, D>(shared, query + (row + i0) * Q_ROW + h * D, Q_ROW, n);
    begin(0);
    ga_copy_commit();
    for (int j0 = 0; j0 < stop; j0 += ROWS) {
        ga_copy_wait<0>();
        __syncthreads(); /* all have the keys from j0 on, and none needs the place of those before any more */
        if (j0 + ROWS < stop) begin(j0 + ROWS);
        ga_copy_commit();
        float score[TALL][ROWS / 8][4];
//% if tile.mask then
        const int *of_keys = mask_of(j0);
//% end
        ga_row_dots<TALL, ROWS, D>(score, shared + own * BYTES, stage_of(j0), lane);
        if ($(visible.edge))
            ga_each_score<TALL, ROWS>(lane, [&](int u, int v, int e, int down, int across) {
                const int i = i0 + own + down, j = j0 + across;
                if ($(visible.hidden)) score[u][v][e] = -ga_infinity((real)0);
            });
        ga_softmax_step(score, sum, largest, total, scale);
//% if dropout then
        const ga_draws drawn =
            ga_draws_from(z, ((ga_int64)h * T + i0 + own + lane / 4) * $(shape.keys) + j0 + lane % 4 * 2);
        ga_each_score<TALL, ROWS>(lane, [&](int u, int v, int e, int, int) {
            score[u][v][e] *= ga_draw(drawn, ga_score_at($(shape.keys), 1, u, v, e));
        });
//% end
        ga_row_sums<TALL, ROWS, D>(sum, score, stage_of(j0) + ROWS * BYTES, lane);
    }
    ga_softmax_end(sum, largest, total, $(softmax.scale), lane, [&](int down, float x) {
        if (own + down < n) lse[row * HEADS + h * T + i0 + own + down] = x;
    });
    __syncthreads(); /* the tiles are free */
    ga_rows_store<D>(shared, sum, own, lane, y + ((row + i0) * HEADS + h) * D, HEADS * D, n);
}

//@ attend_dx_tensor(fn, params, source, threads, shape, tile, visible, softmax, dropout, type, out)
/* $fn: the gradients of attention with respect to queries, keys and values, on tensor cores
 * The first blocks compute OWN keys each, over the queries that use them, ROWS at a time; the others OWN queries, over
 * the keys. p is computed again from lse; ds lacks the factor of the scores, which the sums get in the end.
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row), Y_ROW = HEADS * D };
    enum { TALL = $(tile.tall), OWN = 16 * TALL * GA_OWN_WARPS, ROWS = $(tile.rows), BYTES = ga_rows<D>::BYTES };
//% if shape.S then
    enum { S = $(shape.S), KEY_TILES = (S + OWN - 1) / OWN };  // keys; T: queries
//% end
    enum { TILES = (T + OWN - 1) / OWN, KEY_HEADS = HEADS / GROUP, KEY_BLOCKS = B * KEY_HEADS * $(tile.of_keys) };
    extern __shared__ __align__(128) ga_byte shared[];
    const int lane = threadIdx.x % GA_LANES, own = threadIdx.x / GA_LANES * (16 * TALL);
    const float scale = $(softmax.scale) * GA_LOG2_E;
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + KEY_HEADS * D;
    $out *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
//% end
    auto stage_of = [&](int number) { return shared + (OWN + number % 2 * ROWS) * (2 * BYTES); };
//% if tile.mask then
    int *const of_mask = (int *)(shared + (OWN + 2 * ROWS) * (2 * BYTES) + 16 * ROWS); /* of OWN keys, or twice ROWS */
//% end
    if (blockIdx.x < KEY_BLOCKS) {
        $(tensor_gradients_of_keys { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout, type = type })
    } else {
        $(tensor_gradients_of_queries { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout, type = type })
    }
}

//@ tensor_gradients_of_keys(shape, tile, visible, softmax, dropout, type)
//% -- In attend_dx_tensor: the gradients of OWN keys and values, summed over the queries of all heads that use them.
enum { KEYS = OWN };
const int j0 = blockIdx.x % $(tile.of_keys) * OWN, shared_head = blockIdx.x / $(tile.of_keys) % KEY_HEADS;
const ga_int64 row = (ga_int64)(blockIdx.x / $(tile.of_keys) / KEY_HEADS) * T;  // the first of the sequence
//% if shape.S then
const ga_int64 key_row = row / T * S;  // its first key
//% end
const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + shared_head * D;
const int m = j0 + OWN < $(shape.keys) ? (int)OWN : $(shape.keys) - j0;
const int first = $(visible.first), of_head = first < T ? (T - first + ROWS - 1) / ROWS : 0, steps = GROUP * of_head;
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
enum { FACTS = T % 4 == 0 ? 4 : 1 }; /* of lse and of delta, that a thread reads at once */
const int own_fact = threadIdx.x * FACTS;
float2 *of_query = (float2 *)(shared + (OWN + 2 * ROWS) * (2 * BYTES)); /* ROWS of lse, delta, twice */
ga_few<float, FACTS> held_lse, held_delta;                              /* those of the next step */
auto begin = [&](int step) {
    const int h = shared_head * GROUP + step / of_head, i0 = first + step % of_head * ROWS, n = T - i0;
    ga_rows_begin<ROWS, D>(stage_of(step), query + (row + i0) * Q_ROW + h * D, Q_ROW, n);
    ga_rows_begin<ROWS, D>(stage_of(step) + ROWS * BYTES, dy + (row + i0) * Y_ROW + h * D, Y_ROW, n);
    const ga_int64 head = row * HEADS + h * T + i0 + own_fact;
    held_lse = {}, held_delta = {};
    if (own_fact < ROWS && own_fact < n) held_lse = ga_read<FACTS>(lse + head), held_delta = ga_read<FACTS>(delta + head);
};
auto end = [&](int step) {
    for (int e = 0; e < FACTS && own_fact < ROWS; e++)
        of_query[step % 2 * ROWS + own_fact + e] = make_float2(held_lse.at[e] * GA_LOG2_E, held_delta.at[e]);
};
float d_key[TALL][ga_rows<D>::CHUNKS][4] = {}, d_value[TALL][ga_rows<D>::CHUNKS][4] = {};
if (steps > 0) {
    ga_rows_begin<OWN, D>(shared, key + at, K_ROW, m);
    ga_rows_begin<OWN, D>(shared + OWN * BYTES, value + at, K_ROW, m);
//% if tile.mask then
    ga_mask_begin<OWN>(of_mask, mask + $(shape.key_row) + j0, m);
//% end
    begin(0), end(0);
}
//% if tile.mask then
const int *of_keys = of_mask;
//% end
ga_copy_commit();
for (int step = 0; step < steps; step++) {
    ga_copy_wait<0>();
    __syncthreads(); /* all have the queries of this step, and none needs the place of those before any more */
    if (step + 1 < steps) begin(step + 1);
    ga_copy_commit();
    const int h = shared_head * GROUP + step / of_head, i0 = first + step % of_head * ROWS;
    const ga_byte *queries = stage_of(step), *d_outs = queries + ROWS * BYTES;
    const float2 *facts = of_query + step % 2 * ROWS;
    float p[TALL][ROWS / 8][4], ds[TALL][ROWS / 8][4];
    ga_row_dots<TALL, ROWS, D>(p, shared + own * BYTES, queries, lane);
    ga_row_dots<TALL, ROWS, D>(ds, shared + (OWN + own) * BYTES, d_outs, lane);
//% if dropout then
    const ga_draws drawn =
        ga_draws_from(z, ((ga_int64)h * T + i0 + lane % 4 * 2) * $(shape.keys) + j0 + own + lane / 4);
//% end
    ga_each_score<TALL, ROWS>(lane, [&](int u, int v, int e, int down, int across) {
        const int j = j0 + own + down, i = i0 + across;
        const bool hidden = $(visible.edge) && $(visible.hidden);
        p[u][v][e] = hidden ? 0 : ga_exp2(p[u][v][e] * scale - facts[across].x);
//% if dropout then
        const real kept = ga_draw(drawn, ga_score_at(1, $(shape.keys), u, v, e));
        ds[u][v][e] = p[u][v][e] * (kept * ds[u][v][e] - facts[across].y);
        p[u][v][e] *= kept;
//% else
        ds[u][v][e] = p[u][v][e] * (ds[u][v][e] - facts[across].y);
//% end
    });
    ga_row_sums<TALL, ROWS, D>(d_value, p, d_outs, lane);
    ga_row_sums<TALL, ROWS, D>(d_key, ds, queries, lane);
    if (step + 1 < steps) end(step + 1);
}
__syncthreads(); /* the tiles are free */
ga_scale(d_key, $(softmax.scale));
ga_rows_store<D>(shared, d_key, own, lane, dk + at, K_ROW, m);
ga_rows_store<D>(shared, d_value, own, lane, dv + at, K_ROW, m);

//@ tensor_gradients_of_queries(shape, tile, visible, softmax, dropout, type)
//% -- In attend_dx_tensor: the gradients of OWN queries, summed over the keys; those with the most keys come first.
enum { KEYS = ROWS };
const int tile = blockIdx.x - KEY_BLOCKS, i0 = (TILES - 1 - tile % TILES) * OWN, h = tile / TILES % HEADS;
const ga_int64 row = (ga_int64)(tile / TILES / HEADS) * T;  // the first of the sequence
//% if shape.S then
const ga_int64 key_row = row / T * S;  // its first key
//% end
const int n = i0 + OWN < T ? (int)OWN : T - i0, stop = $(visible.stop);
//% if dropout then
const ga_draws z = ga_draws_of(micro, ga_rng_stream($(dropout.name)), iteration, row / T, $(dropout.p));
//% end
auto begin = [&](int j0) {
    const ga_int64 at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
    ga_rows_begin<ROWS, D>(stage_of(j0 / ROWS), key + at, K_ROW, $(shape.keys) - j0);
    ga_rows_begin<ROWS, D>(stage_of(j0 / ROWS) + ROWS * BYTES, value + at, K_ROW, $(shape.keys) - j0);
//% if tile.mask then
    ga_mask_begin<ROWS>(of_mask + j0 / ROWS % 2 * ROWS, mask + $(shape.key_row) + j0, $(shape.keys) - j0);
//% end
};
ga_rows_begin<OWN, D>(shared, query + (row + i0) * Q_ROW + h * D, Q_ROW, n);
ga_rows_begin<OWN, D>(shared + OWN * BYTES, dy + (row + i0) * Y_ROW + h * D, Y_ROW, n);
begin(0);
ga_copy_commit();
float2 facts[TALL][2]; /* lse, delta of this thread's rows */
for (int u = 0; u < TALL; u++)
    for (int r = 0; r < 2; r++) {
        const int i = own + u * 16 + lane / 4 + r * 8;
        const ga_int64 head = row * HEADS + h * T + i0 + i;
        facts[u][r] = i < n ? make_float2(lse[head] * GA_LOG2_E, delta[head]) : make_float2(0, 0);
    }
float d_query[TALL][ga_rows<D>::CHUNKS][4] = {};
for (int j0 = 0; j0 < stop; j0 += ROWS) {
    ga_copy_wait<0>();
    __syncthreads(); /* all have the keys from j0 on, and none needs the place of those before any more */
    if (j0 + ROWS < stop) begin(j0 + ROWS);
    ga_copy_commit();
    const ga_byte *keys = stage_of(j0 / ROWS);
//% if tile.mask then
    const int *of_keys = of_mask + j0 / ROWS % 2 * ROWS;
//% end
    float p[TALL][ROWS / 8][4], ds[TALL][ROWS / 8][4];
    ga_row_dots<TALL, ROWS, D>(p, shared + own * BYTES, keys, lane);
    ga_row_dots<TALL, ROWS, D>(ds, shared + (OWN + own) * BYTES, keys + ROWS * BYTES, lane);
//% if dropout then
    const ga_draws drawn =
        ga_draws_from(z, ((ga_int64)h * T + i0 + own + lane / 4) * $(shape.keys) + j0 + lane % 4 * 2);
//% end
    ga_each_score<TALL, ROWS>(lane, [&](int u, int v, int e, int down, int across) {
        const int i = i0 + own + down, j = j0 + across;
        const bool hidden = $(visible.edge) && $(visible.hidden);
        const float x = hidden ? 0 : ga_exp2(p[u][v][e] * scale - facts[u][e / 2].x);
//% if dropout then
        const real kept = ga_draw(drawn, ga_score_at($(shape.keys), 1, u, v, e));
        ds[u][v][e] = x * (kept * ds[u][v][e] - facts[u][e / 2].y);
//% else
        ds[u][v][e] = x * (ds[u][v][e] - facts[u][e / 2].y);
//% end
    });
    ga_row_sums<TALL, ROWS, D>(d_query, ds, keys, lane);
}
__syncthreads(); /* the tiles are free */
ga_scale(d_query, $(softmax.scale));
ga_rows_store<D>(shared, d_query, own, lane, dq + (row + i0) * Q_ROW + h * D, Q_ROW, n);

//@ rotary(fn, params, source, threads, shape, base, sign, load, store)
//% if shape.heads > 1 then
/* $fn: pairs (i, i + $(shape.d) / 2) of each of $(shape.heads) heads,
//% else
/* $fn: pairs (i, i + $(shape.d) / 2) of a head,
//% end
 * turned by the angle $(sign)t $base^(-2i / $(shape.d)) at position t
 * One thread computes an i at a position, with the angle in double.
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), D = $(shape.d), HALF = D / 2 };
    enum { ROW = $(shape.row) };
    for (ga_int64 s = ga_thread_first(); s < T * HALF; s += ga_thread_count()) {
        const int p = (int)(s / HALF), c = (int)(s % HALF);
        const double step = $(sign)pow($base, -2.0 * c / D);
        const real cosine = (real)cos(p * step), sine = (real)sin(p * step);
        for (int i = 0; i < B * HEADS; i++) {
            const ga_int64 at = ((ga_int64)(i / HEADS) * T + p) * ROW + i % HEADS * D + c;
            const real low = $(load.low) * cosine - $(load.high) * sine;
            const real high = $(load.high) * cosine + $(load.low) * sine;
            $(store.low)
            $(store.high)
        }
    }
//% if store.rest then
    enum { REST = ROW - HEADS * D }; /* what stands behind the heads is copied */
    for (ga_int64 s = ga_thread_first(); s < (ga_int64)B * T * REST; s += ga_thread_count()) {
        const ga_int64 at = s / REST * ROW + HEADS * D + s % REST;
        const real value = $(load.rest);
        $(store.rest)
    }
//% end
}
