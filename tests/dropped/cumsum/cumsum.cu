// cumsum: sums along rows, a thread each, for a test.

//@ cumsum(fn, params, source, threads, rows, columns, back, store)
/* $fn: sums along $rows rows of $columns
 * $source */
GA_KERNEL($threads) $fn($params) {
    for (ga_int64 row = ga_thread_first(); row < $rows; row += ga_thread_count()) {
        real sum = 0;
        for (int k = 0; k < $columns; k++) {
//% if back then
            const ga_int64 i = row * $columns + $columns - 1 - k;
//% else
            const ga_int64 i = row * $columns + k;
//% end
            sum += x[i];
            $store
        }
    }
}
