// planes_windows: what taps read of planes, as rows and panels for products in blocks (matrix.c).

//@ planes_windows(half, type)
//% if half then
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

static inline void conv_store(bf16 *to, __m256i x) { _mm256_storeu_si256((__m256i *)to, x); }

/* Pairs of what two taps read. */
static inline void conv_pairs(bf16_pairs x[SLICES], __m256i even, __m256i odd) {
    x[0] = (bf16_pairs)_mm512_cvtepu16_epi32(even) | (bf16_pairs)_mm512_cvtepu16_epi32(odd) << 16;
}
//% else
/* What a tap reads for 16 neighbouring places; the others are outside the plane and read 0.
 *   at          the elements, -1 outside (conv_locate)
 *   inside      the places that read an element
 *   run         whether these elements are neighbours too: place p reads element first + p */
typedef struct conv_window {
    const int *at;
    int first;
    uint16_t inside;
    bool run;
} conv_window;

/* Finds the windows of all taps for `count` places, a multiple of 16. The windows of one more tap read 0. */
static __attribute__((noinline)) void conv_find_windows(conv_window *to, const int *at, int taps, int count) {
    for (int v = 0; v < taps * count; v += 16, to++) {
        *to = (conv_window){.at = at + v, .run = true};
        for (int l = 0; l < 16; l++) {
            if (at[v + l] < 0) continue;
            if (to->inside == 0) to->first = at[v + l] - l;
            to->inside |= (uint16_t)(1 << l);
            to->run = to->run && at[v + l] == to->first + l;
        }
    }
    memset(to, 0, (size_t)count / 16 * sizeof *to);
    for (int v = 0; v < count / 16; v++) to[v].run = true;
}

/* What a window reads in the plane at x, for 16 places. */
static inline vec conv_take_run(const float *x, const conv_window *w) {
    return (vec)_mm512_maskz_loadu_ps(w->inside, x + w->first);
}

static inline vec conv_take(const float *x, const conv_window *w) {
    if (w->run) return conv_take_run(x, w);
    return (vec)_mm512_mask_i32gather_ps(_mm512_setzero_ps(), w->inside, _mm512_loadu_si512(w->at), x, sizeof *x);
}

static inline void conv_store(float *to, vec x) { memcpy(to, &x, sizeof x); }

/* Pairs of what two taps read. */
static inline void conv_pairs(bf16_pairs x[SLICES], vec even, vec odd) { slices_of_pairs(x, even, odd); }
//% end

/* What terms are made of: planes of so many elements, the windows of their taps for `count` places. Term k is tap
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
static __attribute__((noinline)) void conv_rows($type *to, const conv_terms *x, int first, int terms) {
    for (int k = 0; k < 32; k++) {
        conv_term t = conv_term_at(x, first + k, k < terms);
        for (int v = 0; v < x->count; v += 16, to += 16)
            conv_store(to, conv_take(t.plane, t.window++));
    }
}

/* A panel of B: `terms` terms from `first` on, zeros behind them up to a multiple of 32. `most`: the depth of a whole
 * panel. Pairs of the same two taps follow each other, so that their windows stay in registers. */
static __attribute__((noinline)) void conv_panel(bf16 *panel, int most, const conv_terms *x, int first, int terms) {
    const int period = x->taps % 2 ? 2 * x->taps : x->taps, pairs = terms / 2 * 2;
    const size_t step = (size_t)(period / x->taps) * x->plane, slice = 32 * (size_t)most;
    bf16_pairs all[SLICES];
    for (int v = 0; v < x->count / 16; v++) {
        bf16 *to = panel + v / 2 * 32 * SLICES * most + v % 2 * 32;
        for (int start = 0; start < period && start < pairs; start += 2) {
            const conv_term even = conv_term_at(x, first + start, true), odd = conv_term_at(x, first + start + 1, true);
            const conv_window a = even.window[v], b = odd.window[v];
            const $type *p = even.plane, *q = odd.plane;
            for (int k = start; a.run && b.run && k < pairs; k += period, p += step, q += step) {
                conv_pairs(all, conv_take_run(p, &a), conv_take_run(q, &b));
                store_pairs(to + 32 * k, all, slice);
            }
            for (int k = start; !(a.run && b.run) && k < pairs; k += period, p += step, q += step) {
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
