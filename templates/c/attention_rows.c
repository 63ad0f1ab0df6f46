// attention_rows: rows of the scores of a tile of attention.

//@ attention_rows()
/* Hides the keys that a query does not see: the score is -INFINITY behind `last` and where the mask is 0. */
static inline void tile_hide(real *score, int keys, int last, const int32_t *mask) {
    for (int j = last + 1; j < keys; j++) score[j] = -INFINITY;
    for (int j = 0; mask && j <= last && j < keys; j++)
        if (mask[j] == 0) score[j] = -INFINITY;
}
