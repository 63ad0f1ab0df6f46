// conv: a convolution is a product (matmul.cu) of weights and the elements that taps read in planes (planes.cu).

//@ conv2d(fn, params, source, threads, shape, step, part_choice, tile, x, weight, bias, store)
//% local s = shape
/* $fn: $(s.does)
 * ($(s.B), $(s.groups * s.out), $(s.rows), $(s.columns)) from ($(s.B), $(s.groups * s.channels), $(s.height), $(s.width))
 * $source */
GA_KERNEL($threads, $(tile.blocks)) $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
    enum { WIDTH = $(shape.columns), RESULTS = $(shape.rows) * WIDTH };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), DEPTH = $(tile.depth) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DOWN_STEP = ROWS / TALL, ACROSS_STEP = COLUMNS / WIDE };
    enum { DOWN = (OUT + ROWS - 1) / ROWS, THREADS = $threads };
    __shared__ real a_tile[DEPTH][ROWS + 1], b_tile[DEPTH][COLUMNS + 1];
    const conv_planes planes = {$(shape.height), $(shape.width), GROUPS * IN,
                                $(step.read_h), $(step.read_w), $(step.tap_h), $(step.tap_w)};
    $part_choice
    const int tile = blockIdx.x - part.tiles, g = tile / DOWN % GROUPS, i0 = tile % DOWN * ROWS;
    const int taps = part.h.taps * part.w.taps, K = IN * taps, in_image = part.h.places * part.w.places;
    const ga_int64 j0 = (ga_int64)(tile / DOWN / GROUPS) * COLUMNS, end = (ga_int64)B * in_image;
    const int down = threadIdx.x / ACROSS_STEP, across = threadIdx.x % ACROSS_STEP;
    real sum[TALL][WIDE] = {};
    for (int k0 = 0; k0 < K; k0 += DEPTH) {
        for (int s = threadIdx.x; s < ROWS * DEPTH; s += THREADS) {
            const int row = s / DEPTH, deep = s % DEPTH, i = i0 + row, k = k0 + deep;
            a_tile[deep][row] = i < OUT && k < K ? $weight : (real)0;
        }
        for (int s = threadIdx.x; s < COLUMNS * DEPTH; s += THREADS) {
            const int deep = s / COLUMNS, column = s % COLUMNS, k = k0 + deep;
            const ga_int64 j = j0 + column;
            b_tile[deep][column] = k < K && j < end
                ? conv_read($x, planes, part, j, g * IN + k / taps, k % taps) : (real)0;
        }
        __syncthreads();
        ga_tile_product(sum, a_tile, b_tile, down, across);
        __syncthreads();
    }
    for (int v = 0; v < WIDE; v++) {
        const ga_int64 j = j0 + across + v * ACROSS_STEP;
        if (j >= end) continue;
        const int place = (int)(j % in_image);
        const int h = part.h.place + place / part.w.places * $(step.place_h);
        const int w = part.w.place + place % part.w.places * $(step.place_w);
        for (int u = 0; u < TALL; u++) {
            const int i = i0 + down + u * DOWN_STEP;
            if (i >= OUT) continue;
            const ga_int64 at = ((j / in_image * GROUPS + g) * OUT + i) * RESULTS + h * WIDTH + w;
            const real value = sum[u][v]$bias;
            $store
        }
    }
}

//@ share_of(shares)
conv_share share = share_1;
//% for number = 2, shares do
if (blockIdx.x >= share_$(number).blocks) share = share_$number;
//% end

//@ conv2d_tensor(fn, params, source, threads, tile, x, y, behind, moments, shares)
/* $fn: a convolution, or the gradient of its input, on tensor cores
//% if moments then
 * averages of the outputs in tiles of places, and sums of squared distances, as (tile, group of rows, 2, output)
//% end
 * $source */
GA_KERNEL($threads, $(tile.fit)) $fn($params) {
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns) };
    extern __shared__ __align__(128) ga_byte ring[];
//% if shares > 1 then
    $(share_of { shares = shares })
