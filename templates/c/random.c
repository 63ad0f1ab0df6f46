// random: dropout, drawn anew for each row of each cycle. Outside of training nothing is drawn.

//@ dropout(fn, params, source, rows, width, chunk, p, name, x, store)
/* $fn: x / (1 - p), or 0 with probability p = $p, for $rows rows of $width
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, WIDTH = $width, CHUNK = $chunk, CHUNKS = (WIDTH + CHUNK - 1) / CHUNK };
    const uint64_t stream = ga_rng_stream($name);
    const double p = micro->training ? $p : 0;
    const real scale = (real)(1 / (1 - p));
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)ROWS * CHUNKS); ga_tile_next(&t);) {
        const int row = (int)(t.index / CHUNKS), from = (int)(t.index % CHUNKS) * CHUNK;
        const int to = from + CHUNK < WIDTH ? from + CHUNK : WIDTH;
        const uint64_t key = ga_draw_key(micro->seed, stream, (uint64_t)iteration,
                                         (uint64_t)micro->cycle, (uint64_t)(micro->row + row));
        for (int e = from; e < to; e++) {
            const size_t i = (size_t)row * WIDTH + e;
            const bool keep = ga_uniform(ga_rng_at(key, (uint64_t)e)) >= p;
            const real value = keep ? $x * scale : 0;
            $store
        }
    }
}
