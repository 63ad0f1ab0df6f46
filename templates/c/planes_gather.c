// planes_gather: what taps read of planes, as rows of a panel for strips.

//@ planes_gather(half, type)
/* The elements that taps read (conv_locate); run: whether the elements of a vector are neighbours. */
typedef struct conv_places {
    const int *at;
    bool *run;
} conv_places;

/* Finds the runs of so many vectors. */
static __attribute__((noinline)) void conv_find_runs(conv_places p, int vectors) {
    for (int v = 0; v < vectors; v++) {
        const int *at = p.at + v * VEC_LANES;
        int apart = at[0] < 0;
        for (int l = 1; l < VEC_LANES; l++) apart |= at[l] != at[0] + l;
        p.run[v] = !apart;
    }
}

/* The elements that one tap reads in the plane at x, 0 outside. */
static __attribute__((noinline)) void conv_gather(real *to, const $type *x, conv_places p, int tap, int count) {
    const int *at = p.at + tap * count;
    const bool *run = p.run + tap * (count / VEC_LANES);
    for (int v = 0; v < count / VEC_LANES; v++, to += VEC_LANES, at += VEC_LANES) {
//% if half then
        if (run[v]) widen_row(to, x + at[0], VEC_LANES);
        else for (int l = 0; l < VEC_LANES; l++) to[l] = at[l] < 0 ? 0 : $(half)_widen(x[at[l]]);
//% else
        if (run[v]) *(vec_at *)to = *(const vec_at *)(x + at[0]);
        else for (int l = 0; l < VEC_LANES; l++) to[l] = at[l] < 0 ? 0 : x[at[l]];
//% end
    }
}
