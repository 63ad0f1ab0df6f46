// runs_rows: terms of the sums of a convolution as rows for products in blocks on vectors (planes_runs.c).

//@ runs_rows()
/* Rows of terms that are neighbours, or of every other element (`spread`, a literal where it is called): for 32 places
 * after each other. Elements of planes AHEAD are asked for. */
static inline __attribute__((always_inline)) void conv_rows_along(bf16 *to, const conv_terms *x, const conv_run *runs,
                                                                  int first, int terms, const bool spread) {
    enum { AHEAD = 4 };
    const int count = x->count, taps = x->taps, plane = x->plane;
    const bf16 *from = x->planes + (size_t)(first / taps) * plane;
    for (int k = 0, tap = first % taps; k < terms; k++) {
        const conv_run *run = runs + tap * (count / 32);
        for (int v = 0; v < count; v += 32, to += 32, run++) {
            __builtin_prefetch(from + AHEAD * plane + run->first[0]);
            if (spread) {
                const __m256i row[2] = {_mm512_cvtepi32_epi16(conv_take_spread(from, run, 0)),
                                        _mm512_cvtepi32_epi16(conv_take_spread(from, run, 1))};
                memcpy(to, row, sizeof row);
            } else {
                const __m512i row = conv_take_joined(from, run);
                memcpy(to, &row, sizeof row);
            }
        }
        if (++tap == taps) tap = 0, from += plane;
    }
}

/* Other rows: all terms of 32 places before those of the next ones, as images lie far from each other. */
static inline void conv_rows_apart(bf16 *to, const conv_terms *x, const conv_run *runs, int first, int terms) {
    const int count = x->count, taps = x->taps;
    const bf16 *from[32];
    const conv_run *run[32];
    for (int k = 0; k < terms; k++) {
        from[k] = x->planes + (size_t)((first + k) / taps) * x->plane;
        run[k] = runs + (first + k) % taps * (count / 32);
    }
    for (int v = 0; v < count; v += 32)
        for (int k = 0; k < terms; k++) {
            const __m256i row[2] = {conv_take_half(from[k], run[k] + v / 32, 0),
                                    conv_take_half(from[k], run[k] + v / 32, 1)};
            memcpy(to + k * count + v, row, sizeof row);
        }
}

/* As conv_rows, with the runs of the windows. */
static __attribute__((noinline)) void conv_rows_of_runs(bf16 *to, const conv_terms *x, const conv_runs *runs,
                                                        int first, int terms) {
    if (runs->kind == CONV_NO_RUNS) {
        conv_rows(to, x, first, terms);
        return;
    }
    const int rows = at_most(terms, 32);
    if (runs->kind == CONV_JOINED) conv_rows_along(to, x, runs->run, first, rows, false);
    else if (runs->kind == CONV_EVERY_OTHER) conv_rows_along(to, x, runs->run, first, rows, true);
    else conv_rows_apart(to, x, runs->run, first, rows);
    memset(to + rows * x->count, 0, (size_t)(32 - rows) * (size_t)x->count * sizeof *to);
}
