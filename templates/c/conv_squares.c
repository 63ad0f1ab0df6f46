// conv_squares: convolutions of 3 x 3 taps on vectors by squares of results (planes_squares.c). A tile has some squares
// and outputs: the squares' factors and the weights' for some channels, and the sums of each square and output, 16 to 36,
// stay in caches. Each of these is a product of matrices, whose terms are channels, added upwards.

//@ conv2d_squares(fn, params, source, shape, step, part, tile, x, type, bias, store)
//% local s = shape
/* $fn: $(s.does)
 * by squares of $(tile.side) x $(tile.side) results: ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
    enum { PLANE = $(shape.height) * $(shape.width), HIGH = $(s.rows), ACROSS = $(s.columns), RESULTS = HIGH * ACROSS };
    enum { SIDE = $(tile.side), STEP = $(tile.step), READS = $(tile.reads), PRODUCTS = $(tile.n) * $(tile.n) };
    enum { IMAGES = $(tile.images), INNER = $(tile.inner), DOWN = $(tile.down), BESIDE = $(tile.beside) };
    enum { LANES = $(tile.lanes), SQUARES = $(tile.squares), ROWS = $(tile.rows), COLUMNS = $(tile.columns) };
    enum { BLOCKS = $(tile.blocks), WIDE = $(tile.wide) };
    enum { DEPTH = $(tile.depth), COPIED = $(tile.copied), SPACE = $(tile.space) };
    enum { FACTORS = SQUARES * DEPTH + 16, WEIGHTS = WIDE * DEPTH + 16, SUMS = WIDE * SQUARES + 16 };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[COPIED * SPACE], factors[PRODUCTS * FACTORS];
    _Alignas(64) real weights[PRODUCTS * WEIGHTS], sums[PRODUCTS * SUMS];
    _Alignas(64) real $(tile.turned)results[SIDE * SIDE * SQUARES];
//% if tile.inner == 1 then
    enum { PART = (DOWN + 1) * BESIDE };
    _Alignas(64) real apart[IMAGES * STEP * READS * PART + 16] = {0}, parts[SIDE * SIDE][SQUARES];
//% else
    _Alignas(64) real parts[SIDE * SIDE * DOWN * BESIDE * INNER];
//% end
    memset(copy, 0, sizeof copy);
    memset(factors, 0, sizeof factors);
    const int wide = outputs_of_tiles(w, OUT, WIDE, BLOCKS * GROUPS), outs = (OUT + wide - 1) / wide;
    for (ga_tiles t = ga_tiles_begin(w, BLOCKS * GROUPS * outs); ga_tile_next(&t);) {
        const int number = (int)(t.index / outs / GROUPS), g = (int)(t.index / outs % GROUPS);
        const int i0 = (int)(t.index % outs) * wide, i1 = i0 + wide < OUT ? i0 + wide : OUT;
        const conv_block block = conv_block_of(&cut, &part, &part, &planes, B, number);
        const $type *image = $x + ((size_t)block.image * GROUPS + g) * IN * PLANE;
        $(squares_area { tile = tile })
        for (int k = 0; k < IN; k += DEPTH) {
            const int depth = k + DEPTH < IN ? DEPTH : IN - k;
            for (int d = 0; d < depth; d += COPIED) {
                const int channels = d + COPIED < depth ? COPIED : depth - d;
                conv_copy(copy, SPACE, image + (size_t)(k + d) * PLANE, &block, &planes, channels, k + d == 0);
                $(squares_factors { tile = tile })
            }
            $(squares_weights { step = step, tile = tile, type = type })
            for (int factor = 0; factor < PRODUCTS; factor++)
                for (int p = 0; p < SQUARES; p += COLUMNS)
                    for (int i = 0; i < i1 - i0; i += ROWS) {
                        real *c = sums + factor * SUMS + i * SQUARES + p;
                        const real *a = weights + factor * WEIGHTS + i, *b = factors + factor * FACTORS + p * DEPTH;
                        $(tile.strips)
                    }
        }
        for (int i = i0; i < i1; i++) {
            $(squares_results { tile = tile })
            for (int n = 0; n < block.images; n++)
                for (int r = 0; r < high; r++) {
                    const size_t first = (((size_t)(block.image + n) * GROUPS + g) * OUT + i) * RESULTS
                        + (size_t)(top + r) * ACROSS + left;
//% if tile.inner == 1 then
                    const real *from = results + (r % SIDE * SQUARES + n * LANES + r / SIDE * BESIDE) * SIDE;
//% else
                    const real *from = results + (n * SIDE * DOWN + r) * SIDE * BESIDE;
//% end
                    for (int c = 0; c < across; c++) {
                        const size_t k = first + c;
                        const real value = from[c]$bias;
                        $store
                    }
                }
        }
    }
}

//@ conv2d_dw_squares(fn, params, source, shape, step, part, tile, partials, type, store)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), 3 x 3 taps)
//% if store then
 * in their order, by squares of $(tile.side) x $(tile.side) results
//% else
 * as ($partials, $(shape.groups), $(shape.channels) x 9, $(shape.out)), by squares of $(tile.side) x $(tile.side) results:
 * the squares of all images are cut into runs of blocks, $partials in all, each with a sum of its own
//% end
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
    enum { PLANE = $(shape.height) * $(shape.width), ACROSS = $(shape.columns), PLACES = $(shape.rows) * ACROSS };
    enum { SIDE = $(tile.side), STEP = $(tile.step), READS = $(tile.reads), PRODUCTS = $(tile.n) * $(tile.n) };
    enum { IMAGES = $(tile.images), INNER = $(tile.inner), DOWN = $(tile.down), BESIDE = $(tile.beside) };
    enum { LANES = $(tile.lanes), SQUARES = $(tile.used), ROWS = $(tile.rows), COLUMNS = $(tile.columns) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), COPIED = $(tile.copied), SPACE = $(tile.space) };
    enum { FACTORS = TALL * SQUARES + 16, RESULTS = WIDE * SQUARES + 16, SUMS = TALL * WIDE + 16 };
    enum { TILES_DOWN = (IN + TALL - 1) / TALL, TILES_ACROSS = (OUT + WIDE - 1) / WIDE };
    enum { PARTIALS = $partials, BLOCKS = $(tile.blocks), RUN = (BLOCKS + PARTIALS - 1) / PARTIALS };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[COPIED * SPACE], factors[PRODUCTS * FACTORS];
    _Alignas(64) real results[PRODUCTS * RESULTS], sums[PRODUCTS * SUMS];
    _Alignas(64) real turned[IMAGES * SIDE * SIDE * DOWN * BESIDE * VEC_LANES];
//% if tile.inner == 1 then
    enum { PART = (DOWN + 1) * BESIDE };
    _Alignas(64) real apart[IMAGES * STEP * READS * PART + 16] = {0};
//% end
    memset(copy, 0, sizeof copy);
    memset(results, 0, sizeof results);
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * TILES_DOWN * TILES_ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % TILES_ACROSS) * WIDE, wide = OUT - j0 < WIDE ? OUT - j0 : WIDE;
        const int k0 = (int)(t.index / TILES_ACROSS % TILES_DOWN) * TALL, tall = IN - k0 < TALL ? IN - k0 : TALL;
        const int64_t number_of_run = t.index / TILES_ACROSS / TILES_DOWN;
        const int run = (int)(number_of_run / GROUPS), g = (int)(number_of_run % GROUPS);
        const int first = run * RUN, end = first + RUN < BLOCKS ? first + RUN : BLOCKS;
        if (first >= end) memset(sums, 0, sizeof sums);
        for (int number = first; number < end; number++) {
            const conv_block block = conv_block_of(&cut, &part, &part, &planes, B, number);
            const $type *image = x + (((size_t)block.image * GROUPS + g) * IN + k0) * PLANE;
            for (int d = 0; d < tall; d += COPIED) {
                const int channels = d + COPIED < tall ? COPIED : tall - d;
                conv_copy(copy, SPACE, image + (size_t)d * PLANE, &block, &planes, channels, d == 0);
                $(squares_factors { tile = tile })
            }
            for (int j = 0; j < wide; j += VEC_LANES) {
                $(squares_gradients { tile = tile, type = type })
            }
            for (int factor = 0; factor < PRODUCTS; factor++)
                for (int j = 0; j < wide; j += COLUMNS)
                    for (int i = 0; i < tall; i += ROWS) {
                        real *c = sums + factor * SUMS + i * WIDE + j;
                        const real *a = factors + factor * FACTORS + i * SQUARES;
                        const real *b = results + factor * RESULTS + j * SQUARES;
                        $(tile.strips)
                    }
        }
//% if store then
        $(squares_whole { tile = tile, store = store })
//% else
        real *c = y + (((size_t)run * GROUPS + g) * IN + k0) * 9 * OUT + j0;
        for (int i = 0; i < tall; i++)
            for (int j = 0; j < wide; j += VEC_LANES)
                square_sum_taps_$(tile.name)(c + (size_t)i * 9 * OUT + j, OUT, sums + i * WIDE + j, SUMS, wide - j);
//% end
    }
}

//@ squares_whole(tile, store)
for (int j = 0; j < wide; j += VEC_LANES) {
    _Alignas(64) real taps[TALL * 9][VEC_LANES], gradients[VEC_LANES][TALL * 9];
    for (int i = 0; i < tall; i++)
        square_sum_taps_$(tile.name)(taps[i * 9], VEC_LANES, sums + i * WIDE + j, SUMS, VEC_LANES);
    turn_rows(gradients[0], TALL * 9, taps[0], VEC_LANES, tall * 9, VEC_LANES);
    for (int lane = 0; lane < VEC_LANES && j + lane < wide; lane++) {
        const size_t first = (((size_t)g * OUT + j0 + j + lane) * IN + k0) * 9;
        for (int k = 0; k < tall * 9; k++) {
            const real value = gradients[lane][k];
            $store
        }
    }
}

//@ squares_gradients(tile, type)
//% if tile.ragged then
memset(turned, 0, sizeof turned); /* results outside the planes are 0 */
//% end
for (int n = 0; n < block.images; n++) {
    const $type *d = dy + (((size_t)(block.image + n) * GROUPS + g) * OUT + j0 + j) * PLACES
        + (size_t)block.h.first * ACROSS + block.w.first;
    real *to = turned + n * SIDE * SIDE * DOWN * BESIDE * VEC_LANES;
//% if tile.runs then
    conv_turn(to, VEC_LANES, d, PLACES, wide - j, block.h.places * ACROSS);
//% else
    for (int r = 0; r < block.h.places; r++)
        conv_turn(to + r * SIDE * BESIDE * VEC_LANES, VEC_LANES, d + r * ACROSS, PLACES, wide - j, block.w.places);
//% end
}
for (int s = 0; s < SQUARES; s++) {
//% if tile.inner == 1 then
    const int image = s / LANES, square = s % LANES;
    if (square >= DOWN * BESIDE) continue;
//% else
    const int image = s % INNER, square = s / INNER;
//% end
    const int place = (image * DOWN + square / BESIDE) * SIDE * BESIDE + square % BESIDE;
    real *to = results + (j / COLUMNS * SQUARES + s) * COLUMNS + j % COLUMNS;
    square_spread_$(tile.name)(to, RESULTS, turned + place * SIDE * VEC_LANES, SIDE * BESIDE * VEC_LANES);
}

