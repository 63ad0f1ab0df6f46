/* convolution_sums.c: see convolution_sums.h. A file of its own, since the programs with kernels are not optimised. */
#include "convolution_sums.h"

#include <math.h>

sums of_y, of_dx, of_dw;
double of_x[MOST], of_weight[MOST], of_dy[MOST];

static void add(sums *s, size_t i, double term) {
    s->value[i] += term;
    s->size[i] += fabs(term);
    s->terms[i]++;
}

/* The terms of a row of places from `at` on by weight k and a row of x from i on, whose element for the first place
 * lies `offset` behind i. */
static void add_row(const convolution *c, size_t at, size_t k, size_t i, int offset) {
    int first = 0, last = c->columns;
    while (first < last && first * c->stride_w + offset < 0) first++;
    while (last > first && (last - 1) * c->stride_w + offset >= c->width) last--;
    for (int q = first; q < last; q++) {
        const size_t from = i + (size_t)(q * c->stride_w + offset), to = at + (size_t)q;
        add(&of_y, to, of_x[from] * of_weight[k]);
        add(&of_dx, from, of_dy[to] * of_weight[k]);
        add(&of_dw, k, of_dy[to] * of_x[from]);
    }
}

/* The terms of a plane of places by weight k, which is at row r and column v of a window, and a plane of x. */
static void add_plane(const convolution *c, size_t places, size_t k, size_t plane, int r, int v) {
    for (int p = 0; p < c->rows; p++) {
        const int h = p * c->stride_h + r * c->dilation_h - c->pad_h;
        if (h < 0 || h >= c->height) continue;
        add_row(c, places + (size_t)(p * c->columns), k, plane + (size_t)(h * c->width), v * c->dilation_w - c->pad_w);
    }
}

/* The terms of output plane o of an image. */
static void add_output(const convolution *c, int image, int o, const float *bias) {
    const int in = c->channels / c->groups, first = image * c->channels + o / (c->out / c->groups) * in;
    const size_t plane = (size_t)(c->rows * c->columns), places = (size_t)(image * c->out + o) * plane;
    size_t k = (size_t)(o * in * c->window_h * c->window_w);
    for (size_t i = 0; bias && i < plane; i++) add(&of_y, places + i, bias[o]);
    for (int channel = first; channel < first + in; channel++)
        for (int r = 0; r < c->window_h; r++)
            for (int v = 0; v < c->window_w; v++, k++)
                add_plane(c, places, k, (size_t)(channel * c->height * c->width), r, v);
}

void sums_define(const convolution *c, const float *bias) {
    for (int image = 0; image < c->images; image++)
        for (int o = 0; o < c->out; o++) add_output(c, image, o, bias);
}
