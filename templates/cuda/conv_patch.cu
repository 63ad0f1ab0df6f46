// conv_patch: convolutions of 3 x 3 taps whose taps read one copy of the planes in shared memory.

//@ conv_patch(type, half)
/* -- convolutions of 3 x 3 taps on tensor cores, in tiles of whole lines or images: a block copies the places that its
 * taps read once for all of them, a patch. A patch lies octet by octet, each place by place, so the places of eight
 * neighbours are in different banks at each tap. */
enum { GA_SIDE = 3, GA_TAPS = GA_SIDE * GA_SIDE };

/* The place of a row of a tile, or the row of a place: lines of four places are in the order 0, 2, 1, 3 where the
 * places of eight rows would be in the same banks otherwise. */
GA_DEVICE int conv_patch_row(const conv_patch &patch, int row) {
    return patch.swaps ? (row & ~12) | (row & 4) << 1 | (row & 8) >> 1 : row;
}

/* The places of a tile begin at a whole line. Where the patch has what the first tap reads for the place of a row. */
GA_DEVICE int conv_patch_place(const conv_sizes &s, const conv_share &share, const conv_patch &patch, int row) {
    const int place = conv_patch_row(patch, row), image = place / share.places, at = place % share.places;
    return image * patch.plane.by + at / share.w.places * s.read_h * patch.line.by + at % share.w.places;
}

/* How far behind that the patch has what another tap reads. */
GA_DEVICE int conv_patch_tap(const conv_patch &patch, int tap) {
    return patch.down[tap / GA_SIDE] + patch.right[tap % GA_SIDE];
}

/* A place of a patch whose first line is line `first` of the planes: its image, line and column, and how many octets it
 * is behind the first column of line 0 of the first image. */
struct conv_spot {
    int image, h, w, octets;
};

GA_DEVICE conv_spot conv_spot_of(const conv_sizes &s, const conv_share &share, const conv_patch &patch, int place,
                                 int first) {
    const int at = place % patch.plane, column = at % patch.line;
    conv_spot spot;
    spot.image = place / patch.plane;
    spot.h = first + at / patch.line;
    spot.w = column % patch.section * s.read_w + column / patch.section + share.w.from + patch.left;
    spot.octets = spot.image * s.image + spot.h * s.width + spot.w;
    return spot;
}

/* The line of the planes that is the first one of the patch of a tile from place i0 of all images on. */
GA_DEVICE int conv_patch_first(const conv_sizes &s, const conv_share &share, const conv_patch &patch, int i0) {
    return i0 % share.places / share.w.places * s.read_h + share.h.from + patch.up;
}

/* Adds the products of TALL x WIDE blocks of 16 x 16, 16 terms each. */
template <int TALL, int WIDE>
GA_DEVICE void conv_products_add(float (&sum)[TALL][2 * WIDE][4], const ga_uint32 (&rows)[TALL][4],
                                 const ga_uint32 (&columns)[WIDE][4]) {
#pragma unroll
    for (int u = 0; u < TALL; u++)
#pragma unroll
        for (int v = 0; v < 2 * WIDE; v++)
            ga_multiply(sum[u][v], rows[u], columns[v / 2][v % 2 * 2], columns[v / 2][v % 2 * 2 + 1]);
}

$(conv_patch_product { type = type })

$(conv_patch_gradient { type = type })