//@ squares_factors(tile)
for (int c = 0; c < channels; c++) {
    const real *read = copy + c * SPACE;
//% if tile.inner == 1 then
    for (int n = 0; n < IMAGES; n++, read += block.next_image)
        $(tile.part)(apart + n * STEP * READS * PART, read, block.next_row, READS, DOWN, BESIDE);
    for (int lane = 0; lane < IMAGES * LANES; lane += VEC_LANES) {
        real *to = factors + $(tile.where);
        const real *from = apart + lane / LANES * STEP * READS * PART + lane % LANES;
        square_factors_$(tile.name)(to, FACTORS, from, BESIDE, READS * PART, PART);
    }
//% else
    for (int lane = 0; lane < LANES; lane += VEC_LANES) {
        const int square = lane / INNER, row = square / BESIDE * STEP, column = square % BESIDE * STEP;
        real *to = factors + $(tile.where);
        const real *from = read + row * block.next_row + column * INNER + lane % INNER;
        square_factors_$(tile.name)(to, FACTORS, from, STEP * block.next_row, block.next_row, INNER);
    }
//% end
}

//@ squares_area(tile)
//% -- The results of a block: where they begin, and how many rows and columns they have.
//% if tile.place == 1 then
const int top = block.h.first, left = block.w.first, high = block.h.places, across = block.w.places;
//% else
const int top = 2 * block.h.first, left = 2 * block.w.first;
const int high = HIGH - top < 2 * block.h.places ? HIGH - top : 2 * block.h.places;
const int across = ACROSS - left < 2 * block.w.places ? ACROSS - left : 2 * block.w.places;
//% end

