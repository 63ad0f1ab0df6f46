// conv_lines: convolutions as products in blocks (matrix.c) on matrix registers, over planes copied by lines
// (planes_lines.c).

//@ conv2d_lines(fn, params, source, shape, step, parts, tile, x, type, store, adds)
//% local s = shape
/* $fn: $(s.does), of $type; sums of f32
 * ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), OUT = $(shape.out) };
    enum { IN = $(shape.channels), CHANNELS = $(tile.channels), TALL = $(tile.tall) };
    enum { PLANE = $(shape.height) * $(shape.width), RESULTS = $(shape.rows) * $(shape.columns) };
    enum { IMAGES = $(tile.images), LENGTH = $(tile.length), LINES = $(tile.lines), PLACES = $(tile.places) };
    enum { STEP = $(step.place_w), RUN = $(tile.run), NEIGHBOURS = RUN == 32 && STEP == 1 };
    enum { RUN_LINES = (RUN * STEP * sizeof *y + 63) / 64 };
    enum { WIDTH = LENGTH / IMAGES, BLOCKS = LENGTH / 32, DOWN = (OUT + TALL - 1) / TALL };
    enum { ACROSS = (PLACES + LINES - 1) / LINES * (B / IMAGES) };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    enum { PARTS = $(parts.count) };
    static const conv_part parts[PARTS] = {
        $(parts.rows)
    };
    _Alignas(64) bf16 lines[$(tile.copied) * BLOCKS * CHANNELS / 32 * CONV_BLOCK];
    _Alignas(64) bf16 rows[$(tile.taps) * TALL / 32 * CHANNELS / 32 * CONV_BLOCK];
    _Alignas(64) float sums[CHANNELS < IN ? TALL * LINES * LENGTH : 32 * 32];
    int at[($(tile.across) + 1) * LENGTH], to[LENGTH];
    conv_window windows[($(tile.across) + 2) * LENGTH / 16];
    const $type *packed = NULL;
    matrix_begin();
    for (ga_tiles t = ga_tiles_begin(w, PARTS * GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const conv_part *part = parts + (PARTS > 1 ? t.index / ACROSS / DOWN / GROUPS : 0);
        const int g = (int)(t.index / ACROSS / DOWN % GROUPS), i0 = (int)(t.index / ACROSS % DOWN) * TALL;
        const int tall = at_most(OUT - i0, TALL), image = (int)(t.index % (B / IMAGES)) * IMAGES;
        const int top = (int)(t.index % ACROSS / (B / IMAGES)) * LINES, places = at_most(PLACES - top, LINES);
        const int down = part->h.taps, across = part->w.taps, taps = down * across;
        const int low = planes.tap_h < 0 ? (down - 1) * planes.tap_h : 0;
        const int high = (places - 1) * planes.read_h + (down - 1) * abs(planes.tap_h) + 1;
        const conv_lines read = conv_find_lines(windows, at, &planes, &part->w, IMAGES);
        for (int k = 0; k < LENGTH; k++)
            to[k] = k / WIDTH * GROUPS * OUT * RESULTS + part->w.place + k % WIDTH * STEP;
        for (int c = 0; c < IN; c += CHANNELS) {
            const int channels = taps > 0 ? at_most(IN - c, CHANNELS) : 0;
            const $type *a = weight + part->weight + (((size_t)g * OUT + i0) * IN + c) * taps;
            if (channels > 0 && a != packed) {
                conv_line_weights(rows, a, tall, (size_t)IN * taps, channels, taps);
                packed = a;
            }
            conv_line_pairs(lines, &read, $x + (((size_t)image * GROUPS + g) * IN + c) * PLANE, channels,
                            part->h.from + top * planes.read_h + low, high, across, LENGTH, $(tile.shifts));
            for (int d = 0; d < tall; d += 32)
                for (int p = 0; p < places * BLOCKS; p++) {
                    float *block = CHANNELS < IN ? sums + (d * LINES * BLOCKS + p * 32) * 32 : sums;
                    const bf16 *block_a = rows + d / 32 * (channels / 32) * taps * CONV_BLOCK;
                    const bf16 *place = lines + ((p / BLOCKS * planes.read_h - low) * BLOCKS + p % BLOCKS) * CONV_BLOCK;
                    const int *column = to + p % BLOCKS * 32;
                    $type *result = y + (((size_t)image * GROUPS + g) * OUT + i0 + d) * RESULTS
                        + (part->h.place + (top + p / BLOCKS) * $(step.place_h)) * $(s.columns);
                    if (c + CHANNELS >= IN) for (int k = 0; k < 32; k += RUN) /* they come beside the products */
                        fetch_lines(result + column[k], RESULTS * sizeof *result, 32, 0, RUN_LINES * 32);
                    matrix_load(c > 0 ? block : NULL, 32);
                    for (int q = 0; q < channels / 32; q++, place += across * high * BLOCKS * CONV_BLOCK)
                        for (int v = 0; v < down; v++)
                            for (int h = 0; h < across; h++, block_a += CONV_BLOCK)
                                matrix_terms(block_a, 32,
                                             place + (h * high + v * planes.tap_h) * BLOCKS * CONV_BLOCK, 32);
                    matrix_store(block, 32);
                    if (c + CHANNELS < IN) continue;
                    for (int i = i0 + d; i < i0 + d + 32; i++, block += 32, result += RESULTS) {
                        $type apart[32], *row = NEIGHBOURS ? result + column[0] : apart;
//% if adds then
                        if (!NEIGHBOURS && add) for (int k = 0; k < 32; k += RUN)
                            conv_get(apart + k, result + column[k], RUN, STEP);
//% end
                        $store
                        if (!NEIGHBOURS) for (int k = 0; k < 32; k += RUN)
                            conv_put(result + column[k], apart + k, RUN, STEP);
                    }
                }
        }
    }
    matrix_end();
}

