// planes_lists: the places as terms of a weight's gradient, for sums on vectors.

//@ planes_lists(half, type)
/* Whether blocks of a part have other places than each other, apart from the images that they are in. */
static bool conv_differ(const conv_block *a, const conv_block *b) {
    return a->images != b->images || a->h.first != b->h.first || a->w.first != b->w.first;
}

/* Whether a tap across reads inside the plane. */
static inline bool conv_reaches(const conv_reach *x, int w) { return w >= x->w.first && w < x->w.end; }

/* For each tap the places that read inside the plane, as steps of sums (conv_sums) over the copy and rows of `columns`
 * elements; the last list has all places, and is the only one if `count` is 1. Rows have `across` places. */
static __attribute__((noinline)) void conv_find_lists(conv_item *lists, int *counts, int count, int most, const int *at,
                                                      const conv_reach *reach, int places, int across, int wide,
                                                      int columns) {
    for (int tap = 0; tap < count; tap++, lists += most) {
        const int h = tap / wide, w = tap % wide;
        int n = 0;
        for (int row = 0; row < places; row += across) {
            int first = row, end = row + across;
            if (tap < count - 1) {
                if (h < reach[row].h.first || h >= reach[row].h.end) continue;
                while (first < end && !conv_reaches(reach + first, w)) first++;
                while (first < end && !conv_reaches(reach + end - 1, w)) end--;
            }
            for (int p = first; p < end; p++) lists[n++] = (conv_item){at[p], p * columns};
        }
        counts[tap] = n;
    }
}

/* Copies elements of `rows` planes as columns: to(p, i) = from[i * plane + places[p]], with zeros as conv_turn has. */
static __attribute__((noinline)) void conv_turn_places(real *to, int wide, const $type *from, size_t plane, int rows,
                                                       const int *places, int count) {
    for (int p = 0, n; p < count; p += n) {
        for (n = 1; p + n < count && places[p + n] == places[p] + n;) n++;
        conv_turn(to + p * wide, wide, from + places[p], plane, rows, n);
    }
}