//@ conv_patch_product(type)
/* As conv_tensor_product. A slice has two octets of channels at all taps. In shared memory, a row of the weight has a
 * chunk more than that, which nobody reads: so eight rows at one chunk are in different banks. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, typename SEE, typename STORE>
GA_DEVICE void conv_patch_product(ga_byte *ring, const $type *x, const $type *weight, const conv_sizes &s,
                                  const conv_share &share, const conv_patch &patch, int i0, int j0, SEE see,
                                  STORE store) {
    enum { THREADS = DOWN * ACROSS * GA_LANES, TALL = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 16 };
    enum { CHUNKS = 2 * GA_TAPS, ROW = 16 * (CHUNKS + 1), B_BYTES = COLUMNS * ROW };
    enum { EACH = THREADS / COLUMNS }; /* threads for a row of the weight */
    const int stage = B_BYTES + 32 * patch.places, plane = s.height * s.width, terms = s.in_octets * GA_TAPS;
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES, image = i0 / share.places;
    const int wi = warp % DOWN * (ROWS / DOWN), wj = warp / DOWN * (COLUMNS / ACROSS);
    const int b_chunk = threadIdx.x / EACH * ROW + threadIdx.x % EACH * 16;
    /* octets of the places of the patch, -1 outside of the planes; a thread reads those that it writes */
    int *spots = (int *)(ring + 2 * stage);
    for (int p = threadIdx.x; p < patch.places; p += THREADS) {
        const conv_spot spot = conv_spot_of(s, share, patch, p, conv_patch_first(s, share, patch, i0));
        const bool there = (ga_uint32)spot.h < (ga_uint32)s.height && (ga_uint32)spot.w < (ga_uint32)s.width;
        spots[p] = there && spot.image < s.images - image ? spot.octets : -1;
    }
    auto begin = [&](int slice, ga_byte *to) {
        const $type *from = x + ((ga_int64)image * s.image + 2 * slice * plane) * GA_OCTET;
        const $type *row = weight + ((ga_int64)(j0 + threadIdx.x / EACH) * terms + slice * CHUNKS +
                                     threadIdx.x % EACH) * GA_OCTET;
#pragma unroll 1
        for (int p = threadIdx.x; p < patch.places; p += THREADS) {
            const int octets = spots[p], bytes = octets < 0 ? 0 : 16;
            const $type *octet = from + (ga_int64)(octets < 0 ? 0 : octets) * GA_OCTET;
            ga_copy_begin(to + B_BYTES + 16 * p, octet, bytes);
            ga_copy_begin(to + B_BYTES + 16 * (patch.places + p), octet + plane * GA_OCTET, bytes);
        }
#pragma unroll
        for (int n = 0; n < CHUNKS; n += EACH)
            if (n + EACH <= CHUNKS || n + threadIdx.x % EACH < CHUNKS)
                ga_copy_begin(to + b_chunk + 16 * n, row + n * GA_OCTET, 16);
    };
    int at[TALL];
#pragma unroll
    for (int u = 0; u < TALL; u++)
        at[u] = 16 * (lane / 16 * patch.places + conv_patch_place(s, share, patch, wi + u * 16 + lane % 16));
    float sum[TALL][2 * WIDE][4] = {};
    auto product = [&](const ga_byte *slice) {
        const ga_byte *b = slice + (wj + lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * (GA_TAPS * 16);
#pragma unroll
        for (int tap = 0; tap < GA_TAPS; tap++) {
            const ga_byte *a = slice + B_BYTES + 16 * conv_patch_tap(patch, tap);
            ga_uint32 rows[TALL][4], columns[WIDE][4];
#pragma unroll
            for (int v = 0; v < WIDE; v++) ga_matrices(columns[v], b + v * 16 * ROW + tap * 16);
#pragma unroll
            for (int u = 0; u < TALL; u++) ga_matrices(rows[u], a + at[u]);
            conv_products_add<TALL, WIDE>(sum, rows, columns);
        }
    };
    conv_ring<2>(ring, stage, s.in_octets / 2, false, begin, product);
    see(sum);
    conv_tile_store<ROWS, COLUMNS, DOWN, ACROSS>(sum, [&](int row, int column, float (&value)[8]) {
        const int i = i0 + conv_patch_row(patch, row);
        const bool there = i < s.images * share.places.by;
        store(there, there ? i : i0, j0 + column, value);
    });
}

//@ conv_patch_gradient(type)
/* A tile of the gradient of a weight: 64 channels at all taps, from octet c0 on, and 64 outputs, from octet o0 on, by
 * eight warps, each with two octets of channels and four of outputs. Terms are the places from `from` to `to`, PLACES
 * in a slice. Calls store(channel, tap, output, values) for each four neighbours of the tile. */
