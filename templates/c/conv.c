// conv: convolutions on vectors, and as products in blocks (matrix.c) over panels gathered from planes.
//
// On vectors, the planes that a block of places reads are copied, with zeros around them (planes_blocks.c,
// planes_copy.c). Sums of some places by some outputs are in registers (conv_sums.c): elements of the copy go to all
// lanes, lanes have outputs. The gradient of a weight has rows of (tap, channel) in the place of places. The sum of an
// element runs over its terms upwards, (channel, tap) pairs or places, one vec_fma each; of terms outside a plane some
// are left out, the others add 0.

//@ conv2d(fn, params, source, shape, step, parts, tile, x, type, bias, store)
//% local s = shape
/* $fn: $(s.does)
 * ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), PARTS = $(parts.count) };
    enum { PLANE = $(shape.height) * $(shape.width), HIGH = $(s.rows), ACROSS = $(s.columns), RESULTS = HIGH * ACROSS };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), WIDE = $(tile.wide), TERMS = $(tile.terms) };
    enum { MOST = $(tile.places), SPACE = $(tile.space), OUTS = (OUT + WIDE - 1) / WIDE, SIDE = 32 };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[$(tile.copy)], $(tile.panel)sums[WIDE * MOST], turned[COLUMNS * SIDE];
    int at[MOST + ROWS], to[MOST + ROWS];
    conv_reach reach[MOST];
    conv_item steps[TERMS];
    for (ga_tiles t = ga_tiles_begin(w, $(tile.blocks) * GROUPS * OUTS); ga_tile_next(&t);) {
        const int number = (int)(t.index / OUTS / GROUPS), g = (int)(t.index / OUTS % GROUPS);
        const int i0 = (int)(t.index % OUTS) * WIDE, i1 = i0 + WIDE < OUT ? i0 + WIDE : OUT;
        const conv_area area = conv_area_of(&cut, parts, number, B, HIGH, ACROSS, $(step.place_h), $(step.place_w));
//% if parts.empty then
        memset(sums, 0, sizeof sums);
//% end
        for (const conv_part *part = parts; part < parts + PARTS; part++) {
            const int taps = part->h.taps * part->w.taps, most = conv_channels(IN, TERMS, taps);
            const conv_block block = conv_block_of(&cut, part, parts, &planes, B, number);
            const conv_layout results = {part->h.place * area.wide + part->w.place, $(step.place_h) * area.wide,
                                         $(step.place_w), area.high * area.wide};
            const int places = conv_places(at, to, reach, &block, part, &planes, &results);
            conv_join(at, to, reach, places, ROWS, MOST - 1);
            const $type *image = $x + ((size_t)block.image * GROUPS + g) * IN * PLANE;
            const $type *a = weight + part->weight + (size_t)g * OUT * IN * taps;
            for (int k = 0; k < IN && places * taps > 0; k += most) {
                const int depth = k + most < IN ? most : IN - k;
                conv_copy(copy, SPACE, image + (size_t)k * PLANE, &block, &planes, depth, k == 0);
                for (int i = i0; i < i1; i += COLUMNS) {
//% if tile.turned then
                    const real *panel = a + ((size_t)i * IN + (size_t)k * COLUMNS) * taps;
//% else
                    conv_turn(panel, COLUMNS, a + ((size_t)i * IN + k) * taps, IN * taps, OUT - i, depth * taps);
//% end
                    conv_sums s = {.b = panel, .steps = steps, .x_round = SPACE, .b_round = taps * COLUMNS,
                                   .rounds = taps > 1 ? depth : 1, .more = k > 0};
                    for (int p = 0; p < places; p += ROWS) {
                        const conv_reach *inside = reach + p / ROWS;
                        if (p == 0 || memcmp(inside, inside - 1, sizeof *inside) != 0)
                            s.count = conv_find_steps(steps, inside, &block, part, depth / s.rounds, SPACE, COLUMNS);
                        for (int r = 0; r < ROWS; r++) {
                            s.x[r] = copy + at[p + r];
                            s.c[r] = sums + (i - i0) * MOST + to[p + r] * COLUMNS;
                        }
                        conv_sums_$(tile.rows)x$(tile.columns)(&s);
                    }
                }
            }
        }
        const int run = area.wide == ACROSS ? area.high * area.wide : area.wide, lines = area.high * area.wide / run;
        for (int q = 0; q < area.images * lines; q++) {
            const size_t first = ((size_t)(area.image + q / lines) * GROUPS + g) * OUT * RESULTS
                + (size_t)(area.top + q % lines) * ACROSS + area.left;
            for (int j = i0; j < i1; j += COLUMNS)
                for (int p = 0; p < run; p += SIDE) {
                    const int n = p + SIDE < run ? SIDE : run - p;
                    turn_rows(turned, SIDE, sums + (j - i0) * MOST + (q * run + p) * COLUMNS, COLUMNS, n, COLUMNS);
                    for (int i = j; i < i1 && i < j + COLUMNS; i++) {
                        const real *from = turned + (i - j) * SIDE;
                        for (int c = 0; c < n; c++) {
                            const size_t k = first + (size_t)i * RESULTS + p + c;
                            const real value = from[c]$bias;
                            $store
                        }
                    }
                }
        }
    }
}

//@ conv2d_matrix(fn, params, source, shape, step, parts, tile, x, type, bias, store, adds)
//% local s = shape
/* $fn: $(s.does), of $type; sums of f32
 * ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), RESULTS = $(shape.rows) * $(shape.columns) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth), DOWN = (OUT + TALL - 1) / TALL };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part parts[] = {
        $(parts.rows)
    };
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE], rows[SLICES * 32 * DEPTH];
    _Alignas(64) float sums[TALL * WIDE];
    int at[TAPS * WIDE], to[WIDE];
    conv_window windows[(TAPS + 1) * WIDE / 16];
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, parts[$(parts.count - 1)].tiles); ga_tile_next(&t);) {
        const conv_part *part = parts;
        while (t.index >= part->tiles) part++;
        const int tile = (int)t.index - (part > parts ? part[-1].tiles : 0), g = tile / DOWN % GROUPS;
        const int i0 = tile % DOWN * TALL, i1 = i0 + TALL < OUT ? i0 + TALL : OUT;
        const int in_image = part->h.places * part->w.places, taps = part->h.taps * part->w.taps, K = IN * taps;
        const int64_t j0 = (int64_t)(tile / DOWN / GROUPS) * WIDE, end = (int64_t)B * in_image;
        const int columns = end - j0 < WIDE ? (int)(end - j0) : WIDE;
        conv_locate(at, part, &planes, j0, end, WIDE);
        $(tile.find)
        const conv_terms terms = {$x + (j0 / in_image * GROUPS + g) * IN * PLANE, PLANE, taps, WIDE, windows};
        const $type *a = weight + part->weight + (size_t)g * OUT * K;
//% if parts.empty then
        if (K == 0) memset(sums, 0, sizeof sums);
//% end
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = at_most(K - k, DEPTH);
            $(tile.gather)(panel, DEPTH, &terms, $(tile.runs)k, depth);
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
                float *row_sums = sums + (i - i0) * WIDE;
                for (int j = 0; j < columns; j += 32)
                    matrix_block(row_sums + 32 * j, 32, k > 0 ? row_sums + 32 * j : NULL, 32, block, row,
                                 panel + j * SLICES * DEPTH, (depth + 31) / 32 * 32);
            }
        }
        conv_results(to, part, j0, columns, $(s.columns), GROUPS * OUT * RESULTS, $(step.place_h), $(step.place_w));
        for (int i = i0; i < i1; i++) {
            const size_t plane = ((j0 / in_image * GROUPS + g) * OUT + i) * RESULTS;
            for (int j = 0; j < columns; j += 32) {
                const float *from = sums + (i - i0) / 32 * 32 * WIDE + 32 * j + (i - i0) % 32 * 32;
                const int n = at_most(columns - j, 32);
                const bool neighbours = to[j + n - 1] == to[j] + n - 1;
                _Alignas(64) $type apart[32];
                $type *row = neighbours ? y + plane + to[j] : apart;
//% if adds then
                if (add && !neighbours) $(tile.get)
//% end
                for (int c = 0; c < n; c++) {
                    const real value = from[c]$bias;
                    $store
                }
                if (!neighbours) $(tile.put)
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

//@ conv2d_turned_panels(fn, params, source, shape, step, parts, columns)
/* $fn: weights ($(shape.groups * shape.out), $(shape.channels), $(shape.window_h), $(shape.window_w))
 * as (part, group, in / $columns, (out, tap), $columns in): for each part of the places of an input, the taps that
 * reach it, in the order of products
 * $source */
