// lines_results: results of a convolution over lines beside each other or every other place (planes_lines.c).

//@ lines_results(half, type)
//% if half then
enum { CONV_SPREAD = 16 }; /* elements that a vector has with gaps of their size between them */

static inline void conv_spread(bf16 *to, const bf16 *from, unsigned n) {
    __m256i x = _mm256_maskz_loadu_epi16((1u << n) - 1, from);
    _mm512_mask_storeu_epi16(to, 0x55555555 & (uint32_t)((1ull << 2 * n) - 1), _mm512_cvtepu16_epi32(x));
}

static inline void conv_unspread(bf16 *to, const bf16 *from, unsigned n) {
    __m512i x = _mm512_maskz_loadu_epi16(0x55555555 & (uint32_t)((1ull << 2 * n) - 1), from);
    _mm256_mask_storeu_epi16(to, (1u << n) - 1, _mm512_cvtepi32_epi16(x));
}
//% else
enum { CONV_SPREAD = 8 }; /* elements that a vector has with gaps of their size between them */

static inline void conv_spread(float *to, const float *from, unsigned n) {
    __m256i x = _mm256_maskz_loadu_epi32((1u << n) - 1, from);
    _mm512_mask_storeu_epi32(to, 0x5555 & ((1u << 2 * n) - 1), _mm512_cvtepu32_epi64(x));
}

static inline void conv_unspread(float *to, const float *from, unsigned n) {
    __m512i x = _mm512_maskz_loadu_epi32(0x5555 & ((1u << 2 * n) - 1), from);
    _mm256_mask_storeu_epi32(to, (1u << n) - 1, _mm512_cvtepi64_epi32(x));
}
//% end

/* to[k * step] = from[k] for n elements. */
static inline void conv_put($type *to, const $type *from, int n, int step) {
    if (step == 1) memcpy(to, from, (size_t)n * sizeof *to);
    if (step == 2)
        for (int k = 0; k < n; k += CONV_SPREAD)
            conv_spread(to + 2 * k, from + k, at_most(n - k, CONV_SPREAD));
    else if (step > 2)
        for (int k = 0; k < n; k++) to[k * step] = from[k];
}

/* to[k] = from[k * step] for n elements. */
static inline void conv_get($type *to, const $type *from, int n, int step) {
    if (step == 1) memcpy(to, from, (size_t)n * sizeof *to);
    if (step == 2)
        for (int k = 0; k < n; k += CONV_SPREAD)
            conv_unspread(to + k, from + 2 * k, at_most(n - k, CONV_SPREAD));
    else if (step > 2)
        for (int k = 0; k < n; k++) to[k] = from[k * step];
}
