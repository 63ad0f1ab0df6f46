// conv_single: convolutions of one tap, and of a few channels, on vectors. The places of a block are copied for each
// channel and tap, so that they are the columns of a product of matrices, whose rows are outputs and whose terms are
// channels, each with its taps, added upwards. In the gradient of a weight of one tap places are the terms.

//@ conv2d_single(fn, params, source, shape, step, part, tile, x, type, bias, store)
//% local s = shape
/* $fn: $(s.does)
 * ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
//% if tile.taps then
    enum { TAPS = $(tile.taps.h) * $(tile.taps.w), TERMS = IN * TAPS };
//% end
    enum { PLANE = $(shape.height) * $(shape.width), ACROSS = $(s.columns), RESULTS = $(s.rows) * ACROSS };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), TALL = $(tile.tall), DEPTH = $(tile.depth) };
    enum { BLOCKS = $(tile.blocks), PLACES = $(tile.places) };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[DEPTH * PLACES];
//% if tile.turns then
    _Alignas(64) real rows[TALL * DEPTH];
//% end
//% if not tile.direct then
    _Alignas(64) real sums[TALL * PLACES];
//% end
//% if not tile.taps then
    memset(copy, 0, sizeof copy);
//% end
    const int tall = outputs_of_tiles(w, OUT, TALL, BLOCKS * GROUPS), outs = (OUT + tall - 1) / tall;
    for (ga_tiles t = ga_tiles_begin(w, BLOCKS * GROUPS * outs); ga_tile_next(&t);) {
        const int number = (int)(t.index / outs / GROUPS), g = (int)(t.index / outs % GROUPS);
        const int i0 = (int)(t.index % outs) * tall, i1 = i0 + tall < OUT ? i0 + tall : OUT;
        const conv_block block = conv_block_of(&cut, &part, &part, &planes, B, number);
        const int places = block.images * block.h.places * block.w.places;
        const $type *image = $x + ((size_t)block.image * GROUPS + g) * IN * PLANE;
        const $type *own = weight + (size_t)g * OUT * $(tile.terms); /* of the group */
//% if tile.taps then
        $(tap_copies { tile = tile })
//% end
        for (int k = 0; k < $(tile.terms); k += DEPTH) {
            const int depth = k + DEPTH < $(tile.terms) ? DEPTH : $(tile.terms) - k;
//% if not tile.taps then
            conv_copy(copy, PLACES, image + (size_t)k * PLANE, &block, &planes, depth, false);
//% end
//% if tile.turns then
            for (int i = i0; i < i1; i += ROWS)
                conv_turn(rows + (i - i0) * DEPTH, ROWS, own + (size_t)i * $(tile.terms) + k, $(tile.terms), OUT - i,
                          depth);
//% end
            for (int p = 0; p < places; p += COLUMNS) {
//% if tile.direct then
                real *column = y + ((size_t)(block.image + p / RESULTS) * GROUPS + g) * OUT * RESULTS
                    + block.h.first * ACROSS + p % RESULTS; /* of the group's first output */
//% end
                for (int i = i0; i < i1; i += ROWS) {
//% if tile.direct then
                    real *c = column + (size_t)i * RESULTS;
                    if (k == 0 && i + ROWS < i1) ask_rows(c + ROWS * RESULTS, RESULTS, ROWS, COLUMNS, sizeof *c);
//% else
                    real *c = sums + (i - i0) * PLACES + p;
//% end
//% if tile.panel then
                    enum { PANEL = $(tile.panel) };
                    const real *a = own + (size_t)(i / PANEL * PANEL) * IN + (size_t)k * PANEL + i % PANEL;
//% elseif tile.turns then
                    const real *a = rows + (i - i0) * DEPTH;
//% else
                    const real *a = own + (size_t)i * $(tile.terms) + k;
//% end
                    const strip s = {depth, a, $(tile.steps), copy + p, PLACES,
                                     k > 0 ? c : NULL, $(tile.row), c, $(tile.row)};
                    $(tile.strips)
                }
            }
        }
//% if not tile.direct then
        $(single_results { shape = shape, step = step, tile = tile, bias = bias, store = store })
//% end
    }
}

//@ single_spread(shape, step, tile, store)
//% -- In conv2d_single: results lie in every $(step.place_h)th row and column; all others are 0.
enum { HIGH = $(shape.rows), WIDE = $(tile.part.w.places), DOWN = $(step.place_h), RIGHT = $(step.place_w) };
const int top = block.h.first * DOWN, below = top + block.h.places * DOWN, end = below < HIGH ? below : HIGH;
for (int i = i0; i < i1; i++)
    for (int n = 0; n < block.images; n++) {
        const size_t plane = ((size_t)(block.image + n) * GROUPS + g) * OUT + i, first = plane * RESULTS + top * ACROSS;
        const real *from = sums + (i - i0) * PLACES + n * block.next_image;
        memset(y + first, 0, (size_t)(end - top) * ACROSS * sizeof *y);
        for (int r = 0; r < block.h.places; r++)
            for (int c = 0; c < WIDE; c++) {
                const size_t k = first + (r * DOWN * ACROSS + c * RIGHT);
                const real value = from[r * WIDE + c];
                $store
            }
    }

