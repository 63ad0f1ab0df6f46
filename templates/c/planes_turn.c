// planes_turn: elements of channels, or of images, that become neighbours in what taps read (planes_copy.c).

//@ planes_turn(half, type)
/* Copies at most `wide` rows of `row` elements as columns: to(j, i) = from(i, j); zeros in columns from `rows` on. */
static __attribute__((noinline)) void conv_turn(real *to, int wide, const $type *from, size_t row, int rows,
                                                int columns) {
    if (rows > wide) rows = wide;
    if (rows < wide) memset(to, 0, (size_t)columns * wide * sizeof *to);
//% if half then
    enum { MOST = 64 };
    real some[MOST * MOST];
    for (int j = 0; j < columns; j += MOST) {
        const int n = columns - j < MOST ? columns - j : MOST;
        for (int i = 0; i < rows; i += MOST) {
            const int m = rows - i < MOST ? rows - i : MOST;
            for (int k = 0; k < m; k++) widen_row(some + k * MOST, from + (size_t)(i + k) * row + j, n);
            turn_rows(to + (size_t)j * wide + i, wide, some, MOST, m, n);
        }
    }
//% else
    turn_rows(to, wide, from, row, rows, columns);
//% end
}

//% if half then
/* Copies rows of a plane of at most TURNED images to where elements of the same place are neighbours, a few rows of
 * TURNED_WIDE elements in all at a time. */
enum { TURNED = 32, TURNED_WIDE = 64 };
static inline void conv_turn_rows(real *to, const $type *x, const conv_block *b, const conv_planes *planes,
                                  conv_range rows, conv_range columns) {
    real some[TURNED * TURNED_WIDE];
    const int wide = planes->width, at_once = TURNED_WIDE / wide, column = b->w.from + columns.first;
    for (int k = rows.first; k < rows.end; k += at_once) {
        const int n = k + at_once < rows.end ? at_once : rows.end - k;
        const $type *from = x + (b->h.from + k) * wide;
        for (int i = 0; i < b->images; i++) widen_row(some + i * TURNED_WIDE, from + i * planes->image, n * wide);
        for (int r = 0; r < n; r++)
            turn_rows(to + (k + r) * b->next_row + columns.first * b->images, b->images, some + r * wide + column,
                      TURNED_WIDE, b->images, columns.end - columns.first);
    }
}

//% end
