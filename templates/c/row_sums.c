// row_sums: sums along a row.

//@ row_sums()
/* Sums along a row in an order that does not depend on the compiler: element c goes to lane c % ROW_LANES, and the
 * lanes are added by their number. */
enum { ROW_LANES = 16 };

static inline real row_lanes(const real *lane) {
    real sum = 0;
    for (int j = 0; j < ROW_LANES; j++) sum += lane[j];
    return sum;
}

/* The sum of x. */
static inline real row_sum(const real *x, int n) {
    real lane[ROW_LANES] = {0};
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] += x[c + j];
    for (int j = 0; c + j < n; j++) lane[j] += x[c + j];
    return row_lanes(lane);
}

/* The sum of a b. */
static inline real row_dot(const real *a, const real *b, int n) {
    real lane[ROW_LANES] = {0};
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] += a[c + j] * b[c + j];
    for (int j = 0; c + j < n; j++) lane[j] += a[c + j] * b[c + j];
    return row_lanes(lane);
}

/* The sum of a b (x - mean). */
static inline real row_moment(const real *a, const real *b, const real *x, real mean, int n) {
    real lane[ROW_LANES] = {0};
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] += a[c + j] * b[c + j] * (x[c + j] - mean);
    for (int j = 0; c + j < n; j++) lane[j] += a[c + j] * b[c + j] * (x[c + j] - mean);
    return row_lanes(lane);
}

/* The sum of (x - mean)^2. */
static inline real row_spread(const real *x, real mean, int n) {
    real lane[ROW_LANES] = {0};
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] += (x[c + j] - mean) * (x[c + j] - mean);
    for (int j = 0; c + j < n; j++) lane[j] += (x[c + j] - mean) * (x[c + j] - mean);
    return row_lanes(lane);
}

/* The sum of a (x - mean). */
static inline real row_lever(const real *a, const real *x, real mean, int n) {
    real lane[ROW_LANES] = {0};
    int c = 0;
    for (; c + ROW_LANES <= n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] += a[c + j] * (x[c + j] - mean);
    for (int j = 0; c + j < n; j++) lane[j] += a[c + j] * (x[c + j] - mean);
    return row_lanes(lane);
}
