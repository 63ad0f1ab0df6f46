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

//@ id_order(fn, params, source, threads, ids, rows, own)
/* $fn: the places of $ids ids, sorted by id and then by place; those of row r of the table begin at first[r]
 * A block has $own rows, a thread for each. A warp has a part of the ids: it counts those of each row, so that sums of
 * the counts tell where its places of a row begin; then it writes these, 32 ids at a time.
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IDS = $ids, ROWS = $rows, OWN = $own, THREADS = $threads, WARPS = THREADS / GA_LANES, AHEAD = 4 };
    enum { PART = (IDS + THREADS - 1) / THREADS * GA_LANES }; /* ids of a warp; it reads AHEAD times 32 at once */
    __shared__ int place[WARPS][OWN], scratch[GA_LANES];
    const int me = threadIdx.x, lane = me % GA_LANES, warp = me / GA_LANES;
    const int from = blockIdx.x * OWN, rows = ROWS - from < OWN ? ROWS - from : OWN;
    const int begin = warp * PART + lane, end = (warp + 1) * PART < IDS ? (warp + 1) * PART : IDS;
    if (me < OWN)
        for (int w = 0; w < WARPS; w++) place[w][me] = 0;
    __syncthreads();
    int before = 0;
#pragma unroll 8
    for (int i = begin; i < end; i += GA_LANES) {
        const int id = ids[i], r = id - from;
        before += id >= 0 && r < 0;
        if (r >= 0 && r < rows) atomicAdd(&place[warp][r], 1);
    }
    before = ga_block_sum(before, scratch);
    int count = 0;
    for (int w = 0; w < WARPS && me < OWN; w++) {
        const int of_warp = place[w][me];
        place[w][me] = count;
        count += of_warp;
    }
    const int start = before + ga_block_before(count, scratch);
    if (me < rows) {
        for (int w = 0; w < WARPS; w++) place[w][me] += start;
        first[from + me] = start;
        if (from + me == ROWS - 1) first[ROWS] = start + count;
    }
    __syncthreads();
    for (int i0 = begin; i0 - lane < end; i0 += AHEAD * GA_LANES) {
        int some[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) some[k] = i0 + k * GA_LANES < end ? ids[i0 + k * GA_LANES] : -1;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int r = some[k] >= from && some[k] - from < rows ? some[k] - from : -1;
            if (!__any_sync(GA_ALL_LANES, r >= 0)) continue;
            const unsigned equal = __match_any_sync(GA_ALL_LANES, r);
            const int ahead = __popc(equal & ((1u << lane) - 1)), at = r >= 0 ? place[warp][r] + ahead : 0;
            if (r >= 0) order[at] = i0 + k * GA_LANES;
            __syncwarp();
            if (r >= 0 && ahead == 0) place[warp][r] = at + __popc(equal);
            __syncwarp();
        }
    }
}

//@ embedding_dw(fn, params, source, threads, rows, C, few, slice, adds, padding, out, store)
/* $fn: for each of $rows rows of $C elements, the sum of dy over the places of its id
//% if slice.count > 1 then
 * $(slice.count) blocks per row have a slice of it each
//% end
//% if slice.groups > 1 then
 * groups of threads take the places by turns; then their sums are added up in one order
//% end
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, FEW = $few, LANES = $(slice.lanes), WIDE = LANES * FEW, SLICES = $(slice.count) };
    enum { GROUPS = $(slice.groups), AT_ONCE = $(slice.at_once) }; /* AT_ONCE: places that a thread reads */
    const int r = blockIdx.x / SLICES, from = first[r];
//% if padding then
    const int to = r == $padding ? from : first[r + 1];  // padding: no gradient
//% else
    const int to = first[r + 1];
//% end
//% if adds then
    if (add && from == to) return;
//% end
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES, c = blockIdx.x % SLICES * WIDE + lane * FEW;
    real sum[FEW] = {};
    for (int i = from + group; i < to && c < C; i += GROUPS * AT_ONCE) {
        int place[AT_ONCE];
        decltype(ga_read<FEW>(dy)) of_dy[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) place[k] = i + k * GROUPS < to ? order[i + k * GROUPS] : -1;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (place[k] >= 0) of_dy[k] = ga_read<FEW>(dy + (ga_int64)place[k] * C + c);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            for (int e = 0; e < FEW && place[k] >= 0; e++) sum[e] += ga_get(of_dy[k].at[e]);
    }
//% if slice.groups > 1 then
    __shared__ __align__(16) real partial[GROUPS][WIDE];
#pragma unroll
    for (int e = 0; e < FEW; e++) partial[group][lane * FEW + e] = sum[e];
    __syncthreads();
    for (int g = 1; g < GROUPS && group == 0; g++) {
        const auto more = ga_read<FEW>(&partial[g][lane * FEW]);
#pragma unroll
        for (int e = 0; e < FEW; e++) sum[e] += more.at[e];
    }
//% end
    if (group > 0 || c >= C) return;
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
