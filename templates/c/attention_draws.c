// attention_draws: random draws for the dropout of attention's probabilities.

//@ attention_draws()
/* The draws of a micro-batch: each is 0 with probability `drop`, else 1 / (1 - drop). */
typedef struct draws {
    const ga_micro *micro;
    uint64_t stream, iteration;
    double drop; /* 0 outside of training */
} draws;

static inline draws draws_of(const ga_micro *micro, uint64_t stream, int64_t iteration, double drop) {
    return (draws){micro, stream, (uint64_t)iteration, micro->training ? drop : 0};
}

/* Draws first, first + step, .. of row `row` of the micro-batch, n of them. */
static inline void draw_row(draws z, real *kept, int n, size_t row, uint64_t first, uint64_t step) {
    const real factor = (real)(1 / (1 - z.drop));
    const uint64_t key = ga_draw_key(z.micro->seed, z.stream, z.iteration, (uint64_t)z.micro->cycle,
                                     (uint64_t)z.micro->row + row);
    for (int j = 0; j < n; j++)
        kept[j] = ga_uniform(ga_rng_at(key, first + (uint64_t)j * step)) < z.drop ? 0 : factor;
}
