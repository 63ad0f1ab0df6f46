// row_sums: sums along a row (row_lanes.c).

//@ row_sums()
/* The sum of x. */
static inline real row_sum(const real *x, int n) {
    vec sum[ROW_VECTORS] = {{0}};
    real lane[ROW_LANES];
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        UNROLL for (int v = 0; v < ROW_VECTORS; v++) sum[v] += row_part(x + c, v);
    memcpy(lane, sum, sizeof lane);
    for (int j = 0; c + j < n; j++) lane[j] += x[c + j];
    return row_lanes(lane);
}

/* The sum of a b. */
static inline real row_dot(const real *a, const real *b, int n) {
    vec sum[ROW_VECTORS] = {{0}};
    real lane[ROW_LANES];
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        UNROLL for (int v = 0; v < ROW_VECTORS; v++) sum[v] += row_part(a + c, v) * row_part(b + c, v);
    memcpy(lane, sum, sizeof lane);
    for (int j = 0; c + j < n; j++) lane[j] += a[c + j] * b[c + j];
    return row_lanes(lane);
}

/* The sum of a (x - mean). */
static inline real row_lever(const real *a, const real *x, real mean, int n) {
    vec sum[ROW_VECTORS] = {{0}};
    real lane[ROW_LANES];
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        UNROLL for (int v = 0; v < ROW_VECTORS; v++) sum[v] += row_part(a + c, v) * (row_part(x + c, v) - mean);
    memcpy(lane, sum, sizeof lane);
    for (int j = 0; c + j < n; j++) lane[j] += a[c + j] * (x[c + j] - mean);
    return row_lanes(lane);
}
