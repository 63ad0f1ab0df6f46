// attention_draws: random draws for the dropout of attention's probabilities.

//@ attention_draws()
// The draws of a row of a micro-batch: each is 0 with probability `drop`, else `factor`, 1 / (1 - drop).
struct ga_draws {
    ga_uint64 key;
    double drop;  // 0 outside of training
    real factor;
};

GA_DEVICE ga_draws ga_draws_of(const ga_micro *micro, ga_uint64 stream, ga_int64 iteration, ga_int64 row,
                               double drop) {
    const double used = micro->training ? drop : 0;
    const ga_uint64 key = ga_draw_key(micro->seed, stream, iteration, micro->cycle, micro->row + row);
    return {key, used, (real)(1 / (1 - used))};
}

// Draw number `element` of the row.
GA_DEVICE real ga_draw(ga_draws z, ga_int64 element) {
    return ga_uniform(ga_rng_at(z.key, element)) < z.drop ? (real)0 : z.factor;
}
