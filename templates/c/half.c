// half: rows of elements of 16 bits.

//@ widen_row(half)
/* n elements of 16 bits as numbers to compute with. */
static inline void widen_row(real *to, const $half *from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_widen(from[c]);
}

//@ narrow_row(half)
/* n numbers rounded to 16 bits. */
static inline void narrow_row($half *to, const real *from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_narrow(from[c]);
}
