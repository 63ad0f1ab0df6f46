// attention_rows: rows of the scores of a tile of attention.

//@ attention_rows()
/* Hides the keys that a query does not see: the score is -INFINITY behind `last` and where the mask is 0. The result is
 * the number of scores that count, in whole ROW_LANES; scores behind them become 0. */
static inline int tile_hide(real *score, int keys, int last, const int32_t *mask) {
    const int most = last < keys ? last : keys - 1, seen = (most / ROW_LANES + 1) * ROW_LANES;
    for (int j = most + 1; j < seen; j++) score[j] = -INFINITY;
    for (int j = seen; j < keys; j++) score[j] = 0;
    if (mask)
        for (int j = 0; j <= most; j++)
            if (mask[j] == 0) score[j] = -INFINITY;
    return seen;
}
