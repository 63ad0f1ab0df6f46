// conv_sums: the inner loop of convolutions on vectors: sums of a few rows by columns in registers.

//@ conv_sums(rows, vectors)
/* One term of sums: its elements as distances from those of the first. */
typedef struct conv_item {
    int x, b;
} conv_item;

/* Sums of as many rows and columns as registers hold. The terms are `count` steps, `rounds` times over; from round to
 * round the elements move on by x_round and b_round.
 *   c[r][j] = start + sum over terms of x[r][step.x] * b[step.b + j]      start: c[r][j] if `more`, else 0 */
typedef struct conv_sums {
    const real *x[$rows], *b;
    real *c[$rows];
    const conv_item *steps;
    ptrdiff_t x_round, b_round;
    int count, rounds;
    bool more;
} conv_sums;

/* Rows and columns are literals where it is called: the loops over them unroll. */
static inline __attribute__((always_inline)) void conv_sums_add(const conv_sums *s, const int rows, const int columns) {
    const int wide = (columns + VEC_LANES - 1) / VEC_LANES, last = columns - (wide - 1) * VEC_LANES;
    const real *x[$rows], *b = s->b;
    vec sum[$rows][$vectors];
    UNROLL for (int r = 0; r < rows; r++) {
        x[r] = s->x[r];
        UNROLL for (int v = 0; v < wide; v++)
            sum[r][v] = s->more ? vec_load(s->c[r] + v * VEC_LANES, v < wide - 1 ? VEC_LANES : last) : (vec){0};
    }
    const conv_item *end = s->steps + s->count;
    ptrdiff_t from = 0;
    for (int round = 0; round < s->rounds; round++, from += s->x_round, b += s->b_round) {
        UNROLL_FOUR for (const conv_item *step = s->steps; step < end; step++) {
            const ptrdiff_t at = from + step->x;
            const real *row = b + step->b;
            UNROLL for (int r = 0; r < rows; r++) {
                const vec factor = vec_all(x[r][at]);
                UNROLL for (int v = 0; v < wide; v++)
                    sum[r][v] = vec_fma(factor, vec_load(row + v * VEC_LANES, VEC_LANES), sum[r][v]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < wide; v++)
            vec_store(s->c[r] + v * VEC_LANES, sum[r][v], v < wide - 1 ? VEC_LANES : last);
    }
}

//@ conv_sums_function(name, rows, columns)
static __attribute__((noinline)) void $name(const conv_sums *s) { conv_sums_add(s, $rows, $columns); }

//@ outputs_of_tiles()
/* Outputs of a tile, of `out` and at most `most`, for so many blocks: fewer where workers would have less than two tiles
 * each. */
static inline int outputs_of_tiles(const ga_worker *w, int out, int most, int blocks) {
    int outputs = most;
    while (outputs > 16 && (out + outputs - 1) / outputs * blocks < 2 * w->count) outputs = (outputs / 2 + 15) / 16 * 16;
    return outputs;
}