static void $fn($params) {
    enum { IN = $(shape.channels), OUT = $(shape.out), GROUPS = $(shape.groups), PARTS = $(parts.count) };
    enum { WIDTH = $(shape.window_w), TAPS = $(shape.window_h) * WIDTH, TAP_H = $(step.tap_h), TAP_W = $(step.tap_w) };
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    enum { COLUMNS = $columns, SIDE = 64, DOWN = IN / COLUMNS, ACROSS = (OUT + SIDE - 1) / SIDE };
    _Alignas(64) real turned[TAPS * COLUMNS];
    for (ga_tiles t = ga_tiles_begin(w, GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const int g = (int)t.index / ACROSS / DOWN, c = (int)t.index / ACROSS % DOWN * COLUMNS;
        const int o0 = (int)t.index % ACROSS * SIDE, o1 = o0 + SIDE < OUT ? o0 + SIDE : OUT;
        for (int o = o0; o < o1; o++) {
            turn_rows(turned, COLUMNS, weight + (((size_t)g * OUT + o) * IN + c) * TAPS, TAPS, COLUMNS, TAPS);
            for (const conv_part *part = parts; part < parts + PARTS; part++) {
                const size_t row = ((size_t)g * IN + c) * OUT + (size_t)o * COLUMNS;
                real *to = y + part->weight + row * part->h.taps * part->w.taps;
                for (int h = 0; h < part->h.taps; h++) {
                    const real *from = turned + ((part->h.tap + h * TAP_H) * WIDTH + part->w.tap) * COLUMNS;
                    for (int v = 0; v < part->w.taps; v++, to += COLUMNS)
                        memcpy(to, from + v * TAP_W * COLUMNS, COLUMNS * sizeof *to);
                }
            }
        }
    }
}

//@ conv2d_dw(fn, params, source, shape, step, part, tile, partials, type)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)):
 * the places of all images are cut into runs of blocks, $partials in all, each with a sum of its own
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), PLACES = $(shape.rows) * $(shape.columns), K = IN * TAPS };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), WIDE = $(tile.wide), TALL = $(tile.tall) };
    enum { MOST = $(tile.places), SPACE = $(tile.space), LISTS = $(tile.lists) };
    enum { DOWN = (IN + TALL - 1) / TALL, ACROSS = (OUT + WIDE - 1) / WIDE };
    enum { PARTIALS = $partials, BLOCKS = $(tile.blocks), RUN = (BLOCKS + PARTIALS - 1) / PARTIALS };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[TALL * SPACE], panel[MOST * WIDE], rest[ROWS * COLUMNS];
    int at[MOST], from[MOST], counts[LISTS];
    conv_reach reach[MOST];
    conv_item lists[LISTS * MOST];
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % ACROSS) * WIDE, j1 = j0 + WIDE < OUT ? j0 + WIDE : OUT;
        const int k0 = (int)(t.index / ACROSS % DOWN) * TALL, tall = k0 + TALL < IN ? TALL : IN - k0;
        const int run = (int)(t.index / ACROSS / DOWN / GROUPS), g = (int)(t.index / ACROSS / DOWN % GROUPS);
        const int first = run * RUN, end = first + RUN < BLOCKS ? first + RUN : BLOCKS;
        real *c = y + (((size_t)run * GROUPS + g) * K + (size_t)k0 * TAPS) * OUT;
        if (first >= end)
            for (int k = 0; k < tall * TAPS; k++)
                for (int j = j0; j < j1; j++) c[(size_t)k * OUT + j] = 0;
        conv_block block = {0};
        for (int number = first, places = 0; number < end; number++) {
            const conv_block before = block;
            block = conv_block_of(&cut, &part, &part, &planes, B, number);
            const bool other = conv_differ(&block, &before);
            if (other) {
                const conv_layout results = {block.h.first * $(shape.columns) + block.w.first, $(shape.columns), 1,
                                             GROUPS * OUT * PLACES};
                places = conv_places(at, from, reach, &block, &part, &planes, &results);
                conv_find_lists(lists, counts, LISTS, MOST, at, reach, places, block.w.places, part.w.taps,
                                COLUMNS);
            }
            const $type *image = x + (((size_t)block.image * GROUPS + g) * IN + k0) * PLANE;
            conv_copy(copy, SPACE, image, &block, &planes, tall, other);
            const $type *d = dy + (((size_t)block.image * GROUPS + g) * OUT + j0) * PLACES;
            for (int j = 0; j < j1 - j0; j += COLUMNS)
                conv_turn_places(panel + j * places, COLUMNS, d + (size_t)j * PLACES, PLACES,
                                 j0 + j + COLUMNS < j1 ? COLUMNS : j1 - j0 - j, from, places);
            for (int j = j0; j < j1; j += COLUMNS) {
                conv_sums s = {.b = panel + (j - j0) * places, .rounds = 1, .more = number > first};
                int group = 0, tap = 0, channel = 0, from_tap = 0; /* all taps of some channels, then others */
                for (int k = 0; k < tall * TAPS; k += ROWS) {
                    const int rows = k + ROWS < tall * TAPS ? ROWS : tall * TAPS - k;
                    const int behind = group + ROWS < tall ? group + ROWS : tall;
                    const int list = channel + rows <= behind && tap < LISTS ? tap : LISTS - 1;
                    s.steps = lists + list * MOST;
                    s.count = counts[list];
                    for (int r = 0; r < ROWS; r++) {
                        s.x[r] = r < rows ? copy + channel * SPACE + from_tap : copy;
                        s.c[r] = r < rows ? c + ((size_t)channel * TAPS + tap) * OUT + j : rest + r * COLUMNS;
                        if (++channel < behind) continue;
                        if (++tap == TAPS) group = behind, tap = 0;
                        channel = group;
                        from_tap = tap / part.w.taps * block.h.tap * block.w.length + tap % part.w.taps * block.w.tap;
                    }
                    $(tile.strips)
                }
            }
        }
    }
}

