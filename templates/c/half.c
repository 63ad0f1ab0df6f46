// half: rows of elements of 16 bits.

//@ widen_row(half)
/* n elements of 16 bits as numbers to compute with. */
static inline void widen_row(real *restrict to, const $half *restrict from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_widen(from[c]);
}

//@ widen_rows(half)
/* Rows of 16 bits as numbers to compute with. */
static inline void widen_rows(real *to, size_t to_row, const $half *from, size_t from_row, int rows, int columns) {
    for (int r = 0; r < rows; r++, to += to_row, from += from_row) widen_row(to, from, columns);
}

//@ narrow_row(half)
/* n numbers rounded to 16 bits. */
static inline void narrow_row($half *restrict to, const real *restrict from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_narrow(from[c]);
}
