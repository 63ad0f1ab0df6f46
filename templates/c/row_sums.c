// row_sums: sums along a row.

//@ row_sums()
/* Sums along a row in an order that does not depend on the compiler: element c goes to lane c % ROW_LANES, then the
 * upper half of the lanes is added to the lower one, until one is left. */
enum { ROW_LANES = 16, ROW_VECTORS = ROW_LANES / VEC_LANES };

static inline vec row_part(const real *x, int v) { return vec_load(x + v * VEC_LANES, VEC_LANES); }

static inline real row_lanes(const real *lane) {
    real eight[8], four[4], two[2];
    for (int j = 0; j < 8; j++) eight[j] = lane[j] + lane[j + 8];
    for (int j = 0; j < 4; j++) four[j] = eight[j] + eight[j + 4];
    for (int j = 0; j < 2; j++) two[j] = four[j] + four[j + 2];
    return two[0] + two[1];
}

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

/* The sum of (x - mean)^2. */
static inline real row_spread(const real *x, real mean, int n) {
    vec sum[ROW_VECTORS] = {{0}};
    real lane[ROW_LANES];
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        UNROLL for (int v = 0; v < ROW_VECTORS; v++) {
            const vec apart = row_part(x + c, v) - mean;
            sum[v] += apart * apart;
        }
    memcpy(lane, sum, sizeof lane);
    for (int j = 0; c + j < n; j++) lane[j] += (x[c + j] - mean) * (x[c + j] - mean);
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
