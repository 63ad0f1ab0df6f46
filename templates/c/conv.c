// conv: a convolution is a product (matmul.c): strips over panels that are gathered from planes (planes.c). The sum of
// an element runs over its terms upwards, one vec_fma each.

//@ conv2d(fn, params, source, shape, step, parts, tile, x, half, type, bias, store)
//% local s = shape
/* $fn: ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns))
 * from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width)), $(s.taps) taps, groups: $(s.groups)
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), RESULTS = $(shape.rows) * $(shape.columns) };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), TALL = $(tile.tall), DEPTH = $(tile.depth) };
    enum { DOWN = (OUT + TALL - 1) / TALL, PARTS = $(parts.count) };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    for (ga_tiles t = ga_tiles_begin(w, parts[PARTS - 1].tiles); ga_tile_next(&t);) {
        const conv_part *part = parts;
        while (t.index >= part->tiles) part++;
        const int tile = (int)t.index - (part > parts ? part[-1].tiles : 0), g = tile / DOWN % GROUPS;
        const int i0 = tile % DOWN * TALL, i1 = i0 + TALL < OUT ? i0 + TALL : OUT;
        const int in_image = part->h.places * part->w.places, taps = part->h.taps * part->w.taps, K = IN * taps;
        const int64_t j0 = (int64_t)(tile / DOWN / GROUPS) * COLUMNS, end = (int64_t)B * in_image;
        int at[TAPS * COLUMNS], to[COLUMNS];
        bool run[TAPS * COLUMNS / VEC_LANES];
        _Alignas(64) real panel[DEPTH * COLUMNS], sum[TALL * COLUMNS] = {0};
//% if half then
        real some[DEPTH * ROWS];
//% end
        const conv_places places = {at, run};
        conv_locate(at, part, &planes, j0, end, COLUMNS);
        conv_find_runs(places, taps * COLUMNS / VEC_LANES);
        conv_results(to, part, j0, COLUMNS, $(s.columns), GROUPS * OUT * RESULTS, $(step.place_h), $(step.place_w));
        const $type *image = $x + (j0 / in_image * GROUPS + g) * IN * PLANE;
        const $type *a = weight + part->weight + ((size_t)g * OUT + i0) * K;
        for (int k0 = 0; k0 < K; k0 += DEPTH) {
            const int depth = k0 + DEPTH < K ? DEPTH : K - k0;
            for (int k = 0, tap = k0 % taps, channel = k0 / taps; k < depth; k++) {
                conv_gather(panel + k * COLUMNS, image + (size_t)channel * PLANE, places, tap, COLUMNS);
                if (++tap == taps) tap = 0, channel++;
            }
            for (int i = i0; i < i1; i += ROWS) {
                real *out = sum + (i - i0) * COLUMNS;
//% if half then
                const int rows = i + ROWS < i1 ? ROWS : i1 - i;
                widen_rows(some, DEPTH, a + (size_t)(i - i0) * K + k0, K, rows, depth);
                const strip s = {depth, some, DEPTH, 1, panel, COLUMNS, out, COLUMNS, out, COLUMNS};
//% else
                const strip s = {depth, a + (size_t)(i - i0) * K + k0, K, 1, panel, COLUMNS, out, COLUMNS,
                                 out, COLUMNS};
//% end
                $(tile.strips)
            }
        }
        const int count = end - j0 < COLUMNS ? (int)(end - j0) : COLUMNS;
        const bool neighbours = to[COLUMNS - 1] == to[0] + COLUMNS - 1;
        for (int i = i0; i < i1; i++) {
            const real *from = sum + (i - i0) * COLUMNS;
            const size_t plane = ((j0 / in_image * GROUPS + g) * OUT + i) * RESULTS;
            for (int c = 0; c < count; c++) {
                const size_t k = plane + (neighbours ? to[0] + c : to[c]);
                const real value = from[c]$bias;
                $store
            }
        }
    }
}

//@ conv2d_matrix(fn, params, source, shape, step, parts, tile, x, type, bias, store, adds)
//% local s = shape
/* $fn: ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns))
 * from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width)), $(s.taps) taps, groups: $(s.groups), of $type
 * Sums are of 32 bits; one that is complete is rounded, or added.
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), RESULTS = $(shape.rows) * $(shape.columns) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth) };
    enum { DOWN = (OUT + TALL - 1) / TALL, PARTS = $(parts.count) };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE], rows[SLICES * 32 * DEPTH];
    _Alignas(64) float sums[TALL * WIDE];
    int at[TAPS * WIDE], to[WIDE];
    conv_window windows[(TAPS + 1) * WIDE / 16];
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, parts[PARTS - 1].tiles); ga_tile_next(&t);) {
        const conv_part *part = parts;
        while (t.index >= part->tiles) part++;
        const int tile = (int)t.index - (part > parts ? part[-1].tiles : 0), g = tile / DOWN % GROUPS;
        const int i0 = tile % DOWN * TALL, i1 = i0 + TALL < OUT ? i0 + TALL : OUT;
        const int in_image = part->h.places * part->w.places, taps = part->h.taps * part->w.taps, K = IN * taps;
        const int64_t j0 = (int64_t)(tile / DOWN / GROUPS) * WIDE, end = (int64_t)B * in_image;
        const int columns = end - j0 < WIDE ? (int)(end - j0) : WIDE;
        conv_locate(at, part, &planes, j0, end, WIDE);
        conv_find_windows(windows, at, taps, WIDE);
        const conv_terms terms = {$x + (j0 / in_image * GROUPS + g) * IN * PLANE, PLANE, taps, WIDE, windows};
        const $type *a = weight + part->weight + (size_t)g * OUT * K;
//% if parts.empty then
        if (K == 0) memset(sums, 0, sizeof sums);
//% end
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = at_most(K - k, DEPTH);
            conv_panel(panel, DEPTH, &terms, k, depth);
            for (int i = i0; i < i1; i += 32) {
//% if tile.direct then
                const bool whole = i + 32 <= i1 && K % 32 == 0;
                const bf16 *block = whole ? a + (size_t)i * K + k : rows;
                const size_t row = whole ? K : DEPTH;
                if (!whole) matrix_part_rows(rows, DEPTH, at_most(i1 - i, 32), depth, a + (size_t)i * K + k, K);
//% else
                const bf16 *block = rows;
                const size_t row = DEPTH;
                matrix_part_rows(rows, DEPTH, at_most(i1 - i, 32), depth, a + (size_t)i * K + k, K);
//% end
                for (int j = 0; j < columns; j += 32)
                    matrix_block(sums + (i - i0) * WIDE + 32 * j, 32, k > 0, block, row, panel + j * SLICES * DEPTH,
                                 (depth + 31) / 32 * 32);
            }
        }
        conv_results(to, part, j0, columns, $(s.columns), GROUPS * OUT * RESULTS, $(step.place_h), $(step.place_w));
        for (int i = i0; i < i1; i++) {
            const size_t plane = ((j0 / in_image * GROUPS + g) * OUT + i) * RESULTS;
            for (int j = 0; j < columns; j += 32) {
                const float *from = sums + (i - i0) / 32 * 32 * WIDE + 32 * j + (i - i0) % 32 * 32;
                const int n = at_most(columns - j, 32);
                const bool neighbours = to[j + n - 1] == to[j] + n - 1;
                $type apart[32], *row = neighbours ? y + plane + to[j] : apart;
//% if adds then
                for (int c = 0; add && !neighbours && c < n; c++) apart[c] = y[plane + to[j + c]];
//% end
                for (int c = 0; c < n; c++) {
                    const real value = from[c]$bias;
                    $store
                }
                for (int c = 0; !neighbours && c < n; c++) y[plane + to[j + c]] = apart[c];
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ conv2d_turned(fn, params, source, shape, step, parts, type, whole)
/* $fn: weights ($(shape.groups * shape.out), $(shape.channels), $(shape.window_h), $(shape.window_w))
 * as (part, group, in, out, tap): for each part of the places of an input, the taps that reach it
 * $source */