//@ conv2d_dw_matrix(fn, params, source, shape, step, part, tile, partials, type, store)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
//% if store then
 * in their order, of $type
//% else
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)), of $type:
 * the places of all images are cut into runs, $partials in all, each with a sum of its own
//% end
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), PLACES = $(shape.rows) * $(shape.columns), K = IN * TAPS };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth), RUN = $(tile.run), PARTIALS = $partials };
    enum { ACROSS = (OUT + WIDE - 1) / WIDE };
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
    const int tall = $(tile.height), down = (K + tall - 1) / tall;
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * down * ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % ACROSS) * WIDE, columns = at_most(OUT - j0, WIDE);
        const int i0 = (int)(t.index / ACROSS % down) * tall, i1 = i0 + tall < K ? i0 + tall : K;
        const int g = (int)(t.index / ACROSS / down % GROUPS);
//% if store then
        const int64_t p0 = 0, p1 = B * PLACES;
//% else
        const int64_t run = t.index / ACROSS / down / GROUPS, p0 = run * RUN;
        const int64_t p1 = p0 + RUN < B * PLACES ? p0 + RUN : B * PLACES;
        float *c = y + ((size_t)run * GROUPS + g) * K * OUT + j0;
        if (p0 >= p1) for (int i = i0; i < i1; i++) memset(c + (size_t)i * OUT, 0, (size_t)columns * sizeof *c);
