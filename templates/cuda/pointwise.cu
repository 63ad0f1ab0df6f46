// pointwise: formulas for each element by itself.

//@ map(fn, params, source, threads, n, formula, loads, store)
/* $fn: $formula
 * $source */
GA_KERNEL($threads) $fn($params) {
    const ga_int64 n = $(n)ll;
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        $loads
        $store
    }
}
