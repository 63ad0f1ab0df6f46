// planes_rows: terms of the sums of a convolution as rows for products in blocks (planes_terms.c).

//@ planes_rows(half, type)
/* Rows of A: 32 terms from `first` on, of which `terms` are read; the others are 0. */
static __attribute__((noinline)) void conv_rows($type *to, const conv_terms *x, int first, int terms) {
    for (int k = 0; k < 32; k++) {
        conv_term t = conv_term_at(x, first + k, k < terms);
        for (int v = 0; v < x->count; v += 16, to += 16) {
            const conv_row row = conv_take(t.plane, t.window++);
            memcpy(to, &row, sizeof row);
        }
    }
}
