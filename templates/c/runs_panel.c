// runs_panel: terms of the sums of a convolution as panels for products in blocks on vectors (planes_runs.c).

//@ runs_panel()
/* Pairs of an element of a and one of b, for the elements from `from` on. */
static inline __m512i conv_pair_lanes(__m512i a, __m512i b, uint32_t from) {
    const bf16_pairs lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const bf16_pairs both = (lane + from) | (lane + from + 32) << 16;
    return _mm512_maskz_permutex2var_epi16(UINT32_MAX, a, (__m512i)both, b);
}

static inline __m512i conv_pair_halves(__m256i a, __m256i b) {
    return conv_pair_lanes(_mm512_castsi256_si512(a), _mm512_castsi256_si512(b), 0);
}

/* The same of runs of every other element: those of b are loaded to their places. */
static inline __m512i conv_pair_spread(const bf16 *x, const conv_run *a, const bf16 *y, const conv_run *b, int half) {
    return conv_take_spread(x, a, half) | _mm512_maskz_loadu_epi16(b->inside[half] << 1, y + b->first[half] - 1);
}

/* Pairs of elements of runs a and b of `vectors` times 32 places, in panels `most` terms deep. Elements of planes that
 * lie `ahead` are asked for. */
static inline __attribute__((always_inline)) void conv_pair_runs(bf16 *to, int most, const bf16 *even,
                                                                 const conv_run *a, const bf16 *odd, const conv_run *b,
                                                                 int vectors, int ahead, const conv_run_kind kind) {
    for (int v = 0; v < vectors; v++, a++, b++, to += 32 * most) {
        __m512i pairs[2];
        __builtin_prefetch(even + ahead + a->first[0]);
        if (kind == CONV_JOINED) {
            const __m512i x = conv_take_joined(even, a), y = conv_take_joined(odd, b);
            pairs[0] = conv_pair_lanes(x, y, 0);
            pairs[1] = conv_pair_lanes(x, y, 16);
        } else {
            UNROLL for (int half = 0; half < 2; half++)
                pairs[half] = kind == CONV_EVERY_OTHER ? conv_pair_spread(even, a, odd, b, half)
                    : conv_pair_halves(conv_take_half(even, a, half), conv_take_half(odd, b, half));
        }
        memcpy(to, pairs, sizeof pairs);
    }
}

/* As conv_panel, with the runs of the windows. */
static __attribute__((noinline)) void conv_panel_of_runs(bf16 *panel, int most, const conv_terms *x,
                                                         const conv_runs *runs, int first, int terms) {
    if (runs->kind == CONV_NO_RUNS) {
        conv_panel(panel, most, x, first, terms);
        return;
    }
    const int vectors = x->count / 32, taps = x->taps, plane = x->plane, ahead = 4 * plane;
    const bf16 *even = x->planes + (size_t)(first / taps) * plane, *odd = even;
    int tap = first % taps;
    for (int k = 0; k < (terms + 31) / 32 * 32; k += 2, panel += 64, even = odd) {
        const conv_run *a = runs->run + (k < terms ? tap : taps) * vectors;
        if (++tap == taps) tap = 0, odd += plane;
        const conv_run *b = runs->run + (k + 1 < terms ? tap : taps) * vectors;
        if (runs->kind == CONV_JOINED) conv_pair_runs(panel, most, even, a, odd, b, vectors, ahead, CONV_JOINED);
        else if (runs->kind == CONV_APART) conv_pair_runs(panel, most, even, a, odd, b, vectors, ahead, CONV_APART);
        else conv_pair_runs(panel, most, even, a, odd, b, vectors, ahead, CONV_EVERY_OTHER);
        if (++tap == taps) tap = 0, odd += plane;
    }
}
