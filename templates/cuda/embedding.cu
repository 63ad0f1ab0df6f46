// embedding: rows of a table looked up by ids, and the gradient of the table, row by row.

//@ embedding(fn, params, source, threads, ids, C, few, out)
/* $fn: the rows of the table, $C elements each, for $ids ids
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IDS = $ids, C = $C, FEW = $few };
    for (ga_int64 i = ga_thread_first() * FEW; i < (ga_int64)IDS * C; i += ga_thread_count() * FEW) {
        const auto of_row = ga_read<FEW>(weight + (ga_int64)ids[i / C] * C + i % C);
        ga_few<$out, FEW> to;
#pragma unroll
        for (int k = 0; k < FEW; k++) ga_put(to.at[k], ga_get(of_row.at[k]));
        ga_write(y + i, to);
    }
}

//@ id_order(fn, params, source, threads, ids, rows, own, few)
/* $fn: the places of $ids ids, sorted by id and then by place; those of row r of the table begin at first[r]
 * A block has $own rows. It goes over all ids twice: it counts those of its rows and of the rows before,
 * then it takes the ids in pieces, one for each thread; those of its rows get places in the order of the threads.
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IDS = $ids, ROWS = $rows, OWN = $own, FEW = $few, THREADS = $threads };
    __shared__ int count[OWN], place[OWN + 1], piece[THREADS], scratch[GA_LANES];
    __shared__ unsigned taken[THREADS / GA_LANES];
    const int me = threadIdx.x, from = blockIdx.x * OWN, rows = ROWS - from < OWN ? ROWS - from : OWN;
    int before = 0;
    for (int r = me; r < OWN; r += THREADS) count[r] = 0;
    __syncthreads();
    for (int i = me * FEW; i < IDS; i += THREADS * FEW) {
        const auto some = ga_read<FEW>(ids + i);
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const int r = some.at[k] - from;
            before += r < 0 && some.at[k] >= 0;
            if (r >= 0 && r < rows) atomicAdd(&count[r], 1);
        }
    }
    before = ga_block_sum(before, scratch);
    __syncthreads();
    for (int r = me; r <= rows; r += THREADS) {
        int sum = before;
        for (int k = 0; k < r; k++) sum += count[k];
        place[r] = sum;
        if (r < rows || from + rows == ROWS) first[from + r] = sum;
    }
    for (int i0 = 0; i0 < IDS; i0 += THREADS) {
        if (me * FEW < THREADS && i0 + me * FEW < IDS) {
            const auto some = ga_read<FEW>(ids + i0 + me * FEW);
#pragma unroll
            for (int k = 0; k < FEW; k++) piece[me * FEW + k] = some.at[k];
        }
        __syncthreads();
        const int id = i0 + me < IDS ? piece[me] : -1, r = id - from;
        const bool own = id >= 0 && r >= 0 && r < rows;
        if (!__syncthreads_or(own)) continue;
        const unsigned of_warp = __ballot_sync(GA_ALL_LANES, own);
        if (me % GA_LANES == 0) taken[me / GA_LANES] = of_warp;
        piece[me] = r;
        __syncthreads();
        int ahead = 0, behind = 0;
        for (int warp = 0; warp < THREADS / GA_LANES && own; warp++) {
            for (unsigned left = taken[warp]; left != 0; left &= left - 1) {
                const int k = warp * GA_LANES + __ffs(left) - 1;
                ahead += piece[k] == r && k < me;
                behind += piece[k] == r && k > me;
            }
        }
        const int at = own ? place[r] + ahead : 0;
        if (own) order[at] = i0 + me;
        __syncthreads();
        if (own && behind == 0) place[r] = at + 1;
    }
}

//@ embedding_dw(fn, params, source, threads, rows, C, few, places, adds, padding, out, store)
/* $fn: for each of $rows rows of $C elements, the sum of dy over the places of its id, in their order; one
 * block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, FEW = $few, PLACES = $places, THREADS = $threads }; /* PLACES: read at once */
    const int r = blockIdx.x, from = first[r];
//% if padding then
    const int to = r == $padding ? from : first[r + 1];  // padding: no gradient
//% else
    const int to = first[r + 1];
//% end
//% if adds then
    if (add && from == to) return;
//% end
    for (int c = threadIdx.x * FEW; c < C; c += THREADS * FEW) {
        real sum[FEW] = {};
        for (int first_place = from - from % PLACES; first_place < to; first_place += PLACES) {
            const auto places = ga_read<PLACES>(order + first_place);
#pragma unroll
            for (int k = 0; k < PLACES; k++) {
                if (first_place + k < from || first_place + k >= to) continue;
                const auto of_dy = ga_read<FEW>(dy + (ga_int64)places.at[k] * C + c);
#pragma unroll
                for (int e = 0; e < FEW; e++) sum[e] += ga_get(of_dy.at[e]);
            }
        }
        const ga_int64 first_of_row = (ga_int64)r * C + c;
        ga_few<$out, FEW> row;
//% if adds then
        if (add) row = ga_read<FEW>(y + first_of_row);
//% end
#pragma unroll
        for (int e = 0; e < FEW; e++) {
            const real value = sum[e];
            $store
        }
        ga_write(y + first_of_row, row);
    }
}
