// planes: places of an image as columns of a product, and the elements that taps read around them.

//@ planes(half, type)
/* Along one axis, places of a convolution's result that the same taps compute: `places` of them, the first is
 * `place`; `taps` taps, the first is `tap` and reads at `from` for the first place. */
typedef struct conv_axis {
    int place, places, tap, taps, from;
} conv_axis;

/* A part of the places: those of two axes. */
typedef struct conv_part {
    conv_axis h, w;
    size_t weight; /* where its weights begin */
    int tiles;     /* of this part and those before it */
} conv_part;

enum { CONV_COLUMNS = 128 }; /* at most */

/* How planes are read: their size, the elements of an image, and steps from place to place and from tap to tap. */
typedef struct conv_planes {
    int height, width, image, read_h, read_w, tap_h, tap_w;
} conv_planes;

/* For each tap and column: the element `at` of the plane, -1 outside; run: whether those of a vector are neighbours. */
typedef struct conv_places {
    int *at;
    bool *run;
} conv_places;

/* Finds the elements that the taps of columns first .. first + count - 1 of a part read, as distances from the image
 * of the first column. count is a multiple of VEC_LANES; columns from `end` on are outside. */
static __attribute__((noinline)) void conv_locate(conv_places p, const conv_part *part, const conv_planes *planes,
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
    for (int tap = 0; tap < part->h.taps * part->w.taps; tap++) {
        const int down = tap / part->w.taps * x.tap_h, across = tap % part->w.taps * x.tap_w;
        int *at = p.at + tap * count;
        for (int c = 0; c < count; c++) {
            const int h = row[c] + down, w = column[c] + across;
            const bool inside = (h >= 0) & (h < x.height) & (w >= 0) & (w < x.width);
            at[c] = inside ? image[c] + h * x.width + w : -1;
        }
        for (int v = 0; v < count / VEC_LANES; v++) {
            int apart = at[v * VEC_LANES] < 0;
            for (int l = 1; l < VEC_LANES; l++) apart |= at[v * VEC_LANES + l] != at[v * VEC_LANES] + l;
            p.run[(tap * count) / VEC_LANES + v] = !apart;
        }
    }
}

$(gather { half = half, type = type })

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

//@ gather(half, type)
/* The elements that one tap reads in the plane at x, 0 outside. */
static __attribute__((noinline)) void conv_gather(real *to, const $type *x, conv_places p, int tap, int count) {
    const int *at = p.at + tap * count;
    const bool *run = p.run + tap * (count / VEC_LANES);
    for (int v = 0; v < count / VEC_LANES; v++, to += VEC_LANES, at += VEC_LANES) {
//% if half then
        if (run[v]) widen_row(to, x + at[0], VEC_LANES);
        else for (int l = 0; l < VEC_LANES; l++) to[l] = at[l] < 0 ? 0 : $(half)_widen(x[at[l]]);
//% else
        if (run[v]) *(vec_at *)to = *(const vec_at *)(x + at[0]);
        else for (int l = 0; l < VEC_LANES; l++) to[l] = at[l] < 0 ? 0 : x[at[l]];
//% end
    }
}
