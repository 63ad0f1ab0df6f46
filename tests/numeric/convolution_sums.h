/* convolution_sums.h: a convolution and both gradients as they are defined, in double. */
#ifndef CONVOLUTION_SUMS_H
#define CONVOLUTION_SUMS_H

#include <stddef.h>

enum { MOST = 1 << 19 };

typedef struct convolution {
    int images, channels, height, width, out, rows, columns, window_h, window_w, stride_h, stride_w, pad_h, pad_w;
    int dilation_h, dilation_w, groups;
} convolution;

/* For each element of a result the sum of its terms and of their absolute values, and how many there are. */
typedef struct sums {
    double value[MOST], size[MOST];
    int terms[MOST];
} sums;

extern sums of_y, of_dx, of_dw;

/* The operands. */
extern double of_x[MOST], of_weight[MOST], of_dy[MOST];

/* Adds the terms of all results to the sums. bias: NULL for none. */
void sums_define(const convolution *c, const float *bias);

#endif
