// attention: gen/catalog/ops/attention.lua has the formulas. One worker computes a tile from start to end; sums run
// over keys and queries upwards.

//@ attend(fn, params, source, shape, tile, visible, softmax, dropout, type, half, result)
/* $fn: softmax(q k^T / sqrt($(shape.d))) v, $(shape.heads) heads of $(shape.d) over $(shape.over)
 * Keys come tile by tile; a score larger than all before scales the sums down (Milakov and Gimelshein,
 * 2018). lse: the log of the sum of the exponentials of a query's scores.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), KEYS = $(tile.keys), TILES = (T + QUERIES - 1) / QUERIES };
//% if tile.wide then
    enum { WIDE = $(tile.wide), PARTS = $(tile.parts) }; /* D in whole blocks of 32; the operands of a probability */
//% end
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + HEADS / GROUP * D;
//% end
//% if dropout then
    const draws z = draws_of(micro, ga_rng_stream($(dropout.name)), iteration, $(dropout.p));
//% end
//% if tile.wide and tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)B * HEADS * TILES); ga_tile_next(&t);) {
        const int i0 = (int)(t.index % TILES) * QUERIES, h = (int)(t.index / TILES % HEADS);
        const size_t row = (size_t)(t.index / TILES / HEADS) * T; /* the first of the sequence */
//% if shape.S then
        const size_t key_row = row / T * S; /* its first key */
//% end
        const int n = i0 + QUERIES < T ? QUERIES : T - i0, end = $(visible.stop);
        real sum[QUERIES * $(tile.row)] = {0}, total[QUERIES] = {0}, largest[QUERIES];
        for (int i = 0; i < n; i++) largest[i] = -INFINITY;
//% if tile.wide then
        bf16 q[SLICES * QUERIES * WIDE], panel[SLICES * KEYS * WIDE], part[PARTS * SLICES * QUERIES * KEYS];
        matrix_part_rows(q, WIDE, n, D, query + (row + i0) * Q_ROW + h * D, Q_ROW);
//% elseif half then
        real q[QUERIES * D], rows[KEYS * D];
        widen_rows(q, D, query + (row + i0) * Q_ROW + h * D, Q_ROW, n, D);
//% end
        for (int j0 = 0; j0 < end; j0 += KEYS) {
            const int m = j0 + KEYS < end ? KEYS : end - j0;
            const size_t at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
//% if tile.wide then
            real score[QUERIES * KEYS];
            matrix_pack_columns(panel, WIDE, m, D, key + at, K_ROW);
            tile_matrix(score, KEYS, false, q, 1, panel, WIDE, n, m, D);
//% elseif half then
            real across[D * KEYS], score[QUERIES * KEYS] = {0};
            widen_rows(rows, D, key + at, K_ROW, m, D);
            tile_across(across, KEYS, rows, m, D, D);
            tile_product(score, KEYS, q, D, 1, across, KEYS, n, KEYS, D);
//% else
            real across[D * KEYS], score[QUERIES * KEYS] = {0};
            tile_across(across, KEYS, key + at, m, K_ROW, D);
            tile_product(score, KEYS, query + (row + i0) * Q_ROW + h * D, Q_ROW, 1, across, KEYS, n, KEYS, D);
//% end
            $(score_rows { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
//% if tile.wide then
            $(tile.cut.rows)(part, KEYS, n, KEYS, score, KEYS);
            matrix_pack_rows(panel, KEYS, D, m, value + at, K_ROW);
            tile_matrix(sum, WIDE, true, part, PARTS, panel, KEYS, n, D, m);
//% elseif half then
            widen_rows(rows, D, value + at, K_ROW, m, D);
            tile_product(sum, D, score, KEYS, 1, rows, D, n, D, m);
//% else
            tile_product(sum, D, score, KEYS, 1, value + at, K_ROW, n, D, m);
//% end
        }
        for (int i = 0; i < n; i++) {
            const size_t head = (row + i0 + i) * HEADS + h;
            const real factor = total[i] == 0 ? 0 : 1 / total[i];
            for (int c = 0; c < D; c++) y[head * D + c] = $result;
            lse[head] = total[i] == 0 ? 0 : largest[i] + $(softmax.log)(total[i]);
        }
    }
//% if tile.wide and tile.registers then
    matrix_end();
//% end
}

