// embedding: rows of a table looked up by ids, and the gradient of the table, row by row.

//@ embedding(fn, params, source, threads, ids, C, value)
/* $fn: the rows of the table, $C elements each, for $ids ids
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IDS = $ids, C = $C };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)IDS * C; i += ga_thread_count())
        y[i] = $value;
}

//@ id_order(fn, params, source, threads, ids, rows)
/* $fn: the places of $ids ids, sorted by id and then by place; those of row r of the table begin at first[r]
 * One block takes the ids in pieces, one for each thread; the last of equal ids in a piece counts them.
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IDS = $ids, ROWS = $rows, THREADS = $threads, PIECE = (ROWS + THREADS - 1) / THREADS };
    __shared__ int piece[THREADS];
    const int me = threadIdx.x;
    for (int r = me; r <= ROWS; r += THREADS) first[r] = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {                          // from counts to where row r begins, in first[r + 1]
            const int from = me * PIECE, to = from + PIECE < ROWS ? from + PIECE : ROWS;
            int sum = 0;
            __syncthreads();
            for (int r = from; r < to; r++) sum += first[r + 1];
            piece[me] = sum;
            __syncthreads();
            sum = 0;
            for (int k = 0; k < me; k++) sum += piece[k];
            for (int r = from; r < to; r++) {
                const int count = first[r + 1];
                first[r + 1] = sum;
                sum += count;
            }
        }
        for (int i0 = 0; i0 < IDS; i0 += THREADS) {
            const int id = i0 + me < IDS ? ids[i0 + me] : -1;
            __syncthreads();
            piece[me] = id;
            __syncthreads();
            int before = 0, behind = 0;
            for (int k = 0; k < THREADS; k++) {
                const bool same = piece[k] == id;
                before += same && k < me;
                behind += same && k > me;
            }
            if (id >= 0 && pass == 1) order[first[id + 1] + before] = i0 + me;
            __syncthreads();
            if (id >= 0 && behind == 0) first[id + 1] += before + 1;
        }
    }
}

//@ embedding_dw(fn, params, source, threads, rows, C, adds, padding, term, store)
/* $fn: for each of $rows rows of $C elements, the sum of dy over the places of its id, in their order; one
 * block per row
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { C = $C, THREADS = $threads };
    const int r = blockIdx.x, from = first[r];
//% if padding then
    const int to = r == $padding ? from : first[r + 1];  // padding: no gradient
//% else
    const int to = first[r + 1];
//% end
//% if adds then
    if (add && from == to) return;
//% end
    for (int c = threadIdx.x; c < C; c += THREADS) {
        real value = 0;
        for (int k = from; k < to; k++) value += $term;
        const ga_int64 i = (ga_int64)r * C + c;
        $store
    }
}
