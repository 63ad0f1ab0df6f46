// planes_floats: what taps read of planes of f32, as rows and panels for products in blocks (matrix.c).

//@ planes_floats()
/* The elements that a tap reads for 16 neighbouring places. Places outside the plane read 0.
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
    for (int v = 0; v < count; v += 16) *to++ = (conv_window){.run = true};
}

/* The elements of a window in the plane at x, for 16 places. */
static inline vec conv_take_run(const float *x, const conv_window *w) {
    return (vec)_mm512_maskz_loadu_ps(w->inside, x + w->first);
}

static inline vec conv_take(const float *x, const conv_window *w) {
    if (w->run) return conv_take_run(x, w);
    __m512i at;
    memcpy(&at, w->at, sizeof at);
    return (vec)_mm512_mask_i32gather_ps((__m512){0}, w->inside, at, x, sizeof *x);
}
