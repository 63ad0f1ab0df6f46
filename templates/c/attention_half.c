// attention_half: rows of the tiles of attention from 16 bits.

//@ attention_half(half, type)
/* n rows of d elements of 16 bits as rows of a tile, with zeros behind them up to `wide`. */
static inline __attribute__((always_inline)) void tile_widen(real *restrict to, const int wide,
                                                             const $half *restrict from, size_t stride, int n,
                                                             const int d) {
    for (int i = 0; i < n; i++, to += wide, from += stride) {
        for (int c = 0; c < d; c++) to[c] = $(half)_widen(from[c]);
        for (int c = d; c < wide; c++) to[c] = 0;
    }
}
