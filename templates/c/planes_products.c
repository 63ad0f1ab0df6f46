// planes_products: a convolution's places and terms for sums on vectors.

//@ planes_products()
static conv_range conv_hull(conv_range a, conv_range b) {
    return (conv_range){a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

/* In the place of the taps of single places, those of so many together. The last ones are filled up: they read what the
 * first one reads, and their result goes to place `unused`. */
static __attribute__((noinline)) void conv_join(int *at, int *to, conv_reach *reach, int places, int together,
                                                int unused) {
    for (int p = places; p % together > 0; p++) at[p] = at[0], to[p] = unused;
    for (int p = 0; p < places; p += together) {
        conv_reach all = reach[p];
        for (int r = 1; r < together && p + r < places; r++) {
            const conv_reach x = reach[p + r];
            all = (conv_reach){conv_hull(all.h, x.h), conv_hull(all.w, x.w)};
        }
        reach[p / together] = all;
    }
}

/* The results of a block: its images, the first row and column, rows and columns. */
typedef struct conv_area {
    int image, images, top, left, high, wide;
} conv_area;

/* Those of all parts, in so many planes of height x width; step_h, step_w: from place to place of a part. */
static conv_area conv_area_of(const conv_cut *cut, const conv_part *all, int number, int images, int height, int width,
                              int step_h, int step_w) {
    const int across = (all->w.places + cut->columns - 1) / cut->columns;
    const int down = (all->h.places + cut->rows - 1) / cut->rows;
    const int top = number / across % down * cut->rows * step_h, left = number % across * cut->columns * step_w;
    const int high = cut->rows * step_h, wide = cut->columns * step_w, image = number / across / down * cut->images;
    return (conv_area){image, images - image < cut->images ? images - image : cut->images, top, left,
                       height - top < high ? height - top : high, width - left < wide ? width - left : wide};
}

/* Channels of a panel of at most `terms` terms: in equal shares. */
static int conv_channels(int channels, int terms, int taps) {
    const int most = taps == 0 || terms / taps > channels ? channels : terms / taps;
    const int shares = (channels + most - 1) / most;
    return (channels + shares - 1) / shares;
}

/* The steps of taps of so many channels (conv_sums), and their number; b has rows of `columns` elements, one for each
 * channel and tap of the part. */
static __attribute__((noinline)) int conv_find_steps(conv_item *steps, const conv_reach *taps, const conv_block *block,
                                                     const conv_part *part, int channels, int space, int columns) {
    const int all = part->h.taps * part->w.taps;
    int count = 0;
    for (int c = 0; c < channels; c++)
        for (int h = taps->h.first; h < taps->h.end; h++)
            for (int w = taps->w.first; w < taps->w.end; w++)
                steps[count++] = (conv_item){
                    c * space + h * block->h.tap * block->next_row + w * block->w.tap * block->next_column,
                    (c * all + h * part->w.taps + w) * columns};
    return count;
}
