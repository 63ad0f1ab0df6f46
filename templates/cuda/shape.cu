// shape: values moved from one tensor to another. A tensor that is cut along an axis is seen as rows: the axes before
// it count the rows, the axis and all behind it are one row.

//@ slice_dx(fn, params, source, threads, rows, width, first, count, store)
/* $fn: each of $rows rows of $count at element $first of a row of $width, 0 elsewhere
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { ROWS = $rows, WIDTH = $width, FIRST = $first, COUNT = $count };
    for (ga_int64 i = ga_thread_first(); i < (ga_int64)ROWS * WIDTH; i += ga_thread_count()) {
        const int r = (int)i / WIDTH, c = (int)i % WIDTH;
        const bool inside = c >= FIRST && c < FIRST + COUNT;
        const real value = inside ? dy[(ga_int64)r * COUNT + c - FIRST] : (real)0;
        $store
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
