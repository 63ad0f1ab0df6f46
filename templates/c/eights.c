// eights: blocks of 8 x 8 elements with rows and columns exchanged in registers, and what they are for.

//@ turn_eights()
typedef real eight __attribute__((vector_size(8 * sizeof(real)), may_alias));

/* Exchanges rows and columns of 4 x 4 elements, in both halves of rows: neighbours, then pairs change places. */
static inline __attribute__((always_inline)) void turn_fours(eight x[4]) {
    eight y[4];
    UNROLL for (int i = 0; i < 4; i += 2) {
        const eight a = x[i], b = x[i + 1];
        y[i] = (eight){a[0], b[0], a[1], b[1], a[4], b[4], a[5], b[5]};
        y[i + 1] = (eight){a[2], b[2], a[3], b[3], a[6], b[6], a[7], b[7]};
    }
    UNROLL for (int i = 0; i < 2; i++) {
        const eight a = y[i], b = y[i + 2];
        x[2 * i] = (eight){a[0], a[1], b[0], b[1], a[4], a[5], b[4], b[5]};
        x[2 * i + 1] = (eight){a[2], a[3], b[2], b[3], a[6], a[7], b[6], b[7]};
    }
}

/* Exchanges rows and columns of 8 x 8 elements: inside of halves, then halves of rows change places. */
static inline __attribute__((always_inline)) void turn_eights(eight x[8]) {
    eight y[8];
    turn_fours(x);
    turn_fours(x + 4);
    UNROLL for (int i = 0; i < 4; i++) {
        const eight a = x[i], b = x[i + 4];
        y[i] = (eight){a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
        y[i + 4] = (eight){a[4], a[5], a[6], a[7], b[4], b[5], b[6], b[7]};
    }
    UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
}

//@ turned_eights()
/* The columns k .. k + 7 of the first n of 8 rows, as rows; columns from `depth` on are 0. */
static inline __attribute__((always_inline)) void turned_eights(eight x[8], const real *from, size_t stride, int n,
                                                                int k, int depth) {
    const int terms = depth - k < 8 ? depth - k : 8;
    UNROLL for (int r = 0; r < 8; r++) {
        x[r] = (eight){0};
        if (r < n) memcpy(&x[r], from + r * stride + k, terms == 8 ? sizeof x[r] : (size_t)terms * sizeof *from);
    }
    turn_eights(x);
}

//@ turn_rows()
/* to(j, i) = from(i, j) for so many rows and columns of `from`. */
static inline void turn_rows(real *to, size_t to_row, const real *from, size_t from_row, int rows, int columns) {
    for (int j = 0; j < columns; j++, to += to_row)
        for (int i = 0; i < rows; i++) to[i] = from[i * from_row + j];
}

//@ turn_rows_in_eights()
/* Copies rows x columns elements, 4 or 8 of each, with rows and columns exchanged. */
static inline __attribute__((always_inline)) void turn_part(real *to, size_t to_row, const real *from, size_t from_row,
                                                            const int rows, const int columns) {
    eight x[8] = {{0}};
    UNROLL for (int i = 0; i < rows; i++) memcpy(&x[i], from + i * from_row, (size_t)columns * sizeof *from);
    turn_eights(x);
    UNROLL for (int j = 0; j < columns; j++) memcpy(to + j * to_row, &x[j], (size_t)rows * sizeof *to);
}

/* The same for 8 rows of 4: the second half of a register has the last 4 rows. */
static inline __attribute__((always_inline)) void turn_narrow(real *to, size_t to_row, const real *from,
                                                              size_t from_row) {
    typedef double pairs __attribute__((vector_size(sizeof(eight))));
    eight x[4];
    UNROLL for (int i = 0; i < 4; i++) { /* pairs of elements: halves written to memory would wait to be read whole */
        double a[2], b[2];
        memcpy(a, from + i * from_row, sizeof a);
        memcpy(b, from + (i + 4) * from_row, sizeof b);
        x[i] = (eight)(pairs){a[0], a[1], b[0], b[1]};
    }
    turn_fours(x);
    UNROLL for (int j = 0; j < 4; j++) memcpy(to + j * to_row, &x[j], sizeof x[j]);
}

/* to(j, i) = from(i, j) for so many rows and columns of `from`. */
static inline void turn_rows(real *to, size_t to_row, const real *from, size_t from_row, int rows, int columns) {
    const int tall = rows / 4 * 4, wide = columns / 4 * 4;
    for (int i = 0; i < tall; i += 8)
        for (int j = 0; j < wide; j += 8) {
            real *part = to + j * to_row + i;
            const real *some = from + i * from_row + j;
            if (i + 8 <= tall && j + 8 <= wide) turn_part(part, to_row, some, from_row, 8, 8);
            else if (i + 8 <= tall) turn_narrow(part, to_row, some, from_row);
            else if (j + 8 <= wide) turn_part(part, to_row, some, from_row, 4, 8);
            else turn_part(part, to_row, some, from_row, 4, 4);
        }
    for (int j = 0; j < columns; j++)
        for (int i = j < wide ? tall : 0; i < rows; i++) to[j * to_row + i] = from[i * from_row + j];
}
