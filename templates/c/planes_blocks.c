// planes_blocks: blocks of places for sums on vectors.

//@ planes_blocks()
/* How places are cut into blocks: at most so many images, rows and columns of each part. inner: in the copy of what a
 * block reads, elements of the same place in all images are neighbours. */
typedef struct conv_cut {
    int images, rows, columns;
    bool inner;
} conv_cut;

/* Along one axis, places of a block: those of the part from `first` on. The copy of what they read has `length`
 * elements, from place `from` of the plane on and `thin` places apart; 0 where the plane has ended. In the copy, tap 0
 * of the first place reads element `at`; read, tap: steps from place to place and from tap to tap. */
typedef struct conv_span {
    int first, places, from, thin, length, at, read, tap;
} conv_span;

/* A block of places of a part; elements of the copy from image to image, from row to row and from column to column. */
typedef struct conv_block {
    int image, images;
    conv_span h, w;
    int next_image, next_row, next_column;
} conv_block;

/* Block `number` along an axis that has blocks of at most `most` places. */
static conv_span conv_span_of(const conv_axis *axis, int number, int most, int read, int tap) {
    const int first = number * most, left = axis->places > first ? axis->places - first : 0;
    const int places = left < most ? left : most;
    const int thin = axis->taps > 1 ? 1 : read, reach = axis->taps > 1 ? (axis->taps - 1) * tap : 0;
    const int before = reach < 0 ? -reach : 0, behind = reach > 0 ? reach : 0;
    return (conv_span){first, places, axis->from + first * read - before, thin,
                       ((places - 1) * read + before + behind) / thin + 1, before, read / thin, tap};
}

/* Block `number` of a part of so many images: columns first, then rows, then images, counted as `all` has them, the
 * part with the most places. It may be empty. */
static __attribute__((noinline)) conv_block conv_block_of(const conv_cut *cut, const conv_part *part,
                                                          const conv_part *all, const conv_planes *planes, int images,
                                                          int number) {
    const int across = (all->w.places + cut->columns - 1) / cut->columns;
    const int down = (all->h.places + cut->rows - 1) / cut->rows, image = number / across / down * cut->images;
    conv_block b = {.image = image, .images = images - image < cut->images ? images - image : cut->images,
        .h = conv_span_of(&part->h, number / across % down, cut->rows, planes->read_h, planes->tap_h),
        .w = conv_span_of(&part->w, number % across, cut->columns, planes->read_w, planes->tap_w)};
    b.next_image = cut->inner ? 1 : b.h.length * b.w.length;
    b.next_column = cut->inner ? b.images : 1;
    b.next_row = b.w.length * b.next_column;
    return b;
}

/* Numbers from the first on, before the end. */
typedef struct conv_range {
    int first, end;
} conv_range;