//% end
        for (int64_t p = p0; p < p1; p += DEPTH) {
            const int depth = p + DEPTH < p1 ? DEPTH : (int)(p1 - p), whole = (depth + 31) / 32 * 32;
            conv_locate(at, &part, &planes, p, p1, DEPTH);
            $(tile.find)
            conv_results(from, &part, p, DEPTH, $(shape.columns), GROUPS * OUT * PLACES, 1, 1);
            for (int k = depth; k < DEPTH; k++) from[k] = -1;
            $(tile.find_results)
            const conv_terms d = {dy + ((p / PLACES * GROUPS + g) * OUT + j0) * PLACES, PLACES, 1, DEPTH, results};
            for (int j = 0; j < columns; j += 32) {
                $(tile.gather)(rows, &d, $(tile.result_runs)j, columns - j);
                matrix_pack_columns(panel + j * SLICES * DEPTH, DEPTH, 32, whole, rows, DEPTH);
            }
            const conv_terms terms = {x + (p / PLACES * GROUPS + g) * IN * PLANE, PLANE, TAPS, DEPTH, windows};
            for (int i = i0; i < i1; i += 32) {
                $(tile.gather)(rows, &terms, $(tile.runs)i, i1 - i);
//% if not tile.direct then
                matrix_part_rows(rows_part, DEPTH, 32, whole, rows, DEPTH);
//% end
                for (int j = 0; j < columns; j += 32) {
                    float *block = RUN > DEPTH ? sums + (i - i0) * WIDE + 32 * j : sums;
//% if store then
                    if (p + DEPTH >= p1) /* the results of this block are stored behind its products */
                        fetch_lines(y + ((size_t)g * OUT + j0 + j) * K + i, K * sizeof *y, at_most(columns - j, 32), 0,
                                    2 * at_most(columns - j, 32));
//% end
                    matrix_block(block, 32, p > p0 ? block : NULL, 32, $(tile.rows), DEPTH,
                                 panel + j * SLICES * DEPTH, whole);
                    if (p + DEPTH < p1) continue;
                    $(sums_of_block { store = store })
                }
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ sums_of_block(store)
//% if store then
for (int number = 0; number < 4; number++) { /* of a block of 16 x 16 sums */
    const int top = number / 2 * 16, left = number % 2 * 16;
    const int rows_in = at_most(i1 - i - top, 16), columns_in = at_most(columns - j - left, 16);
    _Alignas(64) real turned[16][16];
    turn_block(turned, block + 32 * top + left, 32);
    for (int c = 0; c < columns_in; c++) {
        const size_t first = ((size_t)g * OUT + j0 + j + left + c) * K + i + top;
        for (int k = 0; k < rows_in; k++) {
            const real value = turned[c][k];
            $store
        }
    }
}
//% else
for (int r = i; r < i1 && r < i + 32; r++)
    memcpy(c + (size_t)r * OUT + j, block + 32 * (r - i), (size_t)at_most(columns - j, 32) * sizeof *c);
//% end

//@ conv2d_dw_sum(fn, params, source, partials, groups, terms, out, store)
//% if partials > 1 then
/* $fn: the sum of $partials gradients of a weight ($(groups * out), $terms), in the order of the weight
//% else
/* $fn: the gradient of a weight ($(groups * out), $terms), in the order of the weight
//% end
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
