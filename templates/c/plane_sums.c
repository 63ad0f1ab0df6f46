// plane_sums: sums along rows of several planes of a channel.

//@ plane_sums(type, half)
/* Sums along rows of n elements, `stride` apart: each as row_sum computes one, added to `total` in the order of the
 * rows. Four rows are summed at once, since each addition waits for the one before. */
enum { PLANES_AT_ONCE = 4 };

//% if half then
static inline vec plane_part(const $type *x, int v) { return vec_widen(x + v * VEC_LANES); }

static inline real plane_element($type x) { return $(half)_widen(x); }
//% else
static inline vec plane_part(const $type *x, int v) { return row_part(x, v); }

static inline real plane_element($type x) { return x; }
//% end

/* The row r of x, at most the last one. */
static inline const $type *plane_row(const $type *x, size_t stride, int r, int rows) {
    return x + (size_t)(r < rows ? r : rows - 1) * stride;
}

/* The sums of x. */
static inline real planes_sum(real total, const $type *x, size_t stride, int rows, int n) {
    for (int r = 0; r < rows; r += PLANES_AT_ONCE) {
        const $type *row[PLANES_AT_ONCE];
        vec sum[PLANES_AT_ONCE][ROW_VECTORS] = {{{0}}};
        real lane[PLANES_AT_ONCE][ROW_LANES];
        int c = 0;
        for (int q = 0; q < PLANES_AT_ONCE; q++) row[q] = plane_row(x, stride, r + q, rows);
        for (; c + ROW_LANES <= n; c += ROW_LANES)
            UNROLL for (int v = 0; v < PLANES_AT_ONCE * ROW_VECTORS; v++) {
                const int q = v / ROW_VECTORS, part = v % ROW_VECTORS;
                sum[q][part] += plane_part(row[q] + c, part);
            }
        memcpy(lane, sum, sizeof lane);
        for (int q = 0; q < PLANES_AT_ONCE && r + q < rows; q++) {
            for (int j = 0; c + j < n; j++) lane[q][j] += plane_element(row[q][c + j]);
            total += row_lanes(lane[q]);
        }
    }
    return total;
}

/* The sums of (x - mean)^2. */
static inline real planes_spread(real total, const $type *x, size_t stride, int rows, int n, real mean) {
    for (int r = 0; r < rows; r += PLANES_AT_ONCE) {
        const $type *row[PLANES_AT_ONCE];
        vec sum[PLANES_AT_ONCE][ROW_VECTORS] = {{{0}}};
        real lane[PLANES_AT_ONCE][ROW_LANES];
        int c = 0;
        for (int q = 0; q < PLANES_AT_ONCE; q++) row[q] = plane_row(x, stride, r + q, rows);
        for (; c + ROW_LANES <= n; c += ROW_LANES)
            UNROLL for (int v = 0; v < PLANES_AT_ONCE * ROW_VECTORS; v++) {
                const int q = v / ROW_VECTORS, part = v % ROW_VECTORS;
                const vec apart = plane_part(row[q] + c, part) - mean;
                sum[q][part] += apart * apart;
            }
        memcpy(lane, sum, sizeof lane);
        for (int q = 0; q < PLANES_AT_ONCE && r + q < rows; q++) {
            for (int j = 0; c + j < n; j++) {
                const real apart = plane_element(row[q][c + j]) - mean;
                lane[q][j] += apart * apart;
            }
            total += row_lanes(lane[q]);
        }
    }
    return total;
}

/* The sums of a (x - mean). */
static inline real planes_lever(real total, const $type *a, const $type *x, size_t stride, int rows, int n, real mean) {
    for (int r = 0; r < rows; r += PLANES_AT_ONCE) {
        const $type *row[PLANES_AT_ONCE], *factor[PLANES_AT_ONCE];
        vec sum[PLANES_AT_ONCE][ROW_VECTORS] = {{{0}}};
        real lane[PLANES_AT_ONCE][ROW_LANES];
        int c = 0;
        for (int q = 0; q < PLANES_AT_ONCE; q++) {
            row[q] = plane_row(x, stride, r + q, rows);
            factor[q] = plane_row(a, stride, r + q, rows);
        }
        for (; c + ROW_LANES <= n; c += ROW_LANES)
            UNROLL for (int v = 0; v < PLANES_AT_ONCE * ROW_VECTORS; v++) {
                const int q = v / ROW_VECTORS, part = v % ROW_VECTORS;
                sum[q][part] += plane_part(factor[q] + c, part) * (plane_part(row[q] + c, part) - mean);
            }
        memcpy(lane, sum, sizeof lane);
        for (int q = 0; q < PLANES_AT_ONCE && r + q < rows; q++) {
            for (int j = 0; c + j < n; j++)
                lane[q][j] += plane_element(factor[q][c + j]) * (plane_element(row[q][c + j]) - mean);
            total += row_lanes(lane[q]);
        }
    }
    return total;
}