//@ score_rows(shape, tile, visible, softmax, dropout)
//% -- In attend: the scores of a tile become exponentials, the sums are scaled to the same greatest score.
real from[QUERIES], shrink[QUERIES];
for (int i = 0; i < n; i++) {
    real *p = score + i * KEYS;
    for (int j = 0; j < KEYS; j++) p[j] *= $(softmax.scale);
    tile_hide(p, KEYS, $(visible.last), $(visible.mask));
    from[i] = row_greatest(p, KEYS, largest[i]);
}
for (int i = 0; i < n; i++) {
    const real top = from[i];
    from[i] = top == -INFINITY ? 0 : top; /* -INFINITY: this query sees no key so far */
    shrink[i] = $(softmax.exp)(largest[i] - from[i]);
    largest[i] = top;
}
for (int i = 0; i < n; i++) {
    real *p = score + i * KEYS;
    for (int j = 0; j < KEYS; j++) p[j] = $(softmax.exp)(p[j] - from[i]);
    total[i] = total[i] * shrink[i] + row_sum(p, KEYS);
//% if dropout then
    real kept[KEYS];
    draw_row(z, kept, KEYS, row / T, ((uint64_t)h * T + i0 + i) * $(shape.keys) + j0);
    for (int j = 0; j < KEYS; j++) p[j] *= kept[j];
//% end
    for (int c = 0; c < D; c++) sum[i * $(tile.row) + c] *= shrink[i];
}

//@ attend_delta(fn, params, source, half, rows, heads, d)
/* $fn: dy . y for each of $heads heads of $d elements
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, HEADS = $heads, D = $d, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const size_t from = (size_t)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
//% if half then
        for (size_t i = from * HEADS; i < to * HEADS; i++) {
            real d[D], out[D];
            widen_row(d, dy + i * D, D);
            widen_row(out, y + i * D, D);
            delta[i] = row_dot(d, out, D);
        }
//% else
        for (size_t i = from * HEADS; i < to * HEADS; i++) delta[i] = row_dot(dy + i * D, y + i * D, D);
//% end
    }
}

//@ attend_dx(fn, params, source, shape, tile, visible, softmax, dropout, type, half)
/* $fn: the gradients of attention with respect to queries, keys and values
 * One worker computes a head of the keys, with all queries that use it; p is computed again from lse.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), KEYS = $(tile.keys), KEY_HEADS = HEADS / GROUP, Y_ROW = HEADS * D };
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + KEY_HEADS * D;
    real *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
//% end
//% if dropout then
    const draws z = draws_of(micro, ga_rng_stream($(dropout.name)), iteration, $(dropout.p));
//% end
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)B * KEY_HEADS); ga_tile_next(&t);) {
        const int shared = (int)(t.index % KEY_HEADS);
        const size_t row = (size_t)(t.index / KEY_HEADS) * T; /* the first of the sequence */
//% if shape.S then
        const size_t key_row = row / T * S; /* its first key */
//% end
        for (int j0 = 0; j0 < $(shape.keys); j0 += KEYS) {
            const int m = j0 + KEYS < $(shape.keys) ? KEYS : $(shape.keys) - j0;
            const size_t at = ($(shape.key_row) + j0) * K_ROW + shared * D;
            real keys[D * KEYS], values[D * KEYS], d_key[KEYS * D] = {0}, d_value[KEYS * D] = {0};
//% if half then
            real rows[KEYS * D];
            widen_rows(rows, D, value + at, K_ROW, m, D);
            tile_across(values, KEYS, rows, m, D, D);
            widen_rows(rows, D, key + at, K_ROW, m, D);
            tile_across(keys, KEYS, rows, m, D, D);
//% else
            tile_across(keys, KEYS, key + at, m, K_ROW, D);
            tile_across(values, KEYS, value + at, m, K_ROW, D);
//% end
            for (int h = shared * GROUP; h < (shared + 1) * GROUP; h++) {
                for (int i0 = $(visible.first); i0 < T; i0 += QUERIES) {
                    const int n = i0 + QUERIES < T ? QUERIES : T - i0;
//% if half then
                    real q[QUERIES * D], d_out[QUERIES * D];
                    widen_rows(q, D, query + (row + i0) * Q_ROW + h * D, Q_ROW, n, D);
                    widen_rows(d_out, D, dy + (row + i0) * Y_ROW + h * D, Y_ROW, n, D);
//% else
                    const real *q = query + (row + i0) * Q_ROW + h * D;
                    const real *d_out = dy + (row + i0) * Y_ROW + h * D;
//% end
                    real *d_query = dq + (row + i0) * Q_ROW + h * D;
                    real p[QUERIES * KEYS] = {0}, ds[QUERIES * KEYS] = {0};
//% if half then
                    tile_product(p, KEYS, q, D, 1, keys, KEYS, n, KEYS, D);
                    tile_product(ds, KEYS, d_out, D, 1, values, KEYS, n, KEYS, D);
//% else
                    tile_product(p, KEYS, q, Q_ROW, 1, keys, KEYS, n, KEYS, D);
                    tile_product(ds, KEYS, d_out, Y_ROW, 1, values, KEYS, n, KEYS, D);
//% end
                    $(score_gradients { shape = shape, visible = visible, softmax = softmax, dropout = dropout })
                    for (int i = 0; j0 == 0 && i < n; i++)
                        for (int c = 0; c < D; c++) d_query[i * Q_ROW + c] = 0;
//% if half then
                    tile_product(d_query, Q_ROW, ds, KEYS, 1, rows, D, n, D, m);
                    tile_product(d_value, D, p, 1, KEYS, d_out, D, m, D, n);
                    tile_product(d_key, D, ds, 1, KEYS, q, D, m, D, n);
//% else
                    tile_product(d_query, Q_ROW, ds, KEYS, 1, key + at, K_ROW, n, D, m);
                    tile_product(d_value, D, p, 1, KEYS, d_out, Y_ROW, m, D, n);
                    tile_product(d_key, D, ds, 1, KEYS, q, Q_ROW, m, D, n);
//% end
                }
            }
            for (int j = 0; j < m; j++) {
                for (int c = 0; c < D; c++) dk[at + j * K_ROW + c] = d_key[j * D + c];
                for (int c = 0; c < D; c++) dv[at + j * K_ROW + c] = d_value[j * D + c];
            }
        }
    }
}

