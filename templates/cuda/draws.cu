// draws: random draws for dropouts, those of attention's probabilities too.

//@ draws()
// The draws of a row of a micro-batch: each is 0 with probability p, else `factor`, 1 / (1 - p). Outside of training all
// are 1.
struct ga_draws {
    ga_uint64 key, least;  // p times 2^64: what is drawn below it means 0
    real factor;
};

// The facts that the draws of all rows of a micro-batch have in common.
struct ga_drops {
    ga_int64 row, cycle;
    ga_uint64 seed, least;
    real factor;
};

GA_DEVICE ga_drops ga_drops_of(const ga_micro *micro, double p) {
    const auto facts = ga_read<4>(&micro->row);  // row, cycle, training, seed
    const double used = facts.at[2] ? p : 0;
    const ga_uint64 least = (ga_uint64)ceil(used * 0x1p53) << 11;  // 53 drawn bits count
    return {facts.at[0], facts.at[1], (ga_uint64)facts.at[3], least, (real)(1 / (1 - used))};
}

GA_DEVICE ga_draws ga_draws_at(const ga_drops &d, ga_uint64 stream, ga_int64 iteration, ga_int64 row) {
    return {ga_draw_key(d.seed, stream, iteration, d.cycle, d.row + row), d.least, d.factor};
}

GA_DEVICE ga_draws ga_draws_of(const ga_micro *micro, ga_uint64 stream, ga_int64 iteration, ga_int64 row, double p) {
    return ga_draws_at(ga_drops_of(micro, p), stream, iteration, row);
}

// Those from number `first` on, which is 0 then. A number that is known when the kernel is compiled costs an addition.
GA_DEVICE ga_draws ga_draws_from(ga_draws z, ga_int64 first) {
    z.key = ga_rng_after(z.key, first);
    return z;
}

// Whether draw number `element` of the row is 0.
GA_DEVICE bool ga_drops_it(ga_draws z, ga_int64 element) {
    return ga_rng_at(z.key, element) < z.least;
}

// Draw number `element` of the row.
GA_DEVICE real ga_draw(ga_draws z, ga_int64 element) {
    return ga_drops_it(z, element) ? (real)0 : z.factor;
}

// x times this draw; 0 also where x is not finite.
GA_DEVICE real ga_dropped(ga_draws z, ga_int64 element, real x) {
    return ga_drops_it(z, element) ? (real)0 : x * z.factor;
}
