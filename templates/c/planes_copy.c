// planes_copy: copies of what the taps of a block of places read.

//@ planes_copy(half, type)
/* The elements of a copy along an axis that are inside a plane of this extent. */
static conv_range conv_inside(const conv_span *x, int extent) {
    int first = x->from < 0 ? (x->thin - 1 - x->from) / x->thin : 0, end = x->length;
    while (end > 0 && x->from + (end - 1) * x->thin >= extent) end--;
    return (conv_range){first < end ? first : end, end};
}

//% if not half then
typedef real fours __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));

//% end
/* Copies n elements that lie `thin` apart. */
static inline void conv_copy_row(real *to, const $type *from, int thin, int n) {
//% if half then
    if (thin == 1) widen_row(to, from, n);
    else for (int k = 0; k < n; k++) to[k] = $(half)_widen(from[k * thin]);
//% else
    int k = 0;
    for (; thin == 1 && k + VEC_LANES <= n; k += VEC_LANES) *(vec_at *)(to + k) = *(const vec_at *)(from + k);
    for (; thin == 1 && k + 4 <= n; k += 4) memcpy(to + k, from + k, 4 * sizeof *to);
    for (; thin == 2 && k + 4 <= n; k += 4) { /* no element behind the last one of a row is read */
        const fours a = *(const fours *)(from + 2 * k), b = *(const fours *)(from + 2 * k + 3);
        *(fours *)(to + k) = (fours){a[0], a[2], b[1], b[3]};
    }
    for (; k < n; k++) to[k] = from[k * thin];
//% end
}

/* Copies what a block reads of so many channels, `space` elements apart in the copy; x: the first one in the block's
 * first image. Elements outside the planes are 0 where the first channels of a block were copied with `clear`. Long
 * runs, and rows with others between them, are asked for some channels ahead: processors do not foresee them. */
static __attribute__((noinline)) void conv_copy(real *to, int space, const $type *x, const conv_block *block,
                                                const conv_planes *planes, int channels, bool clear) {
    enum { AHEAD = 4, LONG = 64 };
    const conv_block b = *block;
    const conv_range rows = conv_inside(&b.h, planes->height), columns = conv_inside(&b.w, planes->width);
    const int count = columns.end - columns.first;
    const bool joined = b.next_row == planes->width && count == planes->width && b.h.thin * b.w.thin == 1;
    if (clear && (rows.end - rows.first < b.h.length || count < b.w.length))
        memset(to, 0, (size_t)channels * space * sizeof *to);
    for (int c = 0; c < channels; c++, to += space, x += planes->height * planes->width) {
//% if half then
        if (b.next_image == 1 && b.h.thin * b.w.thin == 1 && b.images <= TURNED && planes->width <= TURNED_WIDE) {
            conv_turn_rows(to, x, &b, planes, rows, columns);
            continue;
        }
//% end
        const $type *from = x + b.w.from + columns.first * b.w.thin;
        for (int n = 0; n < (b.next_image == 1 ? 1 : b.images); n++, from += planes->image) {
            for (int k = rows.first; k < rows.end; k++) {
                if (joined && b.next_image > 1) { /* rows follow each other in both */
                    const $type *run = from + (b.h.from + k) * count;
                    const int length = (rows.end - k) * count;
                    if (length >= LONG) fetch_row(run + AHEAD * planes->height * planes->width, length * sizeof *x);
                    conv_copy_row(to + n * b.next_image + k * count, run, 1, length);
                    break;
                }
                real *row = to + n * b.next_image + k * b.next_row + columns.first * b.next_column;
                const $type *line = from + (b.h.from + k * b.h.thin) * planes->width;
                if (b.h.thin > 1) fetch_row(line + AHEAD * planes->height * planes->width, b.w.thin * count * sizeof *x);
                if (b.next_image > 1) conv_copy_row(row, line, b.w.thin, count);
                else if (b.w.thin == 1) conv_turn(row, b.images, line, planes->image, b.images, count);
                else
                    for (int i = 0; i < count; i++)
                        conv_turn(row + i * b.images, b.images, line + i * b.w.thin, planes->image, b.images, 1);
            }
        }
    }
}
