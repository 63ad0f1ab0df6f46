// conv_single: convolutions of one tap, and of a few channels, on vectors. The places of a block are copied for each
// channel and tap, so that they are the columns of a product of matrices, whose rows are outputs and whose terms are
// channels, each with its taps, added upwards.

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
//% if tile.rows_of_weights then
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
//% if not tile.panel then
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
                    const strip s = {depth, a, 1, PANEL, copy + p, PLACES,
                                     k > 0 ? c : NULL, $(tile.row), c, $(tile.row)};
//% else
                    const real *a = rows + (i - i0) * DEPTH;
                    const strip s = {depth, a, 1, ROWS, copy + p, PLACES,
                                     k > 0 ? c : NULL, $(tile.row), c, $(tile.row)};
//% end
                    $(tile.strips)
                }
            }
        }
//% if not tile.direct then
        $(single_results { bias = bias, store = store })
//% end
    }
}

//@ single_results(bias, store)
//% -- In conv2d_single: sums of a tile go to the planes of the results.
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

//@ tap_copies(tile)
//% -- In conv2d_single: copies the places of a block for each tap.
memset(copy, 0, sizeof copy); /* what taps read outside the planes */
for (int tap = 0; tap < TAPS; tap++) {
    conv_block read = block;
    read.h.from += tap / $(tile.taps.w) * planes.tap_h;
    read.w.from += tap % $(tile.taps.w) * planes.tap_w;
    conv_copy(copy + tap * PLACES, TAPS * PLACES, image, &read, &planes, IN, false);
}
