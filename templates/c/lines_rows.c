// lines_rows: planes by lines as the operands of the gradient of a weight (planes_lines.c).

//@ lines_rows(half, type)
/* The elements of two windows behind each other. */
static inline void conv_row_pairs(bf16_pairs x[SLICES], conv_row a, conv_row b) {
//% if half then
    x[0] = (bf16_pairs)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)a), (__m256i)b, 1);
//% else
    slices_of_row(x, a, b);
//% end
}

/* Blocks of A: their rows are planes, and their terms places; otherwise as conv_line_pairs. */
static inline __attribute__((always_inline)) void conv_line_rows(bf16 *to, const conv_lines *x, const $type *planes,
                                                                 int channels, int first, int rows, const int taps,
                                                                 const int length, const bool shifts) {
    const int plane = x->height * x->width, vectors = length / 32, line = vectors * CONV_BLOCK;
    typedef uint16_t halves __attribute__((vector_size(64)));
    halves lanes[taps];
    for (int l = 0; l < 32 * taps; l++) lanes[l / 32][l % 32] = (uint16_t)(l % 32 + x->first + l / 32 * x->step);
    for (int g = 0; g < channels; g += 32, to += taps * rows * line)
        for (int r = 0; r < rows; r++) {
            const int row = first + r;
            if (row < 0 || row >= x->height) {
                for (int tap = 0; tap < taps; tap++) memset(to + (tap * rows + r) * line, 0, line * sizeof *to);
                continue;
            }
            const $type *from = planes + (size_t)g * plane + row * x->width;
            for (int c = 0; c < 32; c++, from += plane) {
                bf16 *pairs = to + r * line + 32 * c;
                bf16_pairs all[length / 32 + 2][SLICES];
                memset(all[0], 0, sizeof all[0]);
                memset(all[vectors + 1], 0, sizeof all[0]);
                if (shifts) {
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + 2 * (taps * vectors + v);
                        conv_row_pairs(all[v + 1], conv_take(from, w), conv_take(from, w + 1));
                    }
                }
                UNROLL for (int tap = 0; tap < taps; tap++) {
                    const int beside = x->first + tap * x->step < 0 ? -1 : 1;
                    UNROLL for (int v = 0; v < vectors; v++) {
                        const conv_window *w = x->windows + 2 * (tap * vectors + v);
                        const uint32_t inside = w[0].inside | (uint32_t)w[1].inside << 16;
                        bf16_pairs one[SLICES];
                        if (!shifts)
                            conv_row_pairs(one, conv_take(from, w), conv_take(from, w + 1));
                        else
                            for (int s = 0; s < SLICES; s++)
                                one[s] = (bf16_pairs)_mm512_maskz_permutex2var_epi16(inside, (__m512i)all[v + 1][s],
                                    (__m512i)lanes[tap], (__m512i)all[v + 1 + beside][s]);
                        store_pairs(pairs + tap * rows * line + v * CONV_BLOCK, one, 1024);
                    }
                }
            }
        }
}

/* Blocks of B: their columns are planes, and their terms places; otherwise as conv_line_pairs. */
static __attribute__((noinline)) void conv_line_columns(bf16 *to, const conv_lines *x, const $type *planes,
                                                        int channels, int first, int rows, int length) {
    const int plane = x->height * x->width;
    _Alignas(64) $type block[32 * 32];
    for (int c = 0; c < channels; c += 32, planes += 32 * plane)
        for (int r = first; r < first + rows; r++)
            for (int v = 0; v < length / 16; v += 2, to += CONV_BLOCK) {
                const $type *from = planes + r * x->width;
                for (int k = 0; k < 32; k++, from += plane) {
                    const conv_row a = conv_take(from, x->windows + v), b = conv_take(from, x->windows + v + 1);
                    memcpy(block + 32 * k, &a, sizeof a);
                    memcpy(block + 32 * k + 16, &b, sizeof b);
                }
                matrix_pack_columns(to, 32, 32, 32, block, 32);
            }
}
