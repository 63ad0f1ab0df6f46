// lines_weights: weights of a convolution over lines in blocks (planes_lines.c).

//@ lines_weights(half, type)
//% if half then
/* x with lanes `which`, which are 0 there, from places `at` of the 32 elements from `from` on. */
typedef uint16_t conv_lane;
typedef conv_lane conv_vector __attribute__((vector_size(64), may_alias));

static inline unsigned conv_lanes_in(conv_vector at, int vector) {
    return _mm512_movepi16_mask((__m512i)(at >> 5 == (conv_vector){0} + (conv_lane)vector));
}

static inline conv_vector conv_pick(conv_vector x, unsigned which, conv_vector at, const bf16 *from) {
    __m512i all;
    memcpy(&all, from, sizeof all);
    return x | (conv_vector)_mm512_maskz_permutexvar_epi16(which, (__m512i)at, all);
}

static inline void conv_vector_pairs(bf16_pairs to[SLICES], const conv_vector *x) { memcpy(to, x, sizeof *x); }
//% else
/* x with lanes `which`, which are 0 there, from places `at` of the 16 elements from `from` on. */
typedef uint32_t conv_lane;
typedef vec_bits conv_vector;

static inline unsigned conv_lanes_in(conv_vector at, int vector) {
    return _mm512_movepi32_mask((__m512i)(at >> 4 == (conv_vector){0} + (conv_lane)vector));
}

static inline conv_vector conv_pick(conv_vector x, unsigned which, conv_vector at, const float *from) {
    __m512i all;
    memcpy(&all, from, sizeof all);
    return x | (conv_vector)_mm512_maskz_permutex2var_epi32(which, all, (__m512i)at, all);
}

static inline void conv_vector_pairs(bf16_pairs to[SLICES], const conv_vector x[2]) {
    slices_of_row(to, (vec)x[0], (vec)x[1]);
}
//% end

/* Blocks of A from rows of weights (channel, tap), `row` elements apart: 32 rows, then 32 channels, then taps. */
static __attribute__((noinline)) void conv_line_weights(bf16 *to, const $type *weight, int rows, size_t row,
                                                        int channels, int taps) {
    enum { LANES = sizeof(conv_vector) / sizeof *weight, PARTS = 32 / LANES, MOST = 9 };
    conv_vector number, at[MOST];
    unsigned which[MOST][MOST];
    for (int l = 0; l < LANES; l++) number[l] = l;
    if (taps <= MOST)
        for (int tap = 0; tap < taps; tap++) {
            at[tap] = number * (conv_lane)taps + (conv_lane)tap;
            for (int s = 0; s < taps; s++) which[tap][s] = conv_lanes_in(at[tap], s);
        }
    for (int i = 0; i < rows; i++, weight += row) {
        bf16 *block = to + (size_t)(i / 32) * (channels / 32) * taps * CONV_BLOCK + i % 32 * 32;
        for (int c = 0; c < channels; c += 32)
            for (int tap = 0; tap < taps; tap++, block += CONV_BLOCK) {
                const $type *from = weight + c * taps;
                conv_vector x[PARTS] = {{0}};
                bf16_pairs all[SLICES];
                if (taps <= MOST)
                    for (int part = 0; part < PARTS; part++)
                        for (int s = 0; s < taps; s++, from += LANES)
                            x[part] = conv_pick(x[part], which[tap][s], at[tap], from);
                else
                    for (int k = 0; k < 32; k++)
                        memcpy(($type *)x + k, from + k * taps + tap, sizeof *from);
                conv_vector_pairs(all, x);
                store_pairs(block, all, 1024);
            }
    }
}
