// planes_windows: what taps read of planes of bf16, as rows and panels for the matrix registers (matrix.c).

//@ planes_windows()
/* The elements that a tap reads for 16 neighbouring places. Places outside the plane read 0.
 *   at          the elements, -1 outside (conv_locate)
 *   inside      the places that read an element
 *   run         whether these elements are neighbours too: place p reads element first[0] + p
 *   far         those whose element is in the third window or the fourth
 *   scattered   whether the elements have more than four windows: then they are read one by one
 *   first       the first element of four windows of 32
 *   loads       the elements of a window up to the last that is read
 *   lane        for each place the element of the first two windows, or of the last two */
typedef struct conv_window {
    const int *at;
    int first[4];
    uint32_t loads[4];
    uint16_t inside, far, lane[16];
    bool run, scattered;
} conv_window;

/* 16 elements, and whole numbers for them. */
typedef uint16_t bf16_row __attribute__((vector_size(32), may_alias));
typedef int conv_lanes __attribute__((vector_size(64)));

/* A bit for each lane that is true. */
static inline unsigned conv_true(conv_lanes x) { return _mm512_movepi32_mask((__m512i)x); }

/* Finds the windows of all taps for `count` places, a multiple of 16; the elements of a tap ascend from place to place.
 * The windows of one more tap read 0. */
static __attribute__((noinline)) void conv_find_windows(conv_window *to, const int *at, int taps, int count) {
    const conv_lanes number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int v = 0; v < taps * count; v += 16, to++) {
        conv_lanes element, lane = {0};
        memcpy(&element, at + v, sizeof element);
        const unsigned inside = conv_true(element >= 0);
        const int start = inside ? at[v + __builtin_ctz(inside)] - __builtin_ctz(inside) : 0;
        *to = (conv_window){.at = at + v, .inside = (uint16_t)inside, .first = {start}};
        to->run = (inside & conv_true(element != number + start)) == 0;
        if (to->run) continue;
        unsigned rest = inside;
        for (int i = 0; i < 4 && rest != 0; i++) {
            const int first = at[v + __builtin_ctz(rest)];
            const conv_lanes distance = element - first, near = (distance >= 0) & (distance < 32);
            lane |= near & (distance + i % 2 * 32);
            to->far |= i > 1 ? (uint16_t)(conv_true(near) & rest) : 0;
            to->first[i] = first;
            to->loads[i] = UINT32_MAX >> (31 - (at[v + 31 - __builtin_clz(conv_true(near))] - first));
            rest &= ~conv_true(near);
        }
        to->scattered = rest != 0;
        const bf16_row lanes = __builtin_convertvector(lane, bf16_row);
        memcpy(to->lane, &lanes, sizeof lanes);
    }
    for (int v = 0; v < count; v += 16) *to++ = (conv_window){.run = true};
}

static __attribute__((noinline)) bf16_row conv_take_scattered(const bf16 *x, const int *at) {
    bf16_row row;
    for (int l = 0; l < 16; l++) row[l] = at[l] < 0 ? 0 : x[at[l]].bits;
    return row;
}

/* The elements of a window in the plane at x, for 16 places. */
static inline bf16_row conv_take_run(const bf16 *x, const conv_window *w) {
    return (bf16_row)_mm256_maskz_loadu_epi16(w->inside, x + w->first[0]);
}

/* The elements of the windows i and i + 1 for some places, 0 for others. */
static inline __m512i conv_take_windows(const bf16 *x, const conv_window *w, int i, unsigned places) {
    const __m512i a = _mm512_maskz_loadu_epi16(w->loads[i], x + w->first[i]);
    const __m512i b = _mm512_maskz_loadu_epi16(w->loads[i + 1], x + w->first[i + 1]);
    __m256i lane;
    memcpy(&lane, w->lane, sizeof lane);
    return _mm512_maskz_permutex2var_epi16(places, a, _mm512_castsi256_si512(lane), b);
}

static inline bf16_row conv_take(const bf16 *x, const conv_window *w) {
    if (w->run) return conv_take_run(x, w);
    if (w->scattered) return conv_take_scattered(x, w->at);
    __m512i row = conv_take_windows(x, w, 0, w->inside & ~w->far);
    if (w->far) row |= conv_take_windows(x, w, 2, w->far);
    return (bf16_row)_mm512_castsi512_si256(row);
}
