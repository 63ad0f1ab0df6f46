// planes_terms: terms of the sums of a convolution for products in blocks (matrix.c).

//@ planes_terms(half, type)
/* The elements of a window, and pairs of those of two windows. */
//% if half then
typedef bf16_row conv_row;

static inline void conv_pairs(bf16_pairs x[SLICES], bf16_row even, bf16_row odd) {
    x[0] = (bf16_pairs)_mm512_cvtepu16_epi32((__m256i)even) | (bf16_pairs)_mm512_cvtepu16_epi32((__m256i)odd) << 16;
}
//% else
typedef vec conv_row;

static inline void conv_pairs(bf16_pairs x[SLICES], vec even, vec odd) { slices_of_pairs(x, even, odd); }
//% end

/* The source of terms: planes of so many elements, the windows of their taps for `count` places. Term k is tap
 * k % taps of plane k / taps. */
typedef struct conv_terms {
    const $type *planes;
    int plane, taps, count;
    const conv_window *windows;
} conv_terms;

typedef struct conv_term {
    const $type *plane;
    const conv_window *window;
} conv_term;

/* Term k; it reads 0 if it is no term of the sum. */
static inline conv_term conv_term_at(const conv_terms *x, int k, bool is_term) {
    const int tap = is_term ? k % x->taps : x->taps;
    return (conv_term){x->planes + (size_t)(k / x->taps) * x->plane, x->windows + tap * (x->count / 16)};
}
