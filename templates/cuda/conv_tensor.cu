// conv_tensor: the functions that the kernels of convolutions on tensor cores call for their slices.

//@ conv_tensor(type, half)
/* -- convolutions on tensor cores: products whose slices are gathered from planes. An octet is what 8 channels have at
 * one tap of a place, a chunk of 16 bytes in a slice. The terms of a sum are octets: by channels, then by taps. The
 * elements of an octet are a plane apart in memory: threads read them for neighbouring places, hold them while a slice
 * is multiplied, and put them into the next one. */
enum { GA_OCTET = 8 };

/* A place: the element that its first tap reads of channel 0, and where that is in the plane. */
struct conv_place {
    ga_int64 at;
    int h, w;
};

/* Place number `place` of a part in an image; with `there` false, a place whose taps are all outside of the plane. */
GA_DEVICE conv_place conv_place_of(conv_planes p, const conv_part &part, int image, int place, bool there) {
    conv_place to;
    to.h = place / part.w.places * p.read_h + part.h.from;
    to.w = place % part.w.places * p.read_w + part.w.from;
    to.at = ((ga_int64)image * p.channels * p.height + to.h) * p.width + to.w;
    if (!there) to.h = 1 << 30;
    return to;
}

/* Begins to read n of the 8 channels that are `apart` from each other; zeros for the others. */
GA_DEVICE void conv_channels(unsigned short (&octet)[GA_OCTET], const $type *from, int apart, int n) {
#pragma unroll
    for (int c = 0; c < GA_OCTET; c++) octet[c] = c < n ? from[(ga_int64)c * apart].bits : 0;
}

/* Begins to read octet q of IN channels for a place. */
template <int IN>
GA_DEVICE void conv_octet(unsigned short (&octet)[GA_OCTET], const $type *x, conv_planes p, const conv_part &part,
                          conv_place place, int q) {
    const int taps = part.h.taps * part.w.taps, tap = q % taps, c = q / taps * GA_OCTET, apart = p.height * p.width;
    const int down = tap / part.w.taps * p.tap_h, right = tap % part.w.taps * p.tap_w;
    const bool inside = (ga_uint32)(place.h + down) < (ga_uint32)p.height &&
                        (ga_uint32)(place.w + right) < (ga_uint32)p.width && c < IN;
    const $type *from = x + place.at + (ga_int64)c * apart + down * p.width + right;
    conv_channels(octet, from, apart, !inside ? 0 : IN % GA_OCTET == 0 ? GA_OCTET : IN - c);
}

