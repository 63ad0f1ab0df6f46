// attention_blocks: attention by blocks of bf16, on matrix registers or by pairs on vectors. Formulas and the order of
// sums are those of attention.c.

//@ attend_matrix(fn, params, source, shape, tile, visible, softmax, dropout, type, result)
/* $fn: softmax(q k^T / sqrt($(shape.d))) v, $(shape.heads) heads of $(shape.d) over $(shape.over), by blocks of bf16
 * Keys come tile by tile, each copied once for all queries of a worker's tile; a score larger than all before scales
 * the sums down. Scores and sums have a column for each query. lse: the log of the sum of its scores' exponentials.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), KEYS = $(tile.keys), TILES = (T + QUERIES - 1) / QUERIES };
    enum { WIDE = $(tile.wide) }; /* D in whole blocks */
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + HEADS / GROUP * D;
//% end
//% if dropout then
    const draws z = draws_of(micro, ga_rng_stream($(dropout.name)), iteration, $(dropout.p));
//% end
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, (int64_t)B * HEADS * TILES); ga_tile_next(&t);) {
        const int i0 = (int)(t.index % TILES) * QUERIES, h = (int)(t.index / TILES % HEADS);
        const size_t row = (size_t)(t.index / TILES / HEADS) * T; /* the first of the sequence */
//% if shape.S then
        const size_t key_row = row / T * S; /* its first key */
//% end
        const int n = i0 + QUERIES < T ? QUERIES : T - i0, end = $(visible.stop);
        _Alignas(64) real sum[QUERIES * WIDE], total[QUERIES] = {0}, largest[QUERIES];
        _Alignas(64) bf16 q[SLICES * QUERIES * WIDE], keys[SLICES * KEYS * WIDE], values[SLICES * WIDE * KEYS];
        for (int i = 0; i < QUERIES; i++) largest[i] = -INFINITY;
        matrix_pack_columns(q, WIDE, n, D, query + (row + i0) * Q_ROW + h * D, Q_ROW);
        for (int j0 = 0; j0 < end; j0 += KEYS) {
            const size_t at = ($(shape.key_row) + j0) * K_ROW + h / GROUP * D;
            const int m = j0 + KEYS < end ? KEYS : end - j0;
            matrix_part_rows(keys, WIDE, m, D, key + at, K_ROW);
            matrix_part_columns(values, KEYS, D, m, value + at, K_ROW);
            for (int i = $(visible.from); i < n; i += 32) {
                const int seen = $(visible.seen);
                _Alignas(64) real score[KEYS * 32];
                _Alignas(64) bf16 part[CUTS * KEYS * 32];
                ask_rows(y + ((row + i0 + i) * HEADS + h) * D, HEADS * D, at_most(n - i, 32), D, sizeof *y);
                tile_matrix(score, 32, false, keys, 1, q + i * SLICES * WIDE, 1, WIDE, seen, 32, D);
                $(score_columns { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
                tile_matrix(sum + i * WIDE, 32, j0 > 0, values, 1, part, CUT_PARTS, KEYS, WIDE, 32, seen);
            }
        }
        $(columns_out { shape = shape, softmax = softmax, result = result })
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ score_columns(shape, tile, visible, softmax, dropout)
//% -- In attend_matrix: scores of 32 queries become parts of exponentials, sums are scaled to the same greatest score.
real from[32], shrink[32], sums[32];
for (int j = 0; j < (seen + 31) / 32 * 32; j++)
    tile_hide_first(score + j * 32, tile_hidden(j, m, $(visible.mask), $(visible.hidden)));
memcpy(from, largest + i, sizeof from);
tile_greatest(from, score, seen);
for (int c = 0; c < 32; c++) {
    const real top = from[c];
    from[c] = top == -INFINITY ? 0 : top * $(softmax.scale); /* -INFINITY: this query sees no key so far */
    shrink[c] = $(softmax.exp)(largest[i + c] * $(softmax.scale) - from[c]);
    largest[i + c] = top;
}
//% if dropout then
_Alignas(64) real kept[KEYS * 32];
const uint64_t draw = ((uint64_t)h * T + i0 + i) * $(shape.keys) + j0;
for (int j = 0; j < (seen + 31) / 32 * 32; j++) draw_row(z, kept + j * 32, 32, row / T, draw + j, $(shape.keys));
//% end
tile_weights(part, 32 * KEYS, sums, score, seen, $(softmax.scale), from, $(tile.kept));
for (int c = 0; c < 32; c++) total[i + c] = total[i + c] * shrink[c] + sums[c];
if (j0 > 0)
    for (int d = 0; d < D; d++)
        for (int c = 0; c < 32; c++) sum[i * WIDE + d * 32 + c] *= shrink[c];

//@ columns_out(shape, softmax, result)
//% -- In attend_matrix: stores the results of all queries.
for (int i = 0; i < n; i += 32) {
    _Alignas(64) real out[32 * WIDE], factor[32];
    for (int c = 0; c < 32; c++) {
        const real all = total[i + c];
        factor[c] = all == 0 ? 0 : 1 / all;
        total[i + c] = all == 0 ? 0 : largest[i + c] * $(softmax.scale) + $(softmax.log)(all);
    }
    for (int d = 0; d < WIDE; d++)
        for (int c = 0; c < 32; c++) sum[i * WIDE + d * 32 + c] *= factor[c];
    tile_turn(out, sum + i * WIDE, WIDE);
    for (int r = 0; r < 32 && i + r < n; r++) {
        const size_t head = (row + i0 + i + r) * HEADS + h;
        for (int c = 0; c < D; c++) y[head * D + c] = $result;
    }
}
memcpy(lse + row * HEADS + h * T + i0, total, (size_t)n * sizeof *total);

//@ attend_dx_matrix(fn, params, source, shape, tile, visible, softmax, dropout, type, half, result)
/* $fn: the gradients of attention with respect to queries, keys and values, by blocks of bf16
 * One worker computes a head of the keys, with all queries that use it; p is computed again from lse. Scores have a row
 * for each key, sums of queries a column for each query.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), T = $(shape.T), HEADS = $(shape.heads), GROUP = $(shape.group), D = $(shape.d) };
    enum { Q_ROW = $(shape.q_row), K_ROW = $(shape.k_row) };
//% if shape.S then
    enum { S = $(shape.S) }; /* keys; T: queries */
//% end
    enum { QUERIES = $(tile.queries), KEYS = $(tile.keys), KEY_HEADS = HEADS / GROUP, Y_ROW = HEADS * D };
    enum { WIDE = $(tile.wide) }; /* D in whole blocks */
//% if shape.packed then
    const $type *key = query + HEADS * D, *value = key + KEY_HEADS * D;
    $result *dk = dq + HEADS * D, *dv = dk + KEY_HEADS * D;
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
            _Alignas(64) bf16 keys[SLICES * KEYS * WIDE], values[SLICES * KEYS * WIDE], turned[SLICES * WIDE * KEYS];
            real d_key[KEYS * WIDE] = {0}, d_value[KEYS * WIDE] = {0};
            matrix_part_rows(keys, WIDE, m, D, key + at, K_ROW);
            matrix_part_rows(values, WIDE, m, D, value + at, K_ROW);
            matrix_part_columns(turned, KEYS, D, m, key + at, K_ROW);
            for (int h = shared * GROUP; h < (shared + 1) * GROUP; h++) {
                for (int i0 = $(visible.first); i0 < T; i0 += QUERIES) {
                    const int n = i0 + QUERIES < T ? QUERIES : T - i0;
                    $(tile_queries { shape = shape, type = type, result = result })
                    $(tile_keys { shape = shape, tile = tile, visible = visible, softmax = softmax, dropout = dropout })
                    $(query_gradients { visible = visible, half = half })
                }
            }
            for (int j = 0; j < m; j++) {
//% if half then
                narrow_row(dk + at + j * K_ROW, d_key + j * WIDE, D);
                narrow_row(dv + at + j * K_ROW, d_value + j * WIDE, D);
//% else
                for (int c = 0; c < D; c++) dk[at + j * K_ROW + c] = d_key[j * WIDE + c];
                for (int c = 0; c < D; c++) dv[at + j * K_ROW + c] = d_value[j * WIDE + c];
//% end
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ tile_queries(shape, type, result)
//% -- In attend_dx_matrix: copies the queries and dy of a tile for all of its products.
const $type *queries = query + (row + i0) * Q_ROW + h * D, *dys = dy + (row + i0) * Y_ROW + h * D;
$result *d_query = dq + (row + i0) * Q_ROW + h * D;
_Alignas(64) bf16 q_columns[SLICES * QUERIES * WIDE], dy_columns[SLICES * QUERIES * WIDE];
_Alignas(64) bf16 q_rows[SLICES * QUERIES * WIDE], dy_rows[SLICES * QUERIES * WIDE];
_Alignas(64) bf16 ds_pairs[CUTS * KEYS * QUERIES];
real level[QUERIES] = {0}, mean[QUERIES] = {0};
memcpy(level, lse + row * HEADS + h * T + i0, (size_t)n * sizeof *level);
memcpy(mean, delta + row * HEADS + h * T + i0, (size_t)n * sizeof *mean);
matrix_pack_columns(q_columns, WIDE, n, D, queries, Q_ROW);
matrix_pack_columns(dy_columns, WIDE, n, D, dys, Y_ROW);
tile_pack(q_rows, QUERIES, D, n, queries, Q_ROW);
tile_pack(dy_rows, QUERIES, D, n, dys, Y_ROW);

//@ tile_keys(shape, tile, visible, softmax, dropout)
//% -- In attend_dx_matrix: 32 keys at a time, and all queries of a tile that see one of them.
int asked = 0; /* the rows of the results */
for (int j = 0; j < m; j += 32) {
    const int first = $(visible.queries);
    if (first >= n) break;
    _Alignas(64) bf16 p_part[CUTS * 32 * QUERIES], ds_part[CUTS * 32 * QUERIES];
    for (int i = first; i < n; i += 32) {
        const size_t from = SLICES * WIDE * j, to = SLICES * WIDE * i;
        _Alignas(64) real p[32 * 32], ds[32 * 32];
        int hidden[32];
        ask_rows(d_query + asked * Q_ROW, Q_ROW, at_most(n - asked, 8), D, sizeof *dq);
        ask_rows(dk + at + asked * K_ROW, K_ROW, at_most(m - asked, 8), D, sizeof *dk);
        ask_rows(dv + at + asked * K_ROW, K_ROW, at_most(m - asked, 8), D, sizeof *dv);
        asked += 8;
        for (int r = 0; r < 32; r++)
            hidden[r] = tile_hidden(j + r, m, $(visible.mask), $(visible.later));
        tile_matrix(p, 32, false, keys + from, 1, q_columns + to, 1, WIDE, 32, 32, D);
        tile_matrix(ds, 32, false, values + from, 1, dy_columns + to, 1, WIDE, 32, 32, D);
//% if dropout then
        const uint64_t draw = ((uint64_t)h * T + i0 + i) * $(shape.keys) + j0 + j;
        _Alignas(64) real kept[32 * 32];
        for (int r = 0; r < 32; r++)
            draw_row(z, kept + r * 32, 32, row / T, draw + r, $(shape.keys));
//% end
        tile_gradients(p_part + i, ds_part + i, QUERIES, ds_pairs + CUTS * KEYS * i + 32 * j,
                       32 * KEYS, p, ds, $(softmax.scale), level + i, mean + i, hidden, $(tile.kept));
    }
    tile_matrix(d_value + j * WIDE, WIDE, true, p_part + first, CUT_PARTS,
                dy_rows + 32 * first, 1, QUERIES, 32, WIDE, n - first);
    tile_matrix(d_key + j * WIDE, WIDE, true, ds_part + first, CUT_PARTS,
                q_rows + 32 * first, 1, QUERIES, 32, WIDE, n - first);
}

//@ query_gradients(visible, half)
//% -- In attend_dx_matrix: what the keys of a tile add to the gradients of its queries.
for (int i = 0; i < n; i += 32) {
    const int seen = $(visible.seen);
    _Alignas(64) real sum[WIDE * 32], out[32 * WIDE];
    tile_matrix(sum, 32, false, turned, 1, ds_pairs + CUTS * KEYS * i, CUT_PARTS, KEYS, WIDE, 32, seen);
    tile_turn(out, sum, WIDE);
//% if half then
    for (int r = 0; r < 32 && i + r < n; r++) narrow_row(d_query + (i + r) * Q_ROW, out + r * WIDE, D);
//% else
    for (int r = 0; r < 32 && i + r < n; r++) {
        real *to = d_query + (i + r) * Q_ROW;
        for (int c = 0; c < D; c++) to[c] = j0 == 0 ? out[r * WIDE + c] : to[c] + out[r * WIDE + c];
    }
//% end
}