//% end
    const int tile = blockIdx.x - share.blocks, j0 = tile % s.across * COLUMNS, tiles = tile / s.across;
    const int g = tiles % s.groups, number = tiles / s.groups;
    const $(x.type) *of_group = weight + share.weight + (ga_int64)g * s.out * s.in_octets * share.taps.by * GA_OCTET;
    $(tile.product)<ROWS, COLUMNS, $(tile.down), $(tile.across)>(
        ring, $(x.name) + (ga_int64)g * s.in_octets * s.height * s.width * GA_OCTET, of_group, $(tile.sizes),
//% if moments then
        number * ROWS, j0,
        [&](const float (&sum)[ROWS / $(tile.down) / 16][COLUMNS / $(tile.across) / 8][4]) {
            const int row = number % tiles_of_group * row_groups + number / tiles_of_group, all = s.groups.by * s.out;
            conv_tile_moments<ROWS, COLUMNS, $(tile.down), $(tile.across)>(
                (float *)ring, sum, moments + (ga_int64)row * (2 * all) + g * s.out + j0, s.out - j0, all);
        },
//% else
        number * ROWS, j0, [](const float (&)[ROWS / $(tile.down) / 16][COLUMNS / $(tile.across) / 8][4]) {},
//% end
        [&](bool there, int i, int j, float (&sums)[8]) {
            const int image = i / share.places, place = i % share.places;
            const int h = share.h.place + place / share.w.places * s.place_h;
            const int w = share.w.place + place % share.w.places * s.place_w;
            const int octet = (g * s.out_octets + j / GA_OCTET) * s.result + h * s.row + w;
            const ga_int64 first = ((ga_int64)image * s.outputs + octet) * GA_OCTET;
//% if y.bias then
#pragma unroll
            for (int k = 0; k < 8; k++) sums[k] += j + k < s.out ? bias[g * s.out + j + k] : 0;
//% end
//% if behind then
            enum { FEW = 8 };
            $(behind.reads)
//% if behind.both then
            if (there) ga_put8<true>(y + first, sums, 8);
//% end
#pragma unroll
            for (int k = 0; k < FEW; k++) {
                const real value = sums[k];
                $(behind.lines)
            }
            if (there) ga_put8<true>($(behind.to) + first, sums, 8);
//% else
//% if y.add then
            if (add && there) ga_add8<true>(sums, y + first, 8);
//% end
            if (there) ga_put8<true>(y + first, sums, 8);
//% end
        });
}

//@ octets(fn, params, source, threads, shape, type, adds, x, store)
/* $fn: $(shape.groups) groups of $(shape.channels) planes of $(shape.places) places by octets of channels;
 * zeros fill up the last octet of a group
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IN = $(shape.channels), OCTETS = (IN + 7) / 8, PLACES = $(shape.places) };
    const ga_int64 n = (ga_int64)$(shape.B) * $(shape.groups) * OCTETS * PLACES;
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        const int place = (int)(i % PLACES), first = (int)(i / PLACES % OCTETS) * 8;
        const ga_int64 at = i / PLACES / OCTETS;
        ga_few<$type, 8> to;
//% if adds then
        if (add) to = ga_read<8>(y + i * 8);
//% end
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int c = first + e;
            const real value = c < IN ? $x : (real)0;
            $store
        }
        ga_write(y + i * 8, to);
    }
}

//@ planes(fn, params, source, threads, shape, store)
/* $fn: $(shape.groups) groups of $(shape.channels) planes of $(shape.places) places from octets of channels
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { OUT = $(shape.channels), OCTETS = (OUT + 7) / 8, PLACES = $(shape.places) };
    const ga_int64 n = (ga_int64)$(shape.B) * $(shape.groups) * OCTETS * PLACES;
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        const int place = (int)(i % PLACES), first = (int)(i / PLACES % OCTETS) * 8;
        const ga_int64 at = i / PLACES / OCTETS;
        const auto octet = ga_read<8>(x + i * 8);
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int c = first + e;
            const real value = ga_get(octet.at[e]);
            if (c >= OUT) continue;
            $store
        }
    }
}

//@ conv2d_turned(fn, params, source, threads, shape, step, part_choice, blocks_each)
/* $fn: weights ($(shape.groups * shape.out), $(shape.channels), $(shape.window_h), $(shape.window_w))
 * as (part, group, in, out, tap): for each part of the places of an input, the taps that reach it
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { IN = $(shape.channels), OUT = $(shape.out), GROUPS = $(shape.groups) };
    enum { HEIGHT = $(shape.window_h), WIDTH = $(shape.window_w) };
    $part_choice
    const int taps = part.h.taps * part.w.taps;
    const ga_int64 n = (ga_int64)GROUPS * IN * OUT * taps;
    const ga_int64 first = (ga_int64)(blockIdx.x - part.tiles) * $threads + threadIdx.x;
    for (ga_int64 k = first; k < n; k += $blocks_each * $threads) {
        const int tap = (int)(k % taps), o = (int)(k / taps % OUT), c = (int)(k / taps / OUT % IN);
        const int h = part.h.tap + tap / part.w.taps * $(step.tap_h);
        const int w = part.w.tap + tap % part.w.taps * $(step.tap_w);
        const ga_int64 from = (k / taps / OUT / IN * OUT + o) * IN + c;
        y[part.weight + k] = weight[(from * HEIGHT + h) * WIDTH + w];
    }
}

//@ conv2d_octets(fn, params, source, threads, from, value, store, shares)
/* $fn: weights as (share of the places, group, rows, octets of channels, tap, 8)
 * $source */
