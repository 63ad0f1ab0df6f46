// attention: gen/catalog/ops/attention.lua has the formulas. One worker computes a tile from start to end; sums run
// over keys and queries upwards.

//@ attend(fn, params, source, shape, tile, visible, softmax, dropout, type, result)
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
    enum { QUERIES = $(tile.queries), ROWS = $(tile.rows), KEYS = $(tile.keys), TILES = (T + QUERIES - 1) / QUERIES };
    enum { WIDE = $(tile.wide) }; /* elements of a row of a tile: D in whole blocks */
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + HEADS / GROUP * D;
//% end
//% if dropout then
    const draws z = draws_of(micro, ga_rng_stream($(dropout.name)), iteration, $(dropout.p));
//% end
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)B * HEADS * TILES); ga_tile_next(&t);) {
        const int i0 = (int)(t.index % TILES) * QUERIES, h = (int)(t.index / TILES % HEADS);
        const size_t row = (size_t)(t.index / TILES / HEADS) * T; /* the first of the sequence */
//% if shape.S then
        const size_t key_row = row / T * S; /* its first key */
//% end
        const int n = i0 + QUERIES < T ? QUERIES : T - i0, end = $(visible.stop);
        _Alignas(64) real q[QUERIES * WIDE], sum[QUERIES * WIDE], score[ROWS * KEYS], keys[WIDE * KEYS], rows[KEYS * WIDE];
        real total[QUERIES] = {0}, largest[QUERIES];
        for (int i = 0; i < n; i++) largest[i] = -INFINITY;
        $(tile.load)(q, WIDE, query + (row + i0) * Q_ROW + h * D, Q_ROW, n, D);
        for (int j0 = 0; j0 < end; j0 += KEYS) {
            const int m = j0 + KEYS < end ? KEYS : end - j0;
            const size_t at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
//% if tile.direct then
            pack_columns(keys, KEYS, m, D, key + at, K_ROW);
//% else
            tile_widen(rows, WIDE, key + at, K_ROW, m, D);
            pack_columns(keys, KEYS, m, D, rows, WIDE);
//% end
            $(tile.load)(rows, WIDE, value + at, K_ROW, m, D);
            int next = end - j0 - KEYS; /* rows of the next keys to be asked for */
            for (int i = $(visible.from); i < n; i += ROWS, next = 0) {
                const int few = $(visible.few);
                tile_product(score, KEYS, false, q + i * WIDE, WIDE, 1, keys, KEYS, few, KEYS, D, $(tile.edge.columns));
                $(score_rows { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
                tile_product(sum + i * WIDE, WIDE, j0 > 0, score, KEYS, 1, rows, WIDE, few, WIDE, m, $(tile.edge.terms));
            }
        }
        for (int i = 0; i < n; i++) {
            const size_t head = (row + i0 + i) * HEADS + h;
            const real factor = total[i] == 0 ? 0 : 1 / total[i];
            for (int c = 0; c < D; c++) y[head * D + c] = $result;
            lse[row * HEADS + h * T + i0 + i] = total[i] == 0 ? 0 : largest[i] * $(softmax.scale) + $(softmax.log)(total[i]);
        }
    }
}

//@ score_rows(shape, tile, visible, softmax, dropout)
//% -- In attend: the scores of some queries become exponentials, sums are scaled to the same greatest score.
real from[ROWS], shrink[ROWS];
int seen[ROWS];
for (int r = 0; r < few; r++) {
    seen[r] = tile_hide(score + r * KEYS, KEYS, $(visible.last), $(visible.mask));
    from[r] = row_greatest(score + r * KEYS, seen[r], largest[i + r]);
}
for (int r = 0; r < few; r++) {
    const real top = from[r];
    from[r] = top == -INFINITY ? 0 : top * $(softmax.scale); /* -INFINITY: this query sees no key so far */
    shrink[r] = $(softmax.exp)(largest[i + r] * $(softmax.scale) - from[r]);
    largest[i + r] = top;
}
rows_exp(score, KEYS, few, seen, $(softmax.scale), from);
for (int r = 0; r < few; r++) {
    total[i + r] = total[i + r] * shrink[r] + row_sum(score + r * KEYS, KEYS);
//% if dropout then
    real kept[KEYS], *p = score + r * KEYS;
    draw_row(z, kept, KEYS, row / T, ((uint64_t)h * T + i0 + i + r) * $(shape.keys) + j0, 1);
    for (int j = 0; j < KEYS; j++) p[j] *= kept[j];
//% end
    if (j0 > 0 && shrink[r] != 1)
        for (int c = 0; c < D; c++) sum[(i + r) * WIDE + c] *= shrink[r];
    $(ask_keys {})
    if (j0 == 0) ask_rows(y + ((row + i0 + i + r) * HEADS + h) * D, 0, 1, D, sizeof *y);
}

//@ ask_keys()
//% -- In attend and attend_dx: beside row r of some scores. Rows of a head lie too far apart to be foreseen.
if (r < next) fetch_row(key + at + (KEYS + r) * K_ROW, sizeof *key * D);
if (r < next) fetch_row(value + at + (KEYS + r) * K_ROW, sizeof *value * D);

//@ attend_position(fn, params, source, shape, tile, visible, softmax, dropout, type, result)
/* $fn: softmax(q k^T / sqrt($(shape.d))) v of one query, $(shape.heads) heads of $(shape.d), over keys 0 to position
 * A score larger than all before scales the sums down, as in attend. lse: the log of the sum of the exponentials.
 * $source */
static void $fn($params) {
    enum { HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d), K_ROW = $(shape.k_row) };
    enum { KEYS = $(tile.keys) };
//% if not tile.direct then
    enum { WIDE = $(tile.wide) }; /* elements of a row of a tile */
//% end
    for (ga_tiles t = ga_tiles_begin(w, HEADS); ga_tile_next(&t);) {
        const int h = (int)t.index, end = $(visible.stop);
        _Alignas(64) real sum[D] = {0}, score[KEYS];
        real total = 0, largest = -INFINITY;
//% if tile.direct then
        const real *q = query + h * D;
//% else
        _Alignas(64) real q[WIDE], rows[KEYS * WIDE];
        tile_widen(q, WIDE, query + h * D, D, 1, D);
//% end
        for (int j0 = 0; j0 < end; j0 += KEYS) {
            const int m = j0 + KEYS < end ? KEYS : end - j0;
            const size_t at = (size_t)j0 * K_ROW + h / GROUP * D;
//% if tile.direct then
            for (int j = 0; j < m; j++) score[j] = row_dot(q, key + at + j * K_ROW, D);
//% else
            tile_widen(rows, WIDE, key + at, K_ROW, m, D);
            for (int j = 0; j < m; j++) score[j] = row_dot(q, rows + j * WIDE, D);
//% end
            const int seen = tile_hide(score, KEYS, $(visible.last), NULL);
            const real top = row_greatest(score, seen, largest), from = top * $(softmax.scale);
            const real shrink = $(softmax.exp)(largest * $(softmax.scale) - from);
            largest = top;
            rows_exp(score, KEYS, 1, &seen, $(softmax.scale), &from);
            total = total * shrink + row_sum(score, KEYS);
            for (int c = 0; c < D; c++) sum[c] *= shrink;
//% if not tile.direct then
            tile_widen(rows, WIDE, value + at, K_ROW, m, D);
//% end
            for (int j = 0; j < m; j++)
//% if tile.direct then
                for (int c = 0; c < D; c++) sum[c] += score[j] * value[at + j * K_ROW + c];
//% else
                for (int c = 0; c < D; c++) sum[c] += score[j] * rows[j * WIDE + c];
//% end
        }
        const real factor = 1 / total;
        for (int c = 0; c < D; c++) y[h * D + c] = $result;
        lse[h] = largest * $(softmax.scale) + $(softmax.log)(total);
    }
}