template <int PLACES, typename STORE>
GA_DEVICE void conv_patch_gradient(ga_byte *ring, const $type *x, const $type *dy, const conv_sizes &s,
                                   const conv_share &share, const conv_patch &patch, int c0, int o0, int from, int to,
                                   STORE store) {
    enum { OCTETS = 8, STAGES = 3 };
    const int stage = 16 * OCTETS * (patch.places + PLACES), plane = s.height * s.width;
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    const int channels = warp % 4 * 2, outputs = warp / 4 * 4; /* octets of the tile that are this warp's */
    int2 *spots = (int2 *)(ring + STAGES * stage); /* octets and lines, far outside for such columns */
    for (int p = threadIdx.x; p < patch.places; p += OCTETS * GA_LANES) {
        const conv_spot spot = conv_spot_of(s, share, patch, p, 0);
        spots[p] = make_int2(spot.octets, (ga_uint32)spot.w < (ga_uint32)s.width ? spot.h : 1 << 30);
    }
    auto begin = [&](int slice, ga_byte *place) {
        const int p0 = from + slice * PLACES, image = p0 / share.places, h = conv_patch_first(s, share, patch, p0);
        const int images = s.images - image, end = images < patch.places ? images * patch.plane.by : patch.places;
        const $type *first = x + ((ga_int64)image * s.image + (c0 + warp) * plane + h * s.width) * GA_OCTET;
#pragma unroll 2
        for (int p = lane; p < patch.places; p += GA_LANES) {
            const int2 spot = spots[p];
            const bool there = p < end && (ga_uint32)(h + spot.y) < (ga_uint32)s.height;
            ga_copy_begin(place + 16 * (warp * patch.places + p),
                          there ? first + (ga_int64)spot.x * GA_OCTET : x, there ? 16 : 0);
        }
#pragma unroll
        for (int n = lane; n < PLACES; n += GA_LANES) {
            const int p = p0 + n, octet = (o0 + warp) * share.places.by + p % share.places;
            const bool there = p < to;
            ga_copy_begin(place + 16 * (OCTETS * patch.places + warp * PLACES + conv_patch_row(patch, n)),
                          there ? dy + ((ga_int64)(p / share.places) * s.outputs + octet) * GA_OCTET : dy,
                          there ? 16 : 0);
        }
    };
    int at[PLACES / 16];
#pragma unroll
    for (int k = 0; k < PLACES / 16; k++)
        at[k] = 16 * ((channels + lane / 8 % 2) * patch.places +
                      conv_patch_place(s, share, patch, k * 16 + lane / 16 * 8 + lane % 8));
    float sum[GA_TAPS][1][4][4] = {};
    auto product = [&](const ga_byte *slice) {
        const ga_byte *b = slice + 16 * (OCTETS * patch.places + (outputs + lane / 16) * PLACES + lane % 16);
#pragma unroll
        for (int k = 0; k < PLACES / 16; k++) {
            ga_uint32 columns[2][4];
#pragma unroll
            for (int v = 0; v < 2; v++) ga_matrices_turned(columns[v], b + 16 * (2 * v * PLACES + k * 16));
#pragma unroll
            for (int tap = 0; tap < GA_TAPS; tap++) {
                ga_uint32 rows[1][4];
                ga_matrices_turned(rows[0], slice + at[k] + 16 * conv_patch_tap(patch, tap));
                conv_products_add<1, 2>(sum[tap], rows, columns);
            }
        }
    };
    __syncthreads(); /* all spots are there */
    const int slices = to > from ? (to - from + PLACES - 1) / PLACES : 0;
    conv_ring<STAGES>(ring, stage, slices, warp >= OCTETS / 2, begin, product);
    const bool lower = lane % 2; /* of two lanes one has four neighbours of the upper row, the other one of the lower */
#pragma unroll
    for (int k = 0; k < GA_TAPS * 4; k++) {
        const float (&own)[4] = sum[k / 4][0][k % 4];
        const float left = __shfl_xor_sync(GA_ALL_LANES, lower ? own[0] : own[2], 1);
        const float right = __shfl_xor_sync(GA_ALL_LANES, lower ? own[1] : own[3], 1);
        store(channels * GA_OCTET + lane / 4 + lower * 8, k / 4, (outputs + k % 4) * GA_OCTET + lane % 4 / 2 * 4,
              lower ? make_float4(left, right, own[2], own[3]) : make_float4(own[0], own[1], left, right));
    }
}