//@ squares_weights(step, tile, type)
//% if tile.place == 2 then
$(squares_weights_of_parts { tile = tile, type = type })
//% else
$(squares_weights_of_rows { step = step, tile = tile, type = type })
//% end

//@ squares_weights_of_parts(tile, type)
static const int part_taps[4] = {1, 2, 2, 4}, taps_before[4] = {0, 1, 3, 5};
for (int i = i0; i < i1; i += VEC_LANES) {
    const real *own[4]; /* weights of the group, by the part of the input that they reach */
//% if tile.panel then
    enum { PANEL = $(tile.panel) };
//% else
    enum { PANEL = VEC_LANES };
//% end
    for (int p = 0; p < 4; p++) {
        const $type *from = weight + (size_t)(taps_before[p] * GROUPS + part_taps[p] * g) * OUT * IN;
//% if tile.panel then
        own[p] = from + ((size_t)(i / PANEL * PANEL) * IN + (size_t)k * PANEL) * part_taps[p] + i % PANEL;
//% else
        own[p] = taps + taps_before[p] * depth * PANEL;
        conv_turn(taps + taps_before[p] * depth * PANEL, PANEL, from + ((size_t)i * IN + k) * part_taps[p],
                  IN * part_taps[p], OUT - i, depth * part_taps[p]);
//% end
    }
    for (int c = 0; c < depth; c++) square_weights_$(tile.name)(weights + c * WIDE + i - i0, WEIGHTS, own, c, PANEL);
}