GA_KERNEL($threads) $fn($params) {
//% if shares > 1 then
    $(share_of { shares = shares })
//% end
    const int n = s.groups.by * s.rows.by * s.octets.by * share.taps.by * 8;
#pragma unroll 1
    for (int k = (blockIdx.x - share.blocks) * $threads + threadIdx.x; k < n; k += s.blocks * $threads) {
        const int octet = k / 8, at = octet / share.taps, tap = octet % share.taps;
        const int h = share.h.tap + tap / share.w.taps * s.tap_h, w = share.w.tap + tap % share.w.taps * s.tap_w;
        const int c = at % s.octets * 8 + k % 8, row = at / s.octets, g = row / s.rows, i = row % s.rows;
        const ga_int64 from = $from;
        const real value = c < s.channels ? $value : (real)0;
        y[share.weight + k] = $store;
    }
}

//@ conv2d_dw(fn, params, source, threads, shape, step, part_choice, tile, partials, d)
/* $fn: the gradient of weights ($(shape.groups * shape.out), $(shape.channels), $(shape.taps) taps)
 * as ($partials, $(shape.groups), $(shape.channels) x $(shape.taps), $(shape.out)):
 * the places of all images are cut into runs, $partials in all, each with a sum of its own
 * $source */
GA_KERNEL($threads) $fn($params) {
    enum { B = $(shape.B), GROUPS = $(shape.groups), IN = $(shape.channels), OUT = $(shape.out) };
    enum { TAPS = $(shape.taps), K = IN * TAPS, PLACES = $(shape.rows) * $(shape.columns) };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), DEPTH = $(tile.depth) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DOWN_STEP = ROWS / TALL, ACROSS_STEP = COLUMNS / WIDE };
    enum { DOWN = (K + ROWS - 1) / ROWS, ACROSS = (OUT + COLUMNS - 1) / COLUMNS, THREADS = $threads };
    __shared__ real a_tile[DEPTH][ROWS + 1], b_tile[DEPTH][COLUMNS + 1];
    const conv_planes planes = {$(shape.height), $(shape.width), GROUPS * IN,
                                $(step.read_h), $(step.read_w), $(step.tap_h), $(step.tap_w)};
    $part_choice
    const ga_int64 all = (ga_int64)B * PLACES, run = (all + $partials - 1) / $partials;
    const int i0 = blockIdx.x % DOWN * ROWS, j0 = blockIdx.x / DOWN % ACROSS * COLUMNS;
    const int g = blockIdx.x / DOWN / ACROSS % GROUPS, number = blockIdx.x / DOWN / ACROSS / GROUPS;
    const ga_int64 from = number * run, to = from + run < all ? from + run : all;
    const int down = threadIdx.x / ACROSS_STEP, across = threadIdx.x % ACROSS_STEP;
    real sum[TALL][WIDE] = {};
    for (ga_int64 p0 = from; p0 < to; p0 += DEPTH) {
        for (int s = threadIdx.x; s < ROWS * DEPTH; s += THREADS) {
            const int deep = s % DEPTH, i = i0 + s / DEPTH;
            const ga_int64 p = p0 + deep;
            a_tile[deep][s / DEPTH] = i < K && p < to
                ? conv_read(x, planes, part, p, g * IN + i / TAPS, i % TAPS) : (real)0;
        }
        for (int s = threadIdx.x; s < COLUMNS * DEPTH; s += THREADS) {
            const int deep = s % DEPTH, j = j0 + s / DEPTH;
            const ga_int64 p = p0 + deep;
            b_tile[deep][s / DEPTH] = j < OUT && p < to
                ? $d : (real)0;
        }
        __syncthreads();
        ga_tile_product(sum, a_tile, b_tile, down, across);
        __syncthreads();
    }
    for (int u = 0; u < TALL; u++) {
        for (int v = 0; v < WIDE; v++) {
            const int i = i0 + down + u * DOWN_STEP, j = j0 + across + v * ACROSS_STEP;
            if (i < K && j < OUT) y[(((ga_int64)number * GROUPS + g) * K + i) * OUT + j] = sum[u][v];
        }
    }
}

