// planes_locate: places of an image as columns of a product, and the elements that taps read around them.

//@ planes_locate()
enum { CONV_COLUMNS = 512 }; /* at most */

/* For each tap and each of the columns first .. first + count - 1 of a part, the element that is read, as the distance
 * from the image of the first column, or -1 outside the plane. Columns from `end` on are outside. */
static __attribute__((noinline)) void conv_locate(int *at, const conv_part *part, const conv_planes *planes,
                                                  int64_t first, int64_t end, int count) {
    const conv_planes x = *planes;
    const int in_image = part->h.places * part->w.places;
    int row[CONV_COLUMNS], column[CONV_COLUMNS], image[CONV_COLUMNS];
    int place = (int)(first % in_image), i = place / part->w.places, j = place % part->w.places, from = 0;
    for (int c = 0; c < count; c++) {
        row[c] = first + c < end ? i * x.read_h + part->h.from : INT32_MIN / 2;
        column[c] = j * x.read_w + part->w.from;
        image[c] = from;
        if (++j < part->w.places) continue;
        j = 0;
        if (++i < part->h.places) continue;
        i = 0;
        from += x.image;
    }
    for (int tap = 0; tap < part->h.taps * part->w.taps; tap++, at += count) {
        const int down = tap / part->w.taps * x.tap_h, across = tap % part->w.taps * x.tap_w;
        for (int c = 0; c < count; c++) {
            const int h = row[c] + down, w = column[c] + across;
            const bool inside = (h >= 0) & (h < x.height) & (w >= 0) & (w < x.width);
            at[c] = inside ? image[c] + h * x.width + w : -1;
        }
    }
}

/* Where the results of `count` columns lie in planes of `width`, counted from the image of the first column;
 * image: elements of an image of the result; step_h, step_w: rows and columns from one place to the next. */
static __attribute__((noinline)) void conv_results(int *to, const conv_part *part, int64_t first, int count,
                                                   int width, int image, int step_h, int step_w) {
    const int in_image = part->h.places * part->w.places;
    int place = (int)(first % in_image), i = place / part->w.places, j = place % part->w.places, from = 0;
    for (int c = 0; c < count; c++) {
        to[c] = from + (part->h.place + i * step_h) * width + part->w.place + j * step_w;
        if (++j < part->w.places) continue;
        j = 0;
        if (++i < part->h.places) continue;
        i = 0;
        from += image;
    }
}
