// shape: values moved from one tensor to another. A tensor that is cut along an axis is seen as rows: the axes before
// it count the rows, the axis and all behind it are one row.

//@ slice_dx(fn, params, source, threads, slice, type, out, adds, store)
/* $fn: each of $(slice.rows) rows of $(slice.count) at element $(slice.first) of a row of $(slice.width), 0 elsewhere
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $(slice.rows), WIDTH = $(slice.width), FIRST = $(slice.first), COUNT = $(slice.count) };
    enum { FEW = $(slice.few) };
    for (ga_int64 i = ga_thread_first() * FEW; i < (ga_int64)ROWS * WIDTH; i += ga_thread_count() * FEW) {
        const int r = (int)i / WIDTH, c = (int)i % WIDTH;
        ga_few<$type, FEW> of_dy = {};
        if (c >= FIRST && c < FIRST + COUNT) of_dy = ga_read<FEW>(dy + (ga_int64)r * COUNT + c - FIRST);
        ga_few<$out, FEW> to;
//% if adds then
        if (add) to = ga_read<FEW>(y + i);
//% end
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real value = ga_get(of_dy.at[k]);
            $store
        }
        ga_write(y + i, to);
    }
}

//@ concat(fn, params, source, threads, rows, first, second)
/* $fn: $rows rows: $first elements of a, then $second of b
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $rows, FIRST = $first, SECOND = $second, WIDTH = FIRST + SECOND };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)ROWS * WIDTH; i += ga_thread_count()) {
        const int r = (int)i / WIDTH, c = (int)i % WIDTH;
        y[i] = c < FIRST ? a[(ga_int64)r * FIRST + c] : b[(ga_int64)r * SECOND + c - FIRST];
    }
}
