// accumulate: sums over the micro-steps of a cycle, with the rounding errors kept apart, or in 16 bits.

//@ accumulate(fn, params, source, threads, n)
/* $fn: y += x; residue += the error of that addition; the last micro-step adds the residue to y
 * $source */
GA_KERNEL($threads) $fn($params) {
    for (ga_int64 i = ga_thread_first(); i < $n; i += ga_thread_count()) {
        const real before = add ? y[i] : (real)0, sum = before + x[i];
        const real added = sum - before;  // x but for rounding; before is sum - added but for rounding
        const real lost = (before - (sum - added)) + (x[i] - added);
        const real rest = add ? residue[i] + lost : (real)0;
        residue[i] = rest;
        y[i] = last ? sum + rest : sum;
    }
}

//@ accumulate_half(fn, params, source, threads, n, draws, name)
//% if draws then
/* $fn: y += x, rounded to one of the two neighbours of 16 bits by a draw, more often to the nearer one
 * $source */
//% else
/* $fn: y += x, rounded to 16 bits
 * $source */
//% end
GA_KERNEL($threads) $fn($params) {
//% if draws then
    constexpr ga_uint64 stream = ga_rng_stream($name);
    const ga_uint64 key = ga_draw_key(micro->seed, stream, iteration, micro->cycle, micro->row);
//% end
    for (ga_int64 i = ga_thread_first(); i < $n; i += ga_thread_count()) {
        const float sum = add ? bf16_widen(y[i]) + x[i] : x[i];
//% if draws then
        y[i] = bf16_narrow_between(sum, (ga_uint32)(ga_rng_at(key, i) >> 48));
//% else
        y[i] = bf16_narrow(sum);
//% end
    }
}