static void $fn($params) {
    enum { IN = $(shape.channels), OUT = $(shape.out), GROUPS = $(shape.groups), PARTS = $(parts.count) };
    enum { HEIGHT = $(shape.window_h), WIDTH = $(shape.window_w), TAP_H = $(step.tap_h), TAP_W = $(step.tap_w) };
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    enum { SIDE = 64, DOWN = (IN + SIDE - 1) / SIDE, ACROSS = (OUT + SIDE - 1) / SIDE };
    for (ga_tiles t = ga_tiles_begin(w, PARTS * GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const conv_part *part = parts + t.index / (GROUPS * DOWN * ACROSS);
        const int g = (int)(t.index / ACROSS / DOWN) % GROUPS, taps = part->h.taps * part->w.taps;
        const int o0 = (int)t.index % ACROSS * SIDE, o1 = o0 + SIDE < OUT ? o0 + SIDE : OUT;
        const int c0 = (int)t.index / ACROSS % DOWN * SIDE, c1 = c0 + SIDE < IN ? c0 + SIDE : IN;
        for (int c = c0; c < c1; c++) {
            $type *to = y + part->weight + (((size_t)g * IN + c) * OUT + o0) * taps;
            for (int o = o0; o < o1; o++) {
                const $type *from = weight + (((size_t)g * OUT + o) * IN + c) * HEIGHT * WIDTH;
//% if whole then
                memcpy(to, from, HEIGHT * WIDTH * sizeof *to);
                to += HEIGHT * WIDTH;
//% else
                for (int h = 0; h < part->h.taps; h++) {
                    const $type *row = from + (part->h.tap + h * TAP_H) * WIDTH + part->w.tap;
                    for (int v = 0; v < part->w.taps; v++) *to++ = row[v * TAP_W];
                }
//% end
            }
        }
    }
}

//@ conv2d_dw(fn, params, source, shape, step, part, tile, partials, type, d)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)):
 * the places of all images are cut into $partials runs, each with a sum of its own
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), PLACES = $(shape.rows) * $(shape.columns), K = IN * TAPS };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), TALL = $(tile.tall), DEPTH = $(tile.depth) };
    enum { ACROSS = (OUT + COLUMNS - 1) / COLUMNS };
    enum { PARTIALS = $partials, RUN = (B * PLACES + PARTIALS * DEPTH - 1) / (PARTIALS * DEPTH) * DEPTH };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % ACROSS) * COLUMNS, j1 = j0 + COLUMNS < OUT ? j0 + COLUMNS : OUT;
        const int g = (int)(t.index / ACROSS % GROUPS);
        const int64_t p0 = t.index / ACROSS / GROUPS * RUN, p1 = p0 + RUN < B * PLACES ? p0 + RUN : B * PLACES;
        real *c = y + ((size_t)(t.index / ACROSS / GROUPS) * GROUPS + g) * K * OUT + j0;
        for (int k = 0; p0 >= p1 && k < K; k++)
            for (int j = j0; j < j1; j++) c[(size_t)k * OUT + j - j0] = 0;
        for (int64_t p = p0; p < p1; p += DEPTH) {
            int at[TAPS * DEPTH], from[DEPTH];
            bool run[TAPS * DEPTH / VEC_LANES];
            _Alignas(64) real panel[DEPTH * COLUMNS], terms[TALL * DEPTH];
            const conv_places places = {at, run};
            const int depth = p + DEPTH < p1 ? DEPTH : (int)(p1 - p);
            conv_locate(at, &part, &planes, p, p1, DEPTH);
            conv_find_runs(places, TAPS * DEPTH / VEC_LANES);
            conv_results(from, &part, p, DEPTH, $(shape.columns), GROUPS * OUT * PLACES, 1, 1);
            const $type *d = dy + ((p / PLACES * GROUPS + g) * OUT + j0) * PLACES;
            for (int k = 0; k < depth; k++)
                for (int j = 0; j < COLUMNS; j++)
                    panel[k * COLUMNS + j] = j < j1 - j0 ? $d : 0;
            const $type *image = x + (p / PLACES * GROUPS + g) * IN * PLANE;
            for (int i0 = 0; i0 < K; i0 += TALL) {
                const int i1 = i0 + TALL < K ? i0 + TALL : K;
                real *row = terms;
                for (int i = i0; i < i1; i++, row += DEPTH)
                    conv_gather(row, image + (size_t)(i / TAPS) * PLANE, places, i % TAPS, DEPTH);
                row = terms;
                for (int i = i0; i < i1; i += ROWS, row += ROWS * DEPTH) {
                    real *out = c + (size_t)i * OUT;
                    const strip s = {depth, row, DEPTH, 1, panel, COLUMNS, p > p0 ? out : NULL, OUT, out, OUT};
                    $(tile.strips)
                }
            }
        }
    }
}