//@ squares_weights_of_rows(step, tile, type)
//% local back = step.tap_h < 0
const $type *own = weight + (size_t)g * OUT * IN * 9; /* of the group */
for (int i = i0; i < i1; i += VEC_LANES) {
//% if tile.panel then
    enum { PANEL = $(tile.panel) };
    const real *taps = own + ((size_t)(i / PANEL * PANEL) * IN + (size_t)k * PANEL) * 9 + i % PANEL;
//% else
    enum { PANEL = VEC_LANES };
    conv_turn(taps, PANEL, own + ((size_t)i * IN + k) * 9, IN * 9, OUT - i, depth * 9);
//% end
    for (int c = 0; c < depth; c++)
//% if back then
        square_weights_$(tile.name)(weights + c * WIDE + i - i0, WEIGHTS, taps + (c * 9 + 8) * PANEL, -PANEL);
//% else
        square_weights_$(tile.name)(weights + c * WIDE + i - i0, WEIGHTS, taps + c * 9 * PANEL, PANEL);
//% end
}

//@ squares_results(tile)
for (int s = 0; s < $(tile.used); s += VEC_LANES) {
    vec of[SIDE][SIDE];
    square_finish_$(tile.name)(of, sums + (i - i0) * SQUARES + s, SUMS);
//% if tile.inner == 1 then
    for (int v = 0; v < SIDE * SIDE; v++) vec_store(parts[v] + s, of[v / SIDE][v % SIDE], VEC_LANES);
}
for (int r = 0; r < SIDE; r++) {
    real *row = results + r * SIDE * SQUARES;
    INDEPENDENT for (int s = 0; s < $(tile.used); s++)
        for (int c = 0; c < SIDE; c++) row[SIDE * s + c] = parts[r * SIDE + c][s];
}
//% else
    const int square = s / INNER, place = square / BESIDE * SIDE * SIDE * BESIDE + square % BESIDE * SIDE;
    real *to = parts + place * INNER + s % INNER;
    for (int v = 0; v < SIDE * SIDE; v++)
        vec_store(to + (v / SIDE * SIDE * BESIDE + v % SIDE) * INNER, of[v / SIDE][v % SIDE], VEC_LANES);
}
turn_rows(results, SIDE * SIDE * DOWN * BESIDE, parts, INNER, SIDE * SIDE * DOWN * BESIDE, INNER);
//% end
