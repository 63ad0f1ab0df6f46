// random: dropout, drawn anew for each row of each cycle. Outside of training nothing is drawn.

//@ dropout(fn, params, source, threads, rows, width, p, name, x, store)
/* $fn: x / (1 - p), or 0 with probability p = $p, for $rows rows of $width
 * $source */
GA_KERNEL($threads) $fn($params) {
    const ga_int64 width = $width, n = $(rows)ll * width;
    constexpr ga_uint64 stream = ga_rng_stream($name);
    const double p = micro->training ? $p : 0;
    const real scale = (real)(1 / (1 - p));
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        const ga_uint64 key = ga_draw_key(micro->seed, stream, iteration, micro->cycle, micro->row + i / width);
        const bool keep = ga_uniform(ga_rng_at(key, i % width)) >= p;
        const real value = keep ? $x * scale : 0;
        $store
    }
}
