/* rows.h: a source whose rows contain their number: target = row, input[j] = 10 * row + j. */
#ifndef ROWS_H
#define ROWS_H

#include "data/source.h"

enum { ROW_WIDTH = 3 };

static void decode_row(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    (void)s;
    (void)draw;
    for (int j = 0; j < ROW_WIDTH; j++) ((float *)out[0])[j] = (float)(row * 10 + j);
    *(int32_t *)out[1] = (int32_t)row;
}

static inline ga_source numbered_rows(int64_t rows) {
    return (ga_source){.rows = rows,
                       .fields = 2,
                       .field = {{"input", GA_F32, ROW_WIDTH}, {"target", GA_I32, 1}},
                       .decode = decode_row};
}

#endif
