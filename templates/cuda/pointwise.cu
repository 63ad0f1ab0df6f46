// pointwise: formulas for each element by itself.

//@ map(fn, params, source, threads, formula, loads, store)
/* $fn: $formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        $loads
        $store
    }
}

//@ map_few(fn, params, source, threads, formula, few, rest, reads, loads, store)
/* $fn: $formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { FEW = $few };
    for (ga_int64 first = ga_thread_first() * FEW; first < n; first += ga_thread_count() * FEW) {
        $reads
#pragma unroll
//% if rest then
        for (int k = 0; k < FEW && first + k < n; k++) {
//% else
        for (int k = 0; k < FEW; k++) {
//% end
            $loads
            $store
        }
//% if rest then
        ga_write(out + first, to, n - first);
//% else
        ga_write(out + first, to);
//% end
    }
}