//@ conv2d_dw_lines(fn, params, source, shape, step, part, tile, partials, type)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)), of $type:
 * the lines of all images are cut into runs, $partials in all, each with a sum of its own
 * $source */
static void $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out), TAPS = $(shape.taps) };
    enum { PLANE = $(shape.height) * $(shape.width), HIGH = $(shape.rows), PLACES = HIGH * $(shape.columns) };
    enum { IMAGES = $(tile.images), LENGTH = $(tile.length), LINES = $(tile.lines), BLOCKS = LENGTH / 32 };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), RUN = $(tile.run), PARTIALS = $partials, ALL = B / IMAGES * HIGH };
    enum { DOWN = (IN + TALL - 1) / TALL, ACROSS = (OUT + WIDE - 1) / WIDE };
    static const conv_planes planes = {.height = $(shape.height), .width = $(shape.width), .image = GROUPS * IN * PLANE,
        .read_h = $(step.read_h), .read_w = $(step.read_w), .tap_h = $(step.tap_h), .tap_w = $(step.tap_w)};
    static const conv_planes places = {.height = HIGH, .width = $(shape.columns), .image = GROUPS * OUT * PLACES,
        .read_w = 1};
    static const conv_part part =
        $part
    static const conv_axis whole = {.places = $(shape.columns), .taps = 1};
    _Alignas(64) bf16 rows[$(tile.copied) * BLOCKS * TALL / 32 * CONV_BLOCK];
    _Alignas(64) bf16 panel[LINES * BLOCKS * WIDE / 32 * CONV_BLOCK];
    _Alignas(64) float sums[TAPS * TALL * WIDE];
    int at[($(tile.across) + 1) * LENGTH], from[2 * LENGTH];
    conv_window windows[($(tile.across) + 2) * LENGTH / 16], results[3 * LENGTH / 16];
    const conv_lines of_x = conv_find_lines(windows, at, &planes, &part.w, IMAGES);
    const conv_lines of_dy = conv_find_lines(results, from, &places, &whole, IMAGES);
    matrix_begin();
    for (ga_tiles t = ga_tiles_begin(w, PARTIALS * GROUPS * DOWN * ACROSS); ga_tile_next(&t);) {
        const int j0 = (int)(t.index % ACROSS) * WIDE, wide = at_most(OUT - j0, WIDE);
        const int c0 = (int)(t.index / ACROSS % DOWN) * TALL, tall = at_most(IN - c0, TALL);
        const int g = (int)(t.index / ACROSS / DOWN % GROUPS), run = (int)(t.index / ACROSS / DOWN / GROUPS);
        const int first = run * RUN, end = first + RUN < ALL ? first + RUN : ALL;
        float *c = y + (((size_t)run * GROUPS + g) * IN + c0) * TAPS * OUT + j0;
        if (first >= end) for (int k = 0; k < tall * TAPS; k++) memset(c + (size_t)k * OUT, 0, wide * sizeof *c);
        for (int line = first, count; line < end; line += count) {
            const int image = line / HIGH * IMAGES, top = line % HIGH;
            count = at_most(at_most(end - line, HIGH - top), LINES);
            const int high = (count - 1) * planes.read_h + (part.h.taps - 1) * planes.tap_h + 1;
            conv_line_rows(rows, &of_x, x + (((size_t)image * GROUPS + g) * IN + c0) * PLANE, tall,
                           part.h.from + top * planes.read_h, high, part.w.taps, LENGTH, $(tile.shifts));
            conv_line_columns(panel, &of_dy, dy + (((size_t)image * GROUPS + g) * OUT + j0) * PLACES, wide, top,
                              count, LENGTH);
            for (int k = 0; k < tall / 32 * TAPS; k++) {
                const int tap = k % TAPS, below = tap / part.w.taps * planes.tap_h;
                const int from_line = (k / TAPS * part.w.taps + tap % part.w.taps) * high + below;
                const bf16 *a = rows + from_line * BLOCKS * CONV_BLOCK;
                for (int j = 0; j < wide; j += 32) {
                    const bf16 *b = panel + j / 32 * count * BLOCKS * CONV_BLOCK;
                    float *block = sums + (k * WIDE + j) * 32;
                    matrix_load(line > first ? block : NULL, 32);
                    for (int p = 0; p < count * BLOCKS; p++, b += CONV_BLOCK)
                        matrix_terms(a + (p / BLOCKS * planes.read_h * BLOCKS + p % BLOCKS) * CONV_BLOCK, 32, b, 32);
                    matrix_store(block, 32);
                    float *sum = c + (size_t)(k / TAPS * 32 * TAPS + tap) * OUT + j;
                    if (line + count == end)
                        for (int r = 0; r < 32; r++, sum += TAPS * OUT)
                            memcpy(sum, block + 32 * r, 32 * sizeof *sum);
                }
            }
        }
    }
    matrix_end();
}
