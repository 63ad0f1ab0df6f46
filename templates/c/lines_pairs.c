// lines_pairs: planes by lines as the right operand of a convolution (planes_lines.c).

//@ lines_pairs(half, type)
/* Blocks of B: terms are so many planes, a multiple of 32, for rows first .. first + rows - 1; rows outside are 0. In
 * the order of 32 planes, taps across, rows, 32 places. shifts: each tap reads the places themselves, moved by less
 * than 16, so that a line is read once. Length is a literal where it is called, and so are taps where all parts of a
 * result have as many: their loops unroll. */
static inline __attribute__((always_inline)) void conv_line_pairs(bf16 *to, const conv_lines *x, const $type *planes,
                                                                  int channels, int first, int rows, const int taps,
                                                                  const int length, const bool shifts) {
    const int plane = x->height * x->width, vectors = length / 16, line = length / 32 * CONV_BLOCK;
    const vec_bits number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    for (int g = 0; g < channels; g += 32, to += taps * rows * line)
        for (int r = 0; r < rows; r++) {
            const int row = first + r;
            if (row < 0 || row >= x->height) {
                for (int tap = 0; tap < taps; tap++) memset(to + (tap * rows + r) * line, 0, line * sizeof *to);
                continue;
            }
            const $type *even = planes + (size_t)g * plane + row * x->width;
            for (int c = 0; c < 32; c += 2, even += 2 * plane) {
                bf16 *pairs = to + r * line + 32 * c;
                bf16_pairs all[length / 16 + 2][SLICES];
                memset(all[0], 0, sizeof all[0]);
                memset(all[vectors + 1], 0, sizeof all[0]);
                if (shifts) {
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + taps * vectors + v;
                        conv_pairs(all[v + 1], conv_take(even, w), conv_take(even + plane, w));
                    }
                }
                UNROLL for (int tap = 0; tap < taps; tap++) {
                    const int shift = x->first + tap * x->step, beside = shift < 0 ? -1 : 1;
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + tap * vectors + v;
                        bf16_pairs one[SLICES];
                        if (!shifts)
                            conv_pairs(one, conv_take(even, w), conv_take(even + plane, w));
                        else
                            for (int s = 0; s < SLICES; s++)
                                one[s] = (bf16_pairs)_mm512_maskz_permutex2var_epi32(w->inside, (__m512i)all[v + 1][s],
                                    (__m512i)(number + (uint32_t)shift), (__m512i)all[v + 1 + beside][s]);
                        store_pairs(pairs + tap * rows * line + v / 2 * CONV_BLOCK + v % 2 * 32, one, 1024);
                    }
                }
            }
        }
}
