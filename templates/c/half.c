// half: rows of elements of 16 bits.

//@ widen_row(half)
/* n elements of 16 bits as numbers to compute with. */
static inline void widen_row(real *restrict to, const $half *restrict from, int n) {
    for (int c = 0; c < n; c++) to[c] = $(half)_widen(from[c]);
}

//@ vec_widen(half, bf16, bits)
/* VEC_LANES elements of 16 bits as numbers to compute with. */
static inline vec vec_widen(const $half *x) {
//% if not bf16 then
    vec out;
    for (int j = 0; j < VEC_LANES; j++) out[j] = $(half)_widen(x[j]);
    return out;
//% elseif bits == 512 then
    typedef uint32_t upper __attribute__((vector_size(64)));
    __m256i few;
    memcpy(&few, x, sizeof few);
    return (vec)((upper)_mm512_cvtepu16_epi32(few) << 16);
//% elseif bits == 256 then
    typedef uint32_t upper __attribute__((vector_size(32)));
    __m128i few;
    memcpy(&few, x, sizeof few);
    return (vec)((upper)_mm256_cvtepu16_epi32(few) << 16);
//% else
    typedef uint16_t lower __attribute__((vector_size(2 * VEC_LANES)));
    typedef uint32_t upper __attribute__((vector_size(4 * VEC_LANES)));
    lower few;
    memcpy(&few, x, sizeof few);
    return (vec)(__builtin_convertvector(few, upper) << 16);
//% end
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
