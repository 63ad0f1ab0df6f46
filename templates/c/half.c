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

//@ narrow_row_of_pairs()
/* n numbers rounded to bf16, 32 at a time. A denormal among these becomes 0: threads compute none. */
static inline void narrow_row(bf16 *restrict to, const real *restrict from, int n) {
    int c = 0;
    for (; c + 32 <= n; c += 32) {
        vec half[2];
        memcpy(half, from + c, sizeof half);
        const __m512bh all = _mm512_cvtne2ps_pbh((__m512)half[1], (__m512)half[0]);
        memcpy(to + c, &all, sizeof all);
    }
    for (; c < n; c++) to[c] = bf16_narrow(from[c]);
}

//@ narrow_row(half)
/* n numbers rounded to 16 bits. */
static inline void narrow_row($half *restrict to, const real *restrict from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_narrow(from[c]);
}