GA_DEVICE void conv_octet_put(ga_byte *chunk, const unsigned short (&octet)[GA_OCTET]) {
    ga_uint32 pair[GA_OCTET / 2];
#pragma unroll
    for (int c = 0; c < GA_OCTET / 2; c++) pair[c] = octet[2 * c] | (ga_uint32)octet[2 * c + 1] << 16;
    *(uint4 *)chunk = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

/* The chunk of octet q of a term in a turned slice. */
GA_DEVICE ga_byte *conv_turned_chunk(ga_byte *slice, int term, int q) {
    return slice + q / 8 * (128 * GA_DEPTH) + ga_chunk<true>(term, q % 8);
}

$(conv_ring { })

$(conv_product { type = type })

$(conv_gradient { type = type })

//@ conv_ring()
/* Adds the products of all slices to the sums of a warp: TALL x WIDE blocks of 16 x 16 from (wi, wj) of the tile on.
 * begin(slice, place) begins to fill a slice's place of the ring, `stage` bytes that begin with those of A; end puts
 * what threads hold. Behind it the ring is free. */
template <int TALL, int WIDE, bool A_TURNED, bool B_TURNED, typename BEGIN, typename END>
GA_DEVICE void conv_ring_product(float (&sum)[TALL][2 * WIDE][4], ga_byte *ring, int stage, int a_bytes, int slices,
                                 int wi, int wj, BEGIN begin, END end) {
    auto place_of = [&](int slice) { return ring + slice % GA_STAGES * stage; };
    for (int s = 0; s < GA_STAGES - 1; s++) {
        if (s < slices) begin(s, place_of(s)), end(place_of(s));
        ga_copy_commit();
    }
    for (int s = 0; s < slices; s++) {
        const int next = s + GA_STAGES - 1;
        ga_copy_wait<GA_STAGES - 2>();
        __syncthreads(); /* all have slice s, and none needs the place of slice s - 1 any more */
        if (next < slices) begin(next, place_of(next));
        ga_copy_commit();
        const ga_byte *a = place_of(s);
        ga_slice_product<TALL, WIDE, A_TURNED, B_TURNED>(sum, a, a + a_bytes, wi, wj, threadIdx.x % GA_LANES);
        if (next < slices) end(place_of(next));
    }
    __syncthreads();
}

/* Calls store(i, j, value) for each eight neighbours of the tile of a block of DOWN x ACROSS warps. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int TALL, int WIDE2, typename STORE>
GA_DEVICE void conv_tile_store(ga_byte *ring, const float (&sum)[TALL][WIDE2][4], STORE store) {
    enum { WIDTH = COLUMNS / ACROSS };
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    float *scratch = (float *)ring + warp * (16 * (WIDTH + 8));
#pragma unroll
    for (int u = 0; u < TALL; u++)
        ga_strip_store<WIDTH>(scratch, sum[u], warp % DOWN * (ROWS / DOWN) + u * 16, warp / DOWN * WIDTH, lane, store);
}

//@ conv_product(type)
/* A tile of a convolution: rows are OUT outputs from i0 on, columns are places of a part from j0 on. weight: of the
 * part and group, rows of octets; x: the first channel of the group. Calls store(i, j, value) for each eight places of
 * an output inside of the tile. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int IN, int OUT, typename STORE>
GA_DEVICE void conv_tensor_product(ga_byte *ring, const $type *x, const $type *weight, conv_planes planes,
                                   const conv_part &part, int i0, ga_int64 j0, ga_int64 places, STORE store) {
    enum { THREADS = DOWN * ACROSS * GA_LANES, TALL = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 16 };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, STAGE = (ROWS + COLUMNS) * GA_DEPTH * 2, CHUNKS = GA_DEPTH / GA_OCTET };
    enum { HELD = COLUMNS * CHUNKS / THREADS };
    const int in_image = part.h.places * part.w.places, column = threadIdx.x % COLUMNS, warp = threadIdx.x / GA_LANES;
    const int terms = (IN + GA_OCTET - 1) / GA_OCTET * part.h.taps * part.w.taps * GA_OCTET;
    const ga_int64 j = j0 + column;
    const conv_place place = conv_place_of(planes, part, (int)(j / in_image), (int)(j % in_image), j < places);
    unsigned short octets[HELD][GA_OCTET], none[1];
    auto chunk_of = [&](int n) { return n * (THREADS / COLUMNS) + (int)threadIdx.x / COLUMNS; };
    auto begin = [&](int slice, ga_byte *to) {
        ga_slice_begin<ROWS, THREADS, false, false>(to, none, weight, terms, i0, OUT, slice * GA_DEPTH, terms);
#pragma unroll
        for (int n = 0; n < HELD; n++)
            conv_octet<IN>(octets[n], x, planes, part, place, slice * CHUNKS + chunk_of(n));
    };
    auto end = [&](ga_byte *to) {
#pragma unroll
        for (int n = 0; n < HELD; n++) conv_octet_put(to + A_BYTES + ga_chunk<false>(column, chunk_of(n)), octets[n]);
    };
    float sum[TALL][2 * WIDE][4] = {};
    conv_ring_product<TALL, WIDE, false, false>(sum, ring, STAGE, A_BYTES, (terms + GA_DEPTH - 1) / GA_DEPTH,
                                                warp % DOWN * (ROWS / DOWN), warp / DOWN * (COLUMNS / ACROSS), begin,
                                                end);
    conv_tile_store<ROWS, COLUMNS, DOWN, ACROSS>(ring, sum, [&](int i, int column, float (&value)[8]) {
        if (i0 + i < OUT && j0 + column < places) store(i0 + i, j0 + column, value);
    });
}

//@ conv_gradient(type)
/* A tile of the gradient of a weight: rows are octets from q0 on, columns are OUT outputs from j0 on, terms are the
 * places from `from` to `to` of all images, IN_IMAGE of each. x, dy: the first channel and output of the group, of
 * `outputs` in an image. WHOLE: eight neighbouring places from a multiple of 8 on are of one image. Calls store(i, j,
 * value) for each eight outputs of a row of the tile. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int IN, int OUT, int IN_IMAGE, bool WHOLE, typename STORE>
GA_DEVICE void conv_tensor_gradient(ga_byte *ring, const $type *x, const $type *dy, int outputs, conv_planes planes,
                                    const conv_part &part, int q0, int j0, int from, int to, STORE store) {
    enum { WARPS = DOWN * ACROSS, THREADS = WARPS * GA_LANES, TALL = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 16 };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, STAGE = (ROWS + COLUMNS) * GA_DEPTH * 2, CHUNKS = GA_DEPTH / GA_OCTET };
    enum { HELD = ROWS / GA_OCTET / WARPS, DY_HELD = COLUMNS / GA_OCTET / WARPS };
    static_assert(GA_DEPTH == GA_LANES, "a lane has a place of a slice");
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    unsigned short octets[HELD][GA_OCTET], dy_octets[WHOLE ? 1 : DY_HELD][GA_OCTET];
    auto begin = [&](int slice, ga_byte *stage) {
        const int first = from + slice * GA_DEPTH, p = first + lane;
        const conv_place place = conv_place_of(planes, part, p / IN_IMAGE, p % IN_IMAGE, p < to);
#pragma unroll
        for (int n = 0; n < HELD; n++) conv_octet<IN>(octets[n], x, planes, part, place, q0 + n * WARPS + warp);
#pragma unroll
        for (int n = 0; n < COLUMNS * CHUNKS / THREADS && WHOLE; n++) {
            const int s = n * THREADS + threadIdx.x, j = j0 + s / CHUNKS, p = first + s % CHUNKS * 8;
            const bool there = j < OUT && p < to;
            const $type *at = dy + ((ga_int64)(p / IN_IMAGE) * outputs + j) * IN_IMAGE + p % IN_IMAGE;
            ga_copy_begin(stage + A_BYTES + ga_chunk<false>(s / CHUNKS, s % CHUNKS), there ? at : dy, there);
        }
#pragma unroll
        for (int n = 0; n < DY_HELD && !WHOLE; n++) {
            const int j = j0 + (n * WARPS + warp) * GA_OCTET;
            const $type *at = dy + ((ga_int64)(p / IN_IMAGE) * outputs + j) * IN_IMAGE + p % IN_IMAGE;
            conv_channels(dy_octets[n], at, IN_IMAGE, p < to ? OUT - j : 0);
        }
    };
    auto end = [&](ga_byte *stage) {
#pragma unroll
        for (int n = 0; n < HELD; n++) conv_octet_put(conv_turned_chunk(stage, lane, n * WARPS + warp), octets[n]);
#pragma unroll
        for (int n = 0; n < DY_HELD && !WHOLE; n++)
            conv_octet_put(conv_turned_chunk(stage + A_BYTES, lane, n * WARPS + warp), dy_octets[n]);
    };
    float sum[TALL][2 * WIDE][4] = {};
    conv_ring_product<TALL, WIDE, true, !WHOLE>(sum, ring, STAGE, A_BYTES, to > from ? (to - from + GA_DEPTH - 1) /
                                                GA_DEPTH : 0, warp % DOWN * (ROWS / DOWN),
                                                warp / DOWN * (COLUMNS / ACROSS), begin, end);
    conv_tile_store<ROWS, COLUMNS, DOWN, ACROSS>(ring, sum, [&](int i, int column, float (&value)[8]) {
        if (j0 + column < OUT) store(q0 * GA_OCTET + i, j0 + column, value);
    });
}