//@ attend_dx_matrix(fn, params, source, shape, tile, visible, softmax, dropout, type)
/* $fn: the gradients of attention with respect to queries, keys and values, by blocks of bf16
 * One worker computes a head of the keys, with all queries that use it; p is computed again from lse.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), KEYS = $(tile.keys), KEY_HEADS = HEADS / GROUP, Y_ROW = HEADS * D };
    enum { WIDE = $(tile.wide), PARTS = $(tile.parts) }; /* D in whole blocks of 32; the operands of a probability */
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + KEY_HEADS * D;
    real *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
//% end
//% if dropout then
    const draws z = draws_of(micro, ga_rng_stream($(dropout.name)), iteration, $(dropout.p));
//% end
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)B * KEY_HEADS); ga_tile_next(&t);) {
        const int shared = (int)(t.index % KEY_HEADS);
        const size_t row = (size_t)(t.index / KEY_HEADS) * T; /* the first of the sequence */
//% if shape.S then
        const size_t key_row = row / T * S; /* its first key */
//% end
        for (int j0 = 0; j0 < $(shape.keys); j0 += KEYS) {
            const int m = j0 + KEYS < $(shape.keys) ? KEYS : $(shape.keys) - j0;
            const size_t at = ($(shape.key_row) + j0) * K_ROW + shared * D;
            bf16 keys[SLICES * WIDE * KEYS], values[SLICES * WIDE * KEYS], key_rows[SLICES * KEYS * WIDE];
            real d_key[KEYS * WIDE] = {0}, d_value[KEYS * WIDE] = {0};
            matrix_pack_columns(keys, WIDE, m, D, key + at, K_ROW);
            matrix_pack_columns(values, WIDE, m, D, value + at, K_ROW);
            matrix_pack_rows(key_rows, KEYS, D, m, key + at, K_ROW);
            for (int h = shared * GROUP; h < (shared + 1) * GROUP; h++) {
                for (int i0 = $(visible.first); i0 < T; i0 += QUERIES) {
                    const int n = i0 + QUERIES < T ? QUERIES : T - i0;
                    const $type *queries = query + (row + i0) * Q_ROW + h * D, *dys = dy + (row + i0) * Y_ROW + h * D;
                    real *d_query = dq + (row + i0) * Q_ROW + h * D;
                    real p[QUERIES * KEYS], ds[QUERIES * KEYS];
                    bf16 rows[SLICES * QUERIES * WIDE];
                    matrix_part_rows(rows, WIDE, n, D, queries, Q_ROW);
                    tile_matrix(p, KEYS, false, rows, 1, keys, WIDE, n, m, D);
                    matrix_part_rows(rows, WIDE, n, D, dys, Y_ROW);
                    tile_matrix(ds, KEYS, false, rows, 1, values, WIDE, n, m, D);
                    $(score_gradients { shape = shape, visible = visible, softmax = softmax, dropout = dropout })
                    $(matrix_gradients { tile = tile })
                }
            }
            for (int j = 0; j < m; j++) {
                for (int c = 0; c < D; c++) dk[at + j * K_ROW + c] = d_key[j * WIDE + c];
                for (int c = 0; c < D; c++) dv[at + j * K_ROW + c] = d_value[j * WIDE + c];
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ matrix_gradients(tile)
//% -- In attend_dx_matrix: adds the products of the probabilities p and of the gradients ds of a tile's scores.
bf16 part[PARTS * SLICES * QUERIES * KEYS], panel[SLICES * QUERIES * WIDE];
real sums[QUERIES * WIDE];
$(tile.cut.columns)(part, QUERIES, m, n, p, KEYS);
matrix_pack_rows(panel, QUERIES, D, n, dys, Y_ROW);
tile_matrix(d_value, WIDE, true, part, PARTS, panel, QUERIES, m, D, n);
$(tile.cut.columns)(part, QUERIES, m, n, ds, KEYS);
matrix_pack_rows(panel, QUERIES, D, n, queries, Q_ROW);
tile_matrix(d_key, WIDE, true, part, PARTS, panel, QUERIES, m, D, n);
$(tile.cut.rows)(part, KEYS, n, KEYS, ds, KEYS);
tile_matrix(sums, WIDE, false, part, PARTS, key_rows, KEYS, n, D, m);
for (int i = 0; i < n; i++) {
    real *to = d_query + i * Q_ROW;
    for (int c = 0; c < D; c++) to[c] = j0 == 0 ? sums[i * WIDE + c] : to[c] + sums[i * WIDE + c];
}

//@ score_gradients(shape, visible, softmax, dropout)
//% -- In attend_dx: q . k in p becomes the probabilities of a tile, dy . v in ds the gradients of its scores.
for (int i = 0; i < n; i++) {
    const size_t head = (row + i0 + i) * HEADS + h;
    real *pi = p + i * KEYS, *dsi = ds + i * KEYS;
    for (int j = 0; j < KEYS; j++) pi[j] *= $(softmax.scale);
    tile_hide(pi, KEYS, $(visible.last), $(visible.mask));
    const real level = lse[head], mean = delta[head];
    for (int j = 0; j < KEYS; j++) pi[j] = $(softmax.exp)(pi[j] - level);
//% if dropout then
    real kept[KEYS];
    draw_row(z, kept, KEYS, row / T, ((uint64_t)h * T + i0 + i) * $(shape.keys) + j0);
    for (int j = 0; j < KEYS; j++) dsi[j] = pi[j] * (kept[j] * dsi[j] - mean) * $(softmax.scale);
    for (int j = 0; j < KEYS; j++) pi[j] *= kept[j];
//% else
    for (int j = 0; j < KEYS; j++) dsi[j] = pi[j] * (dsi[j] - mean) * $(softmax.scale);
//% end
}

//@ rotary(fn, params, source, shape, base, sign, load, store)
/* $fn: pairs (i, i + $(shape.d) / 2) of each of $(shape.heads) heads,
 * turned by the angle $(sign)t $base^(-2i / $(shape.d)) at position t
 * Angles are computed in double, once for a tile of positions.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), D = $(shape.d), HALF = D / 2, TILE = 16 };
    for (ga_tiles t = ga_tiles_begin(w, (T + TILE - 1) / TILE); ga_tile_next(&t);) {
        const int from = (int)t.index * TILE, to = from + TILE < T ? from + TILE : T;
        real cosine[TILE][HALF], sine[TILE][HALF];
        for (int c = 0; c < HALF; c++) {
            const double step = $(sign)pow($base, -2.0 * c / D);
            for (int p = from; p < to; p++) {
                cosine[p - from][c] = (real)cos(p * step);
                sine[p - from][c] = (real)sin(p * step);
            }
        }
        for (int i = 0; i < B * (to - from) * HEADS; i++) {
            const int p = i / HEADS % (to - from);
            const size_t at = (((size_t)(i / HEADS / (to - from)) * T + from + p) * HEADS + i % HEADS) * D;
            for (int c = 0; c < HALF; c++) {
                const real low = $(load.low) * cosine[p][c] - $(load.high) * sine[p][c];
                const real high = $(load.high) * cosine[p][c] + $(load.low) * sine[p][c];
                $(store.low)
                $(store.high)
            }
        }
    }
}
