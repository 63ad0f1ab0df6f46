// planes_places: the places of a block, and the taps that read inside planes.

//@ planes_places()
/* The taps that read inside a plane. */
typedef struct conv_reach {
    conv_range h, w;
} conv_reach;

/* The taps of a place along an axis that read inside a plane; read: from place to place, tap: from tap to tap. */
static conv_range conv_taps(const conv_axis *axis, int place, int read, int tap, int extent) {
    conv_range taps = {0, 0};
    int at = axis->from + place * read;
    for (; taps.first < axis->taps && (at < 0 || at >= extent); taps.first++) at += tap;
    for (taps.end = taps.first; taps.end < axis->taps && at >= 0 && at < extent; taps.end++) at += tap;
    return taps;
}

/* How results lie: the first place of a block, elements from place to place of a part, and from image to image. */
typedef struct conv_layout {
    int first, down, across, image;
} conv_layout;

/* The places of a block, and their number: where tap 0 reads in the copy, where the result lies, and the taps that read
 * inside the plane. They are in the order of images; where images are inner, of places and then of images, and every
 * second row runs backwards, so that neighbours have many taps in common. */
static __attribute__((noinline)) int conv_places(int *at, int *to, conv_reach *reach, const conv_block *block,
                                                 const conv_part *part, const conv_planes *planes,
                                                 const conv_layout *results) {
    const conv_span h = block->h, w = block->w;
    const bool inner = block->next_image == 1;
    int p = 0;
    for (int n = 0; n < (inner ? 1 : block->images); n++) {
        for (int i = 0; i < h.places; i++) {
            const conv_range down = conv_taps(&part->h, h.first + i, planes->read_h, planes->tap_h, planes->height);
            const int row = n * block->next_image + (h.at + i * h.read) * block->next_row;
            const int line = results->first + n * results->image + i * results->down;
            for (int k = 0; k < w.places; k++) {
                const int j = inner && i % 2 > 0 ? w.places - 1 - k : k;
                const conv_range across = conv_taps(&part->w, w.first + j, planes->read_w, planes->tap_w,
                                                    planes->width);
                for (int m = 0; m < (inner ? block->images : 1); m++, p++) {
                    at[p] = row + (w.at + j * w.read) * block->next_column + m;
                    to[p] = line + j * results->across + m * results->image;
                    reach[p] = (conv_reach){down, across};
                }
            }
        }
    }
    return p;
}