//@ conv2d_dw_tensor(fn, params, source, threads, tile, whole)
/* $fn: the gradient of weights as (run, group, channel x tap, output), on tensor cores:
 * the places of all images are cut into runs, each with a sum of its own
 * $source */
GA_KERNEL($threads, $(tile.fit)) $fn($params) {
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns) };
    extern __shared__ __align__(128) ga_byte ring[];
    const int q0 = blockIdx.x % down * (ROWS / GA_OCTET), tiles = blockIdx.x / down, j0 = tiles % s.across * COLUMNS;
    const int runs = tiles / s.across, g = runs % s.groups, number = runs / s.groups;
    const int all = s.images * share.places.by, from = number * run, to = all - from < run ? all : from + run;
    conv_tensor_gradient<ROWS, COLUMNS, $(tile.down), $(tile.across)>(
        ring, x + (ga_int64)g * s.in_octets * s.height * s.width * GA_OCTET,
        dy + (ga_int64)g * s.out_octets * s.result * GA_OCTET, s, share, q0, j0 / GA_OCTET, from, to,
        [&](int i, int j, float (&value)[8]) {
            const int q = i / GA_OCTET, c = q / share.taps * GA_OCTET + i % GA_OCTET;
            if (c >= s.in) return;
            const ga_int64 of_group = (ga_int64)number * s.groups.by + g;
            const ga_int64 row = of_group * (s.in * share.taps.by) + c * share.taps.by + q % share.taps;
            ga_put8<$whole>(y + row * s.out + j, value, s.out - j);
        });
}

//@ conv2d_dw_patch(fn, params, source, threads, tile)
/* $fn: the gradient of weights as (run, group, channel x tap, output), on tensor cores, in tiles of 64 channels
 * and 64 outputs: the places of all images are cut into runs, each with a sum of its own
 * $source */
GA_KERNEL($threads) $fn($params) {
    extern __shared__ __align__(128) ga_byte ring[];
    const int q0 = blockIdx.x % down * 8, tiles = blockIdx.x / down, o0 = tiles % s.across * 8;
    const int runs = tiles / s.across, g = runs % s.groups, number = runs / s.groups;
    const int all = s.images * share.places.by, from = number * run, to = all - from < run ? all : from + run;
    real *of_group = y + ((ga_int64)number * s.groups.by + g) * (s.in * GA_TAPS) * s.out;
    conv_patch_gradient<$(tile.slice)>(
        ring, x + (ga_int64)g * s.in_octets * s.height * s.width * GA_OCTET,
        dy + (ga_int64)g * s.out_octets * s.result * GA_OCTET, s, share, patch, q0, o0, from, to,
        [&](int c, int tap, int o, float4 four) {
            const int row = (q0 * GA_OCTET + c) * GA_TAPS + tap;
            *(float4 *)(of_group + (ga_int64)row * s.out + o0 * GA_OCTET + o) = four;
        });
}

//@ conv2d_dw_sum(fn, params, source, threads, members)
//% for _, m in ipairs(members) do
//% if m.partials > 1 then
/* $fn: the sum of $(m.partials) gradients of weights ($(m.groups * m.out), $(m.terms)), in the order of the weights */
//% else
/* $fn: gradients of weights ($(m.groups * m.out), $(m.terms)), in the order of the weights */
//% end
//% end
/* $source */
GA_KERNEL($threads, 4) $fn($params) {
    __shared__ real tile[32][33];
    conv_weights w;
//% for _, m in ipairs(members) do
    if (blockIdx.x >= $(m.first))
        w = {$(m.y), $(m.partial), $(m.partials), $(m.groups), $(m.terms), $(m.out), $(m.first), $(m.add)};
//% end
    conv_weight_sum<$threads>(w, tile);
}
