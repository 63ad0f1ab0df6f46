// planes_runs: what taps read of planes of bf16 where 16 neighbouring places read neighbours, or every other element,
// for products in blocks on vectors (matrix.c). A panel is used for few rows there, so that the time of its copy counts.

//@ planes_runs()
/* The elements that a tap reads for 32 neighbouring places: 16 from first[0] on, 16 from first[1] on, or every other
 * one from there. Places outside the plane read 0.
 *   inside    a bit for each element that is read: those of all 32 in inside[0] where they are neighbours */
typedef struct conv_run {
    int first[2];
    uint32_t inside[2];
} conv_run;

/* The elements of each tap are in 32 neighbours, in twice 16 neighbours, or in twice every other element of 32. */
typedef enum conv_run_kind { CONV_NO_RUNS, CONV_JOINED, CONV_APART, CONV_EVERY_OTHER } conv_run_kind;

/* The runs of all taps, then those of one that reads 0. */
typedef struct conv_runs {
    const conv_run *run;
    conv_run_kind kind;
} conv_runs;

/* The bits of a number with a zero behind each. */
static inline uint32_t conv_every_other(uint32_t bits) {
    uint32_t all = 0;
    for (int i = 0; i < 16; i++) all |= (bits >> i & 1) << 2 * i;
    return all;
}

/* Whether a window has every other element from *first on. */
static inline bool conv_is_spread(const conv_window *w, int *first) {
    const int place = w->inside ? __builtin_ctz(w->inside) : 0;
    const bool one = (w->inside & (w->inside - 1)) == 0;
    *first = w->first[0] + (w->run ? -place : w->lane[place] - 2 * place);
    if (w->run || w->loads[1] || w->far || w->scattered) return w->run && one;
    for (int p = place; p < 16; p++)
        if (w->inside >> p & 1 && w->first[0] + w->lane[p] != *first + 2 * p) return false;
    return true;
}

/* The runs of windows of `count` places for each tap (conv_find_windows). */
static __attribute__((noinline)) conv_runs conv_find_runs(conv_run *to, const conv_window *w, int taps, int count) {
    const int all = (taps + 1) * count / 32;
    bool run = true, joined = true, spread = true;
    for (int v = 0; v < all && run; v++) {
        const conv_window *a = w + 2 * v, *b = a + 1;
        to[v] = (conv_run){{a->first[0], b->first[0]}, {a->inside | (uint32_t)b->inside << 16, b->inside}};
        if (b->inside == 0) to[v].first[1] = to[v].first[0] + 16;
        else if (a->inside == 0) to[v].first[0] = to[v].first[1] - 16;
        run = a->run && b->run;
        joined = joined && to[v].first[1] == to[v].first[0] + 16;
    }
    if (run) return (conv_runs){to, joined ? CONV_JOINED : CONV_APART};
    for (int v = 0; v < all && spread; v++) {
        const conv_window *a = w + 2 * v, *b = a + 1;
        to[v] = (conv_run){{0}, {conv_every_other(a->inside), conv_every_other(b->inside)}};
        spread = conv_is_spread(a, &to[v].first[0]) && conv_is_spread(b, &to[v].first[1]);
    }
    return (conv_runs){to, spread ? CONV_EVERY_OTHER : CONV_NO_RUNS};
}

/* The elements of a run in the plane at x: all of them where they are neighbours, else those of one half. */
static inline __m512i conv_take_joined(const bf16 *x, const conv_run *r) {
    return _mm512_maskz_loadu_epi16(r->inside[0], x + r->first[0]);
}

static inline __m256i conv_take_half(const bf16 *x, const conv_run *r, int half) {
    return _mm256_maskz_loadu_epi16((uint16_t)r->inside[half], x + r->first[half]);
}

/* Every other element of a run of 16 in the plane at x, with zeros between them. */
static inline __m512i conv_take_spread(const bf16 *x, const conv_run *r, int half) {
    return _mm512_maskz_loadu_epi16(r->inside[half], x + r->first[half]);
}
