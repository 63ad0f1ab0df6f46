// runs_results: results of bf16 at every other place of their rows (conv.c, on vectors).

//@ runs_results()
/* How many of n results, 16 or 8, are two places apart; 1 if neither. They lie at least two places apart. */
static inline int conv_spread_places(const int *at, int n) {
    return n >= 16 && at[15] == at[0] + 30 ? 16 : n >= 8 && at[7] == at[0] + 14 ? 8 : 1;
}

/* to[at[k]] = from[k] for n elements. */
static inline void conv_put_places(bf16 *to, const int *at, const bf16 *from, int n) {
    const int run = conv_spread_places(at, n);
    int k = 0;
    for (; run > 1 && k + run <= n && at[k + run - 1] == at[k] + 2 * (run - 1); k += run) {
        const __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((uint16_t)((1u << run) - 1), from + k));
        _mm512_mask_storeu_epi16(to + at[k], 0x55555555u >> (32 - 2 * run), x);
    }
    for (; k < n; k++) to[at[k]] = from[k];
}

/* 16 results from `from` on that are two places apart, in runs of 16 or 8. */
static inline __m256i conv_get_spread(const bf16 *from, const int *at, int run) {
    if (run == 16) return _mm512_cvtepi32_epi16(_mm512_maskz_loadu_epi16(0x55555555, from + at[0]));
    const __m512i first = _mm512_maskz_loadu_epi16(0x5555, from + at[0]);
    return _mm512_cvtepi32_epi16(first | _mm512_maskz_loadu_epi16(0x55550000, from + at[8] - 16));
}

/* to[k] = from[at[k]] for n elements. 32 of them are stored at once, as they are then loaded at once. */
static inline void conv_get_places(bf16 *to, const bf16 *from, const int *at, int n) {
    const int run = conv_spread_places(at, n);
    bool spread = run > 1 && n == 32;
    for (int k = 0; spread && k < 32; k += run) spread = at[k + run - 1] == at[k] + 2 * (run - 1);
    if (spread) {
        const __m256i rows[2] = {conv_get_spread(from, at, run), conv_get_spread(from, at + 16, run)};
        const __m512i row = _mm512_inserti64x4(_mm512_castsi256_si512(rows[0]), rows[1], 1);
        memcpy(to, &row, sizeof row);
        return;
    }
    for (int k = 0; k < n; k++) to[k] = from[at[k]];
}