//@ single_results(shape, step, tile, bias, store)
//% -- In conv2d_single: sums of a tile go to the planes of the results.
//% if tile.spread then
$(single_spread { shape = shape, step = step, tile = tile, store = store })
//% else
const int run = block.w.places == ACROSS ? block.h.places * ACROSS : block.w.places;
for (int i = i0; i < i1; i++)
    for (int p = 0; p < places; p += run) {
        const int n = p / block.next_image, r = p % block.next_image / block.next_row;
        const size_t first = (((size_t)(block.image + n) * GROUPS + g) * OUT + i) * RESULTS
            + (size_t)(block.h.first + r) * ACROSS + block.w.first;
        const real *from = sums + (i - i0) * PLACES + p;
        for (int c = 0; c < run; c++) {
            const size_t k = first + c;
            const real value = from[c]$bias;
            $store
        }
    }
//% end

//@ tap_copies(tile)
//% -- In conv2d_single: copies the places of a block for each tap.
memset(copy, 0, sizeof copy); /* what taps read outside the planes */
for (int tap = 0; tap < TAPS; tap++) {
    conv_block read = block;
    read.h.from += tap / $(tile.taps.w) * planes.tap_h;
    read.w.from += tap % $(tile.taps.w) * planes.tap_w;
    conv_copy(copy + tap * PLACES, TAPS * PLACES, image, &read, &planes, IN, false);
}

//@ conv2d_dw_single(fn, params, source, shape, step, part, tile, partials)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), 1 tap)
 * as ($partials, $(shape.groups), $(shape.channels), $(shape.out)):
 * the places of all images are cut into runs of blocks, $partials in all, each with a sum of its own;
 * rows of sums are planes of $(tile.lies), read where they lie, columns those of $(tile.turned), turned for each block
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
    enum { PLANE = $(shape.height) * $(shape.width), ACROSS = $(shape.columns), PLACES = $(shape.rows) * ACROSS };
//% if tile.by_outputs then
    enum { PLANES = OUT, TURNED = IN }; /* planes of $(tile.lies) and of $(tile.turned) */
//% else
    enum { PLANES = IN, TURNED = OUT }; /* planes of $(tile.lies) and of $(tile.turned) */
//% end
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), TALL = $(tile.tall), WIDE = $(tile.wide) };
    enum { MOST = $(tile.places), SPACE = $(tile.space), SETS = (TURNED + WIDE - 1) / WIDE };
    enum { PARTIALS = $partials, BLOCKS = $(tile.blocks), RUN = (BLOCKS + PARTIALS - 1) / PARTIALS };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width),
        .image = GROUPS * TURNED * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_part part =
        $part
    static const conv_cut cut = {$(tile.cut)};
    _Alignas(64) real copy[VEC_LANES * SPACE], panel[MOST * WIDE], sums[TALL * WIDE], rest[COLUMNS];
    conv_item steps[MOST];
    const int tall = outputs_of_tiles(w, PLANES, TALL, PARTIALS * GROUPS * SETS), down = (PLANES + tall - 1) / tall;
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * SETS * down); ga_tile_next(&t);) {
        const int i0 = (int)(t.index % down) * tall, rows = i0 + tall < PLANES ? tall : PLANES - i0;
        const int j0 = (int)(t.index / down % SETS) * WIDE, columns = j0 + WIDE < TURNED ? WIDE : TURNED - j0;
        const int run = (int)(t.index / down / SETS / GROUPS), g = (int)(t.index / down / SETS % GROUPS);
        const int first = run * RUN, end = first + RUN < BLOCKS ? first + RUN : BLOCKS;
        if (first >= end) memset(sums, 0, sizeof sums);
        for (int number = first; number < end; number++) {
            const conv_block block = conv_block_of(&cut, &part, &part, &planes, B, number);
            int count = 0; /* of places */
            for (int n = 0; n < block.images; n++)
                for (int h = block.h.first; h < block.h.first + block.h.places; h++)
                    for (int v = block.w.first; v < block.w.first + block.w.places; v++, count++)
                        steps[count] = (conv_item){n * GROUPS * PLANES * PLACES + h * ACROSS + v, count * COLUMNS};
            const real *image = $(tile.turned) + (((size_t)block.image * GROUPS + g) * TURNED + j0) * PLANE;
            for (int j = 0; j < columns; j += VEC_LANES) {
                conv_copy(copy, SPACE, image + (size_t)j * PLANE, &block, &planes, VEC_LANES, false);
                turn_rows(panel + j / COLUMNS * COLUMNS * count + j % COLUMNS, COLUMNS, copy, SPACE, VEC_LANES, count);
            }
            const real *own = $(tile.lies) + (((size_t)block.image * GROUPS + g) * PLANES + i0) * PLACES;
            for (int j = 0; j < columns; j += COLUMNS)
                for (int i = 0; i < rows; i += ROWS) {
                    for (int p = 0; j == 0 && p < count; p += $(tile.line)) /* asks for the next rows */
                        for (int r = ROWS; r < 2 * ROWS; r++)
                            __builtin_prefetch(own + (size_t)(i + r) * PLACES + steps[p].x, 0, 2);
                    conv_sums s = {.b = panel + j * count, .steps = steps, .count = count, .rounds = 1,
                                   .more = number > first};
                    for (int r = 0; r < ROWS; r++) {
                        s.x[r] = own + (size_t)(i + r < rows ? i + r : i) * PLACES;
                        s.c[r] = i + r < rows ? sums + (i + r) * WIDE + j : rest;
                    }
                    $(tile.strips)
                }
        }
//% if tile.by_outputs then
        turn_rows(y + (((size_t)run * GROUPS + g) * IN + j0) * OUT + i0, OUT, sums, WIDE, rows, columns);
//% else
        real *c = y + (((size_t)run * GROUPS + g) * IN + i0) * OUT + j0;
        for (int i = 0; i < rows; i++) memcpy(c + (size_t)i * OUT, sums + i * WIDE, columns * sizeof *c);
//% end
    }
}
