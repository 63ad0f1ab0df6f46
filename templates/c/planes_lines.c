// planes_lines: planes as blocks of 32 terms by 32 places for products in blocks (matrix.c). Each element is copied
// once for each tap across, not once for each tap: taps below each other read other lines of the same copy.

//@ planes_lines(half, type)
/* A block of a product: 32 x 32 numbers, its slices behind each other. */
enum { CONV_BLOCK = SLICES * 32 * 32 };

/* How planes are read by lines. A line has the places of one row of some images, image by image; its length is a
 * multiple of 32.
 *   windows    what each tap across reads of row 0 for 16 places of a line each; then the places themselves
 *   height, width    of planes
 *   first, step      how far taps are from the place itself */
typedef struct conv_lines {
    const conv_window *windows;
    int height, width, first, step;
} conv_lines;

/* Finds the windows of a line of so many images; at: their elements, as from conv_locate. */
static __attribute__((noinline)) conv_lines conv_find_lines(conv_window *windows, int *at, const conv_planes *planes,
                                                            const conv_axis *w, int images) {
    const int length = images * w->places;
    for (int tap = 0; tap <= w->taps; tap++)
        for (int k = 0; k < length; k++) {
            const int place = k % w->places;
            const int column = tap < w->taps ? w->from + place * planes->read_w + tap * planes->tap_w : place;
            const bool inside = column >= 0 && column < planes->width;
            at[tap * length + k] = inside ? k / w->places * planes->image + column : -1;
        }
    conv_find_windows(windows, at, w->taps + 1, length);
    return (conv_lines){windows, planes->height, planes->width, w->from, planes->tap_w};
}
