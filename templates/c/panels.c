// panels: blocks of a weight of f32 as parts of the panels of bf16 that products read (templates/c/layout.c).

//@ put_pairs()
/* A block of 32 x 32 numbers as numbers of bf16, with zeros behind its rows and columns. */
static inline void round_block(bf16 *block, const real *x, size_t stride, int rows, int columns) {
    if (rows < 32 || columns < 32) memset(block, 0, 32 * 32 * sizeof *block);
    for (int r = 0; r < rows; r++) narrow_row(block + 32 * r, x + r * stride, columns);
}

/* Stores 64 bytes, in the caches or past them. */
static inline void put_line(bf16 *to, bf16_pairs line, bool past) {
    if (past) _mm512_stream_si512((void *)to, (__m512i)line);
    else memcpy(to, &line, sizeof line);
}

/* Stores a block as rows of 32 pairs: (r, c) beside (r + 1, c) for an even r. */
static inline void put_pairs(bf16 *to, const bf16 *block, bool past) {
    for (int r = 0; r < 32; r += 2)
        for (int c = 0; c < 32; c += 16) {
            bf16_pairs x[SLICES];
            pairs_across(x, block + 32 * r + c, 32, 2, 16);
            put_line(to + 32 * r + 2 * c, x[0], past);
        }
}

/* Stores a block as rows of 32 pairs with rows and columns exchanged: (r, c) beside (r, c + 1) for an even c. */
static inline void put_turned_pairs(bf16 *to, const bf16 *block, bool past) {
    for (int r = 0; r < 32; r += 16) {
        bf16_pairs row[16];
        memcpy(row, block + 32 * r, sizeof row);
        turn_vectors(row);
        for (int c = 0; c < 16; c++) put_line(to + 64 * c + 2 * r, row[c], past);
    }
}
