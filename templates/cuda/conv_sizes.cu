// conv_sizes: the sizes of a convolution on tensor cores, as the host gives them to kernels.

//@ conv_sizes()
/* Places of a convolution's result along one axis that the same taps compute: the first one, how many, and where the
 * first tap reads for it; the number of that tap, and how many there are. */
typedef struct conv_side {
    int place, from, tap;
    ga_divisor places, taps;
} conv_side;

/* A share of the places: those of two axes; how many, and their taps; where its weights begin, and blocks before it. */
typedef struct conv_share {
    conv_side h, w;
    ga_divisor places, taps;
    int weight, blocks;
} conv_share;

/* The planes that are read lie by octets, 8 channels of a place side by side. */
typedef struct conv_sizes {
    int images;
    int in, in_octets, out, out_octets;  // channels of a group that are read and that come out
    ga_divisor groups, across;           // of channels; tiles beside each other
    int image, height, width;            // octets of an image that is read; its planes
    int read_h, read_w;                  // steps in them between neighbouring places of the result
    int tap_h, tap_w;                    // and between neighbouring taps
    int outputs, result, row;            // octets of an image that comes out; places of its planes, and of their rows
    int place_h, place_w;                // steps in it between neighbouring places of a share
} conv_sizes;

/* The places that 3 x 3 taps read for a tile of whole lines or images. The columns of a line are in sections: those
 * that neighbouring places read at one tap are neighbours. */
typedef struct conv_patch {
    ga_divisor plane, line, section;  // places of an image, of a line and of a section
    int places;                       // of all images
    int swaps;                        // whether rows of a tile have lines of four places in another order
    int up, left;                     // how far from where the first tap reads the patch begins
    int down[3], right[3];            // how far the taps of a column, and of a row, read behind a place
} conv_patch;

/* Weights as a product reads them: in each group rows of octets of channels, of a window of height x width taps. */
typedef struct conv_weights_sizes {
    ga_divisor groups, rows, octets;
    int channels, height, width;
    int tap_h, tap_w;  // steps from one tap of a share to the next
    int blocks;        // of a share
} conv_weights_sizes;

//@ conv_sizes_launch()
$(conv_sizes { })
