// planes: places of a convolution, and how taps read planes around them.

//@ planes()
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

/* How planes are read: their size, the elements of an image, and steps from place to place and from tap to tap. */
typedef struct conv_planes {
    int height, width, image, read_h, read_w, tap_h, tap_w;
} conv_planes;
