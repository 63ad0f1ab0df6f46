// planes_terms: terms of the sums of a convolution, as rows and panels for products in blocks (matrix.c).

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

/* Rows of A: 32 terms from `first` on, of which `terms` are read; the others are 0. */
static __attribute__((noinline, unused)) void conv_rows($type *to, const conv_terms *x, int first, int terms) {
    for (int k = 0; k < 32; k++) {
        conv_term t = conv_term_at(x, first + k, k < terms);
        for (int v = 0; v < x->count; v += 16, to += 16) {
            const conv_row row = conv_take(t.plane, t.window++);
            memcpy(to, &row, sizeof row);
        }
    }
}

/* A panel of B: `terms` terms from `first` on, zeros behind them up to a multiple of 32. `most`: the depth of a whole
 * panel. Pairs of the same two taps follow each other, so that their windows stay in registers. */
static __attribute__((noinline, unused)) void conv_panel(bf16 *panel, int most, const conv_terms *x, int first,
                                                         int terms) {
    const int period = x->taps % 2 ? 2 * x->taps : x->taps, pairs = terms / 2 * 2;
    const size_t step = (size_t)(period / x->taps) * x->plane, slice = 32 * (size_t)most;
    bf16_pairs all[SLICES];
    for (int v = 0; v < x->count / 16; v++) {
        bf16 *to = panel + v / 2 * 32 * SLICES * most + v % 2 * 32;
        for (int start = 0; start < period && start < pairs; start += 2) {
            const conv_term even = conv_term_at(x, first + start, true), odd = conv_term_at(x, first + start + 1, true);
            const conv_window a = even.window[v], b = odd.window[v];
            const bool runs = a.run && b.run;
            const $type *p = even.plane, *q = odd.plane;
            for (int k = start; runs && k < pairs; k += period, p += step, q += step) {
                conv_pairs(all, conv_take_run(p, &a), conv_take_run(q, &b));
                store_pairs(to + 32 * k, all, slice);
            }
            for (int k = start; !runs && k < pairs; k += period, p += step, q += step) {
                conv_pairs(all, conv_take(p, &a), conv_take(q, &b));
                store_pairs(to + 32 * k, all, slice);
            }
        }
        for (int k = pairs; k < (terms + 31) / 32 * 32; k += 2) {
            const conv_term last = conv_term_at(x, first + k, k < terms), none = conv_term_at(x, first + k, false);
            conv_pairs(all, conv_take(last.plane, last.window + v), conv_take(none.plane, none.window + v));
            store_pairs(to + 32 * k, all, slice);
        }
    }
}
