// random: dropout, drawn anew for each row of each cycle. Outside of training nothing is drawn.

//@ dropout(fn, params, source, threads, rows, width, p, name, few, out, adds, store)
/* $fn: x / (1 - p), or 0 with probability p = $p, for $rows rows of $width
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { FEW = $few };
    const ga_int64 width = $width, n = $(rows)ll * width;
    for (ga_int64 first = ga_thread_first() * FEW; first < n; first += ga_thread_count() * FEW) {
        const ga_draws z = ga_draws_from(ga_draws_of(micro, ga_rng_stream($name), iteration, first / width, $p),
                                         first % width);
        const auto of_x = ga_read<FEW>(x + first);
        ga_few<$out, FEW> to;
//% if adds then
        if (add) to = ga_read<FEW>(y + first);
//% end
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            const real value = ga_dropped(z, k, ga_get(of_x.at[k]));
            $store
        }
        ga_write(y + first, to);
    }
}