//@ attend_delta(fn, params, source, half, rows, heads, T, d)
/* $fn: dy . y for each of $heads heads of $d elements; those of a head's $T positions lie behind each other
 * $source */
static void $fn($params) {
    enum { ROWS = $rows, T = $T, HEADS = $heads, D = $d, TILE = 64 };
    for (ga_tiles t = ga_tiles_begin(w, (ROWS + TILE - 1) / TILE); ga_tile_next(&t);) {
        const size_t from = (size_t)t.index * TILE, to = from + TILE < ROWS ? from + TILE : ROWS;
        for (size_t i = from * HEADS; i < to * HEADS; i++) {
            const size_t row = i / HEADS, at = (row / T * HEADS + i % HEADS) * T + row % T;
//% if half then
            real d[D], out[D];
            widen_row(d, dy + i * D, D);
            widen_row(out, y + i * D, D);
            delta[at] = row_dot(d, out, D);
//% else
            delta[at] = row_dot(dy + i * D, y + i * D, D);
//% end
        }
    }
}

//@ attend_dx(fn, params, source, shape, tile, visible, softmax, dropout, type)
/* $fn: the gradients of attention with respect to queries, keys and values
 * One worker computes a head of the keys, with all queries that use it; p is computed again from lse.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), ROWS = $(tile.rows), KEYS = $(tile.keys), KEY_HEADS = HEADS / GROUP, Y_ROW = HEADS * D };
    enum { WIDE = $(tile.wide) }; /* elements of a row of a tile: D in whole blocks */
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
        for (int h = shared * GROUP; h < (shared + 1) * GROUP; h++) {
            for (int i0 = 0; i0 < T; i0 += QUERIES) {
                const int n = i0 + QUERIES < T ? QUERIES : T - i0, end = $(visible.written);
                _Alignas(64) real q[QUERIES * WIDE], d_out[QUERIES * WIDE], d_query[QUERIES * WIDE];
                $(tile.load)(q, WIDE, query + (row + i0) * Q_ROW + h * D, Q_ROW, n, D);
                $(tile.load)(d_out, WIDE, dy + (row + i0) * Y_ROW + h * D, Y_ROW, n, D);
                for (int j0 = 0; j0 < end; j0 += KEYS) {
                    const int m = j0 + KEYS < $(shape.keys) ? KEYS : $(shape.keys) - j0;
                    $(key_gradients { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
                }
                tile_store(dq + (row + i0) * Q_ROW + h * D, Q_ROW, d_query, WIDE, n, D);
            }
        }
    }
}

