// attention_rows: rows of the scores of a tile of attention.

//@ attention_rows()
/* Hides the keys that a query does not see: the score is -INFINITY behind `last` and where the mask is 0. */
static inline void tile_hide(real *score, int keys, int last, const int32_t *mask) {
    for (int j = last + 1; j < keys; j++) score[j] = -INFINITY;
    for (int j = 0; mask && j <= last && j < keys; j++)
        if (mask[j] == 0) score[j] = -INFINITY;
}

/* The greatest of n elements and of `greatest`, n a multiple of ROW_LANES; NaN where all are. */
static inline real row_greatest(const real *x, int n, real greatest) {
    real lane[ROW_LANES];
    for (int j = 0; j < ROW_LANES; j++) lane[j] = greatest;
    for (int c = 0; c < n; c += ROW_LANES)
        for (int j = 0; j < ROW_LANES; j++) lane[j] = x[c + j] <= lane[j] ? lane[j] : x[c + j];
    for (int j = 0; j < ROW_LANES; j++) greatest = lane[j] <= greatest ? greatest : lane[j];
    return greatest;
}
