// planes: places of an image as columns of a product, and the elements that taps read around them.

//@ planes(half, type)
/* Along one axis, places of a convolution's result that the same taps compute: `places` of them, the first is
 * `place`; `taps` taps, the first is `tap` and reads at `from` for the first place. */
struct conv_axis {
    int place, places, tap, taps, from;
};

/* A part of the places: those of two axes. */
struct conv_part {
    conv_axis h, w;
    int weight, tiles;  // where its weights begin; blocks of the parts before it
};

/* How planes are read: their size, the planes (octets of channels) of an image, and steps from place to place and from
 * tap to tap. */
struct conv_planes {
    int height, width, channels, read_h, read_w, tap_h, tap_w;
};

// The element of a channel that a tap reads for place number j of a part, 0 outside the plane.
GA_DEVICE real conv_read(const $type *x, conv_planes p, const conv_part &part, ga_int64 j, int channel, int tap) {
    const int in_image = part.h.places * part.w.places, place = (int)(j % in_image);
    const int h = place / part.w.places * p.read_h + part.h.from + tap / part.w.taps * p.tap_h;
    const int w = place % part.w.places * p.read_w + part.w.from + tap % part.w.taps * p.tap_w;
    if (h < 0 || h >= p.height || w < 0 || w >= p.width) return 0;
//% if half then
    return $(half)_widen(x[((j / in_image * p.channels + channel) * p.height + h) * p.width + w]);
//% else
    return x[((j / in_image * p.channels + channel) * p.height + h) * p.width + w];
//% end
}