//@ key_gradients(shape, tile, visible, softmax, dropout)
//% -- In attend_dx: adds what some queries and a tile of keys have in common to the gradients of both.
const size_t at = ($(shape.key_row) + j0) * K_ROW + shared * D;
_Alignas(64) real keys[WIDE * KEYS], values[WIDE * KEYS], key_rows[KEYS * WIDE];
_Alignas(64) real d_key[KEYS * WIDE] = {0}, d_value[KEYS * WIDE] = {0}, p[ROWS * KEYS], ds[ROWS * KEYS];
//% if tile.direct then
pack_columns(values, KEYS, m, D, value + at, K_ROW);
//% else
tile_widen(key_rows, WIDE, value + at, K_ROW, m, D);
pack_columns(values, KEYS, m, D, key_rows, WIDE);
//% end
$(tile.load)(key_rows, WIDE, key + at, K_ROW, m, D);
pack_columns(keys, KEYS, m, D, key_rows, WIDE);
//% if visible.again then
if ($(visible.again)) tile_load(d_key, WIDE, dk + at, K_ROW, m, D);
if ($(visible.again)) tile_load(d_value, WIDE, dv + at, K_ROW, m, D);
//% end
int next = end - j0 - KEYS, own = m; /* rows of next keys, own gradients to be asked for */
for (int i = $(visible.from); i < n; i += ROWS, next = own = 0) {
    const int few = $(visible.few);
    const real *queries = q + i * WIDE, *dys = d_out + i * WIDE;
    tile_product(p, KEYS, false, queries, WIDE, 1, keys, KEYS, few, KEYS, D, $(tile.edge.columns));
    tile_product(ds, KEYS, false, dys, WIDE, 1, values, KEYS, few, KEYS, D, $(tile.edge.columns));
    $(score_gradients { shape = shape, visible = visible, softmax = softmax, dropout = dropout })
    tile_product(d_value, WIDE, true, p, 1, KEYS, dys, WIDE, m, WIDE, few, $(tile.edge.later));
    tile_product(d_key, WIDE, true, ds, 1, KEYS, queries, WIDE, m, WIDE, few, $(tile.edge.later));
    tile_product(d_query + i * WIDE, WIDE, j0 > 0, ds, KEYS, 1, key_rows, WIDE, few, WIDE, m,
                 $(tile.edge.terms));
}
tile_store(dk + at, K_ROW, d_key, WIDE, m, D);
tile_store(dv + at, K_ROW, d_value, WIDE, m, D);

//@ score_gradients(shape, visible, softmax, dropout)
//% -- In attend_dx: q . k in p becomes the probabilities of a tile, dy . v in ds the gradients of its scores.
const size_t head = row * HEADS + h * T + i0 + i;
int seen[ROWS];
for (int r = 0; r < few; r++) seen[r] = tile_hide(p + r * KEYS, KEYS, $(visible.last), $(visible.mask));
rows_exp(p, KEYS, few, seen, $(softmax.scale), lse + head);
for (int r = 0; r < few; r++) {
    real *pr = p + r * KEYS, *dsr = ds + r * KEYS;
    const real mean = delta[head + r];
//% if dropout then
    real kept[KEYS];
    draw_row(z, kept, KEYS, row / T, ((uint64_t)h * T + i0 + i + r) * $(shape.keys) + j0, 1);
    for (int j = 0; j < seen[r]; j++) dsr[j] = pr[j] * (kept[j] * dsr[j] - mean) * $(softmax.scale);
    for (int j = 0; j < seen[r]; j++) pr[j] *= kept[j];
//% else
    for (int j = 0; j < seen[r]; j++) dsr[j] = pr[j] * (dsr[j] - mean) * $(softmax.scale);
//% end
    for (int j = seen[r]; j < KEYS; j++) dsr[j] = 0;
    $(ask_keys {})
    if (r < own) ask_rows(dk + at + r * K_ROW, 0, 1, D, sizeof *dk);
    if (r < own) ask_rows(dv + at + r * K_ROW, 0, 1, D, sizeof *dv);
    if (j0 == 0) ask_rows(dq + (row + i0 + i + r) * Q_ROW + h * D, 0, 1, D, sizeof *dq);
}
