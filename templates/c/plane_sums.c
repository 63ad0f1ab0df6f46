// plane_sums: sums along rows of several planes of a channel.

//@ plane_sums(type, half)
/* Sums along rows of n elements, `stride` apart, added up in double in the order of the rows; each row in the order of
 * its lanes. Four rows are added up at once, since each addition waits for the one before. */
enum { PLANES_AT_ONCE = 4 };
typedef enum { PLANE_SUM, PLANE_SPREAD, PLANE_LEVER } plane_kind; /* of x, of (x - mean)^2, of a (x - mean) */

//% if half then
static inline vec plane_part(const $type *x, int v) { return vec_widen(x + v * VEC_LANES); }
static inline real plane_element($type x) { return $(half)_widen(x); }
//% else
static inline vec plane_part(const $type *x, int v) { return row_part(x, v); }
static inline real plane_element($type x) { return x; }
//% end

/* The terms of part v of a row. */
static inline vec plane_terms(plane_kind kind, const $type *a, const $type *x, int v, real mean) {
    if (kind == PLANE_SUM) return plane_part(x, v);
    const vec apart = plane_part(x, v) - mean;
    return kind == PLANE_SPREAD ? apart * apart : plane_part(a, v) * apart;
}

static inline real plane_term(plane_kind kind, const $type *a, const $type *x, real mean) {
    if (kind == PLANE_SUM) return plane_element(*x);
    const real apart = plane_element(*x) - mean;
    return kind == PLANE_SPREAD ? apart * apart : plane_element(*a) * apart;
}

static inline __attribute__((always_inline)) real planes_total(const plane_kind kind, const $type *a, const $type *x,
                                                               size_t stride, int rows, int n, real mean) {
    double total = 0;
    for (int r = 0; r < rows; r += PLANES_AT_ONCE) {
        vec sum[PLANES_AT_ONCE][ROW_VECTORS] = {{{0}}};
        real lane[PLANES_AT_ONCE][ROW_LANES];
        size_t at[PLANES_AT_ONCE];
        int c = 0;
        /* behind the last row r is read again, and left out of the total */
        for (int q = 0; q < PLANES_AT_ONCE; q++) at[q] = (size_t)(r + q < rows ? r + q : r) * stride;
        for (; c + ROW_LANES <= n; c += ROW_LANES)
            UNROLL for (int v = 0; v < PLANES_AT_ONCE * ROW_VECTORS; v++) {
                const int q = v / ROW_VECTORS, part = v % ROW_VECTORS;
                sum[q][part] += plane_terms(kind, a + at[q] + c, x + at[q] + c, part, mean);
            }
        memcpy(lane, sum, sizeof lane);
        for (int q = 0; q < PLANES_AT_ONCE && r + q < rows; q++) {
            for (int j = 0; c + j < n; j++) lane[q][j] += plane_term(kind, a + at[q] + c + j, x + at[q] + c + j, mean);
            total += row_lanes(lane[q]);
        }
    }
    return (real)total;
}

static inline real planes_sum(const $type *x, size_t stride, int rows, int n) {
    return planes_total(PLANE_SUM, x, x, stride, rows, n, 0);
}

static inline real planes_spread(const $type *x, size_t stride, int rows, int n, real mean) {
    return planes_total(PLANE_SPREAD, x, x, stride, rows, n, mean);
}

static inline real planes_lever(const $type *a, const $type *x, size_t stride, int rows, int n, real mean) {
    return planes_total(PLANE_LEVER, a, x, stride, rows, n, mean);
}
