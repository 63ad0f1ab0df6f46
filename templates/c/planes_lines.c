// planes_lines: planes as blocks of 32 terms by 32 places for products in blocks (matrix.c). Each element is copied
// once for each tap across, not once for each tap: taps below each other read other lines of the same copy.

//@ planes_lines(half, type)
/* A block of a product: 32 x 32 numbers, its slices behind each other. */
enum { CONV_BLOCK = SLICES * 32 * 32 };

/* How planes are read by lines. A line has the places of one row of some images, image by image; its length is a
 * multiple of 32.
 *   windows    what each tap across reads of row 0 for 16 places of a line each; then the places themselves
 *   height, width    of planes
 *   first, step      how far taps are from the place itself */
typedef struct conv_lines {
    const conv_window *windows;
    int height, width, first, step;
} conv_lines;

/* Finds the windows of a line of so many images; at: their elements, as from conv_locate. */
static __attribute__((noinline)) conv_lines conv_find_lines(conv_window *windows, int *at, const conv_planes *planes,
                                                            const conv_axis *w, int images) {
    const int length = images * w->places;
    for (int tap = 0; tap <= w->taps; tap++)
        for (int k = 0; k < length; k++) {
            const int place = k % w->places;
            const int column = tap < w->taps ? w->from + place * planes->read_w + tap * planes->tap_w : place;
            const bool inside = column >= 0 && column < planes->width;
            at[tap * length + k] = inside ? k / w->places * planes->image + column : -1;
        }
    conv_find_windows(windows, at, w->taps + 1, length);
    return (conv_lines){windows, planes->height, planes->width, w->from, planes->tap_w};
}

/* Blocks of B: terms are so many planes, a multiple of 32, for rows first .. first + rows - 1; rows outside are 0. In
 * the order of 32 planes, taps across, rows, 32 places. shifts: each tap reads the places themselves, moved by less
 * than 16, so that a line is read once. Taps and length are literals where it is called, so that loops over them unroll. */
static inline __attribute__((always_inline)) void conv_line_pairs(bf16 *to, const conv_lines *x, const $type *planes,
                                                                  int channels, int first, int rows, const int taps,
                                                                  const int length, const bool shifts) {
    const int plane = x->height * x->width, vectors = length / 16, line = length / 32 * CONV_BLOCK;
    const vec_bits number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int g = 0; g < channels; g += 32, to += taps * rows * line)
        for (int r = 0; r < rows; r++) {
            const int row = first + r;
            for (int tap = 0; (row < 0 || row >= x->height) && tap < taps; tap++)
                memset(to + (tap * rows + r) * line, 0, line * sizeof *to);
            const $type *even = planes + (size_t)g * plane + row * x->width;
            for (int c = 0; row >= 0 && row < x->height && c < 32; c += 2, even += 2 * plane) {
                bf16 *pairs = to + r * line + 32 * c;
                bf16_pairs all[length / 16 + 2][SLICES];
                memset(all[0], 0, sizeof all[0]);
                memset(all[vectors + 1], 0, sizeof all[0]);
                UNROLL for (int v = 0; shifts && v < vectors; v++) {
                    const conv_window *w = x->windows + taps * vectors + v;
                    conv_pairs(all[v + 1], conv_take(even, w), conv_take(even + plane, w));
                }
                UNROLL for (int tap = 0; tap < taps; tap++) {
                    const int shift = x->first + tap * x->step, beside = shift < 0 ? -1 : 1;
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + tap * vectors + v;
                        bf16_pairs one[SLICES];
                        if (!shifts) conv_pairs(one, conv_take(even, w), conv_take(even + plane, w));
                        for (int s = 0; shifts && s < SLICES; s++)
                            one[s] = (bf16_pairs)_mm512_maskz_permutex2var_epi32(w->inside, (__m512i)all[v + 1][s],
                                (__m512i)(number + (uint32_t)shift), (__m512i)all[v + 1 + beside][s]);
                        store_pairs(pairs + tap * rows * line + v / 2 * CONV_BLOCK + v % 2 * 32, one, 1024);
                    }
                }
            }
        }
}

/* The elements of two windows behind each other. */
static inline void conv_row_pairs(bf16_pairs x[SLICES], conv_row a, conv_row b) {
//% if half then
    x[0] = (bf16_pairs)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)a), (__m256i)b, 1);
//% else
    slices_of_row(x, a, b);
//% end
}

