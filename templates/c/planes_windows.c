// planes_windows: what taps read of planes of bf16, as rows and panels for the matrix registers (matrix.c).

//@ planes_windows()
/* What a tap reads for 16 neighbouring places; the others are outside the plane and read 0.
 *   at          the elements, -1 outside (conv_locate)
 *   inside      the places that read an element
 *   run         whether these elements are neighbours too: place p reads element first[0] + p
 *   scattered   whether the elements have more than two windows: then they are read one by one
 *   first       the first element of two windows of 32
 *   loads       the elements of a window up to the last that is read
 *   lane        for each place the element of both windows */
typedef struct conv_window {
    const int *at;
    int first[2];
    uint32_t loads[2];
    uint16_t inside;
    bool run, scattered;
    uint16_t lane[16];
} conv_window;

/* Finds the windows of all taps for `count` places, a multiple of 16; the elements of a tap ascend from place to place.
 * The windows of one more tap read 0. */
static __attribute__((noinline)) void conv_find_windows(conv_window *to, const int *at, int taps, int count) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int v = 0; v < taps * count; v += 16, to++) {
        const __m512i element = _mm512_loadu_si512(at + v);
        unsigned rest = _mm512_cmpge_epi32_mask(element, _mm512_setzero_si512());
        *to = (conv_window){.at = at + v, .inside = (uint16_t)rest, .run = rest == 0};
        if (rest == 0) continue;
        const int start = at[v + __builtin_ctz(rest)] - __builtin_ctz(rest);
        const __m512i run = _mm512_add_epi32(lanes, _mm512_set1_epi32(start));
        to->run = _mm512_mask_cmpneq_epi32_mask((__mmask16)rest, element, run) == 0;
        to->first[0] = start;
        if (to->run) continue;
        __m512i lane = _mm512_setzero_si512();
        for (int i = 0; i < 2 && rest != 0; i++) {
            const int first = at[v + __builtin_ctz(rest)];
            const __m512i distance = _mm512_sub_epi32(element, _mm512_set1_epi32(first));
            const unsigned near = _mm512_mask_cmplt_epu32_mask((__mmask16)rest, distance, _mm512_set1_epi32(32));
            lane = _mm512_mask_add_epi32(lane, (__mmask16)near, distance, _mm512_set1_epi32(32 * i));
            to->first[i] = first;
            to->loads[i] = UINT32_MAX >> (31 - (at[v + 31 - __builtin_clz(near)] - first));
            rest &= ~near;
        }
        to->scattered = rest != 0;
        _mm256_storeu_si256((__m256i *)to->lane, _mm512_cvtepi32_epi16(lane));
    }
    memset(to, 0, (size_t)count / 16 * sizeof *to);
    for (int v = 0; v < count / 16; v++) to[v].run = true;
}

static __attribute__((noinline)) __m256i conv_take_scattered(const bf16 *x, const int *at) {
    bf16 row[16];
    for (int l = 0; l < 16; l++) row[l] = at[l] < 0 ? (bf16){0} : x[at[l]];
    return _mm256_loadu_si256((const __m256i *)row);
}

/* What a window reads in the plane at x, for 16 places. */
static inline __m256i conv_take_run(const bf16 *x, const conv_window *w) {
    return _mm256_maskz_loadu_epi16(w->inside, x + w->first[0]);
}

static inline __m256i conv_take(const bf16 *x, const conv_window *w) {
    if (w->run) return conv_take_run(x, w);
    if (w->scattered) return conv_take_scattered(x, w->at);
    const __m512i a = _mm512_maskz_loadu_epi16(w->loads[0], x + w->first[0]);
    const __m512i b = _mm512_maskz_loadu_epi16(w->loads[1], x + w->first[1]);
    const __m512i lane = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)w->lane));
    return _mm512_castsi512_si256(_mm512_maskz_permutex2var_epi16(w->inside, a, lane, b));
}
