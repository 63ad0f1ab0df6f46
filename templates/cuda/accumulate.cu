// accumulate: sums over the micro-steps of a cycle that lose nothing.

//@ accumulate(fn, params, source, threads, n)
/* $fn: y += x; residue += what that rounds off; behind the last micro-step y has both
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