/* Blocks of A: their rows are planes, and their terms places; otherwise as conv_line_pairs. */
static inline __attribute__((always_inline)) void conv_line_rows(bf16 *to, const conv_lines *x, const $type *planes,
                                                                 int channels, int first, int rows, const int taps,
                                                                 const int length, const bool shifts) {
    const int plane = x->height * x->width, vectors = length / 32, line = vectors * CONV_BLOCK;
    typedef uint16_t halves __attribute__((vector_size(64)));
    halves lanes[taps];
    for (int l = 0; l < 32 * taps; l++) lanes[l / 32][l % 32] = (uint16_t)(l % 32 + x->first + l / 32 * x->step);
    for (int g = 0; g < channels; g += 32, to += taps * rows * line)
        for (int r = 0; r < rows; r++) {
            const int row = first + r;
            for (int tap = 0; (row < 0 || row >= x->height) && tap < taps; tap++)
                memset(to + (tap * rows + r) * line, 0, line * sizeof *to);
            const $type *from = planes + (size_t)g * plane + row * x->width;
            for (int c = 0; row >= 0 && row < x->height && c < 32; c++, from += plane) {
                bf16 *pairs = to + r * line + 32 * c;
                bf16_pairs all[length / 32 + 2][SLICES];
                memset(all[0], 0, sizeof all[0]);
                memset(all[vectors + 1], 0, sizeof all[0]);
                UNROLL for (int v = 0; shifts && v < vectors; v++) {
                    const conv_window *w = x->windows + 2 * (taps * vectors + v);
                    conv_row_pairs(all[v + 1], conv_take(from, w), conv_take(from, w + 1));
                }
                UNROLL for (int tap = 0; tap < taps; tap++) {
                    const int beside = x->first + tap * x->step < 0 ? -1 : 1;
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + 2 * (tap * vectors + v);
                        const uint32_t inside = w[0].inside | (uint32_t)w[1].inside << 16;
                        bf16_pairs one[SLICES];
                        if (!shifts) conv_row_pairs(one, conv_take(from, w), conv_take(from, w + 1));
                        for (int s = 0; shifts && s < SLICES; s++)
                            one[s] = (bf16_pairs)_mm512_maskz_permutex2var_epi16(inside, (__m512i)all[v + 1][s],
                                (__m512i)lanes[tap], (__m512i)all[v + 1 + beside][s]);
                        store_pairs(pairs + tap * rows * line + v * CONV_BLOCK, one, 1024);
                    }
                }
            }
        }
}

/* Blocks of B: their columns are planes, and their terms places; otherwise as conv_line_pairs. */
static __attribute__((noinline)) void conv_line_columns(bf16 *to, const conv_lines *x, const $type *planes,
                                                        int channels, int first, int rows, int length) {
    const int plane = x->height * x->width;
    _Alignas(64) $type block[32 * 32];
    for (int c = 0; c < channels; c += 32, planes += 32 * plane)
        for (int r = first; r < first + rows; r++)
            for (int v = 0; v < length / 16; v += 2, to += CONV_BLOCK) {
                const $type *from = planes + r * x->width;
                for (int k = 0; k < 32; k++, from += plane) {
                    const conv_row a = conv_take(from, x->windows + v), b = conv_take(from, x->windows + v + 1);
                    memcpy(block + 32 * k, &a, sizeof a);
                    memcpy(block + 32 * k + 16, &b, sizeof b);
                }
                matrix_pack_columns(to, 32, 32, 32, block, 32);
            }
}

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
    for (int tap = 0; taps <= MOST && tap < taps; tap++) {
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
                for (int part = 0; taps <= MOST && part < PARTS; part++)
                    for (int s = 0; s < taps; s++, from += LANES)
                        x[part] = conv_pick(x[part], which[tap][s], at[tap], from);
                for (int k = 0; taps > MOST && k < 32; k++)
                    memcpy(($type *)x + k, from + k * taps + tap, sizeof *from);
                conv_vector_pairs(all, x);
                store_pairs(block, all, 1024);
            }
    }
}

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
    for (int k = 0; step == 2 && k < n; k += CONV_SPREAD)
        conv_spread(to + 2 * k, from + k, at_most(n - k, CONV_SPREAD));
    for (int k = 0; step > 2 && k < n; k++) to[k * step] = from[k];
}

/* to[k] = from[k * step] for n elements. */
static inline void conv_get($type *to, const $type *from, int n, int step) {
    if (step == 1) memcpy(to, from, (size_t)n * sizeof *to);
    for (int k = 0; step == 2 && k < n; k += CONV_SPREAD)
        conv_unspread(to + k, from + 2 * k, at_most(n - k, CONV_SPREAD));
    for (int k = 0; step > 2 && k < n; k++) to[k] = from[k * step];
}
