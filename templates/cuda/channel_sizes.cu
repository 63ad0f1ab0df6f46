// channel_sizes: the sizes of a batchnorm, as the host gives them to kernels.

//@ channel_sizes()
/* Sizes of a batchnorm of (rows, channels, rest), by groups of rows. A block has a plane of WIDE neighbouring channels,
 * of which threads move runs of FEW neighbours. */
typedef struct channel_sizes {
    int channels, image;  // channels; elements of a row
    ga_divisor planes;
    ga_divisor groups;
    ga_divisor row;    // runs of a plane in a row
    int rows, runs;    // rows of a group, runs of a plane in them
    int share;         // runs of a block
    int parts;         // that statistics or sums come in
    int values;        // values of a channel behind one of its averages
    real unbiased;     // the variance of all values over that of a sample
} channel_sizes;

//@ channel_sizes_launch()
$(channel_sizes { })