//@ conv2d_dw_matrix(fn, params, source, shape, step, part, tile, partials, type)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)), of $type:
 * the places of all images are cut into $partials runs, each with a sum of its own
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), PLACES = $(shape.rows) * $(shape.columns), K = IN * TAPS };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth), RUN = $(tile.run), PARTIALS = $partials };
    enum { DOWN = (K + TALL - 1) / TALL, ACROSS = (OUT + WIDE - 1) / WIDE };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE];
    _Alignas(64) $type rows[32 * DEPTH];
//% if not tile.direct then
    _Alignas(64) bf16 rows_part[SLICES * 32 * DEPTH];
//% end
    _Alignas(64) float sums[RUN > DEPTH ? TALL * WIDE : 32 * 32];
    int at[TAPS * DEPTH], from[DEPTH];
    conv_window windows[(TAPS + 1) * DEPTH / 16], results[2 * DEPTH / 16];
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % ACROSS) * WIDE, columns = at_most(OUT - j0, WIDE);
        const int i0 = (int)(t.index / ACROSS % DOWN) * TALL, i1 = i0 + TALL < K ? i0 + TALL : K;
        const int g = (int)(t.index / ACROSS / DOWN % GROUPS);
        const int64_t run = t.index / ACROSS / DOWN / GROUPS, p0 = run * RUN;
        const int64_t p1 = p0 + RUN < B * PLACES ? p0 + RUN : B * PLACES;
        float *c = y + ((size_t)run * GROUPS + g) * K * OUT + j0;
        for (int i = i0; p0 >= p1 && i < i1; i++) memset(c + (size_t)i * OUT, 0, (size_t)columns * sizeof *c);
        for (int64_t p = p0; p < p1; p += DEPTH) {
            const int depth = p + DEPTH < p1 ? DEPTH : (int)(p1 - p), whole = (depth + 31) / 32 * 32;
            conv_locate(at, &part, &planes, p, p1, DEPTH);
            conv_find_windows(windows, at, TAPS, DEPTH);
            conv_results(from, &part, p, DEPTH, $(shape.columns), GROUPS * OUT * PLACES, 1, 1);
            for (int k = depth; k < DEPTH; k++) from[k] = -1;
            conv_find_windows(results, from, 1, DEPTH);
            const conv_terms d = {dy + ((p / PLACES * GROUPS + g) * OUT + j0) * PLACES, PLACES, 1, DEPTH, results};
            for (int j = 0; j < columns; j += 32) {
                conv_rows(rows, &d, j, columns - j);
                matrix_pack_columns(panel + j * SLICES * DEPTH, DEPTH, 32, whole, rows, DEPTH);
            }
            const conv_terms terms = {x + (p / PLACES * GROUPS + g) * IN * PLANE, PLANE, TAPS, DEPTH, windows};
            for (int i = i0; i < i1; i += 32) {
                conv_rows(rows, &terms, i, i1 - i);
//% if not tile.direct then
                matrix_part_rows(rows_part, DEPTH, 32, whole, rows, DEPTH);
//% end
                for (int j = 0; j < columns; j += 32) {
                    float *block = RUN > DEPTH ? sums + (i - i0) * WIDE + 32 * j : sums;
                    matrix_block(block, 32, p > p0, $(tile.rows), DEPTH, panel + j * SLICES * DEPTH, whole);
                    if (p + DEPTH < p1) continue;
                    for (int r = i; r < i1 && r < i + 32; r++)
                        memcpy(c + (size_t)r * OUT + j, block + 32 * (r - i),
                               (size_t)at_most(columns - j, 32) * sizeof *c);
                }
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ conv2d_dw_sum(fn, params, source, partials, groups, terms, out, store)
/* $fn: the sum of $partials gradients of weights ($(groups * out), $terms), in the order of the weights
 * $source */
static void $fn($params) {
    enum { PARTIALS = $partials, K = $terms, OUT = $out, ALL = $groups * OUT * K };
    enum { WIDE = OUT < 128 ? (OUT + 15) / 16 * 16 : 128, ACROSS = (OUT + WIDE - 1) / WIDE };
    enum { TALL = K < 64 ? (K + 15) / 16 * 16 : ACROSS * K > 8192 ? 256 : 64, DOWN = (K + TALL - 1) / TALL };
    for (ga_tiles t = ga_tiles_begin(w, $groups * DOWN * ACROSS); ga_tile_next(&t);) {
        const int g = (int)t.index / ACROSS / DOWN;
        const int k0 = (int)t.index / ACROSS % DOWN * TALL, k1 = k0 + TALL < K ? k0 + TALL : K;
        const int j0 = (int)t.index % ACROSS * WIDE, j1 = j0 + WIDE < OUT ? j0 + WIDE : OUT;
        _Alignas(64) real sum[TALL * WIDE] = {0};
        for (int k = k0; k < k1; k++) {
            const real *from = partial + ((size_t)g * K + k) * OUT;
            for (int p = 0; p < PARTIALS; p++, from += ALL)
                for (int j = j0; j < j1; j++) sum[(k - k0) * WIDE + j - j0] += from[j];
        }
        for (int block = 0; block < (j1 - j0 + 15) / 16 * (TALL / 16); block++) {
            const int down = block % (TALL / 16) * 16, across = block / (TALL / 16) * 16;
            const int rows = k1 - k0 - down < 16 ? k1 - k0 - down : 16;
            _Alignas(64) real turned[16][16];
            turn_block(turned, sum + down * WIDE + across, WIDE);
            for (int j = 0; j < 16 && j0 + across + j < j1; j++) {
                const size_t row = ((size_t)g * OUT + j0 + across + j) * K + k0 + down;
                for (int k = 0; k < rows; k++) {
                    const size_t i = row + k;
                    const real value = turned[j][k];
                    $store
                }
            }
        }
    }
}
