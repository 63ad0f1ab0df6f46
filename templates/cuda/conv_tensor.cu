// conv_tensor: the functions that the kernels of convolutions on tensor cores call for their slices.

//@ conv_tensor(type, half)
/* -- convolutions on tensor cores: products whose slices are gathered from planes that lie by octets. An octet is what
 * 8 channels have at a place, 16 bytes: a chunk of a slice, which a thread copies for a place at one tap. The terms of a
 * sum are octets: by channels, then by taps. Neighbouring threads copy the octets of neighbouring places. */
enum { GA_OCTET = 8 };

/* A place: the octet of channel 0 that its first tap reads, and where that is in the plane. */
struct conv_place {
    const $type *octet;
    int h, w;
};

/* A term of a sum, an octet of channels at a tap: how far from a place's first octet, and how far in the plane; whether
 * there is such a channel. */
struct conv_term {
    int octets, down, right;
    bool there;
};

/* Place number `place` of a share in an image; with `there` false, a place whose taps are all outside of the plane. */
GA_DEVICE conv_place conv_place_of(const $type *x, const conv_sizes &s, const conv_share &share, int image, int place,
                                   bool there) {
    conv_place to;
    to.h = place / share.w.places * s.read_h + share.h.from;
    to.w = place % share.w.places * s.read_w + share.w.from;
    to.octet = x + ((ga_int64)image * s.image + to.h * s.width + to.w) * GA_OCTET;
    if (!there) to.h = 1 << 30;
    return to;
}

/* Term number q. */
GA_DEVICE conv_term conv_term_of(const conv_sizes &s, const conv_share &share, int q) {
    const int c = q / share.taps, tap = q - c * share.taps.by, row = tap / share.w.taps;
    conv_term term;
    term.down = row * s.tap_h;
    term.right = (tap - row * share.w.taps.by) * s.tap_w;
    term.octets = (c * s.height + term.down) * s.width + term.right;
    term.there = c < s.in_octets;
    return term;
}

/* Begins to copy what a place has for a term, zeros outside of the plane. */
GA_DEVICE void conv_octet_begin(ga_byte *chunk, const $type *x, const conv_sizes &s, conv_place place, conv_term term) {
    const bool there = term.there && (ga_uint32)(place.h + term.down) < (ga_uint32)s.height &&
                       (ga_uint32)(place.w + term.right) < (ga_uint32)s.width;
    ga_copy_begin(chunk, there ? place.octet + (ga_int64)term.octets * GA_OCTET : x, there ? 16 : 0);
}

/* As ga_read, of what this thread alone writes, if any, behind its read: so reads may come ahead of all writes. With
 * `there` false it reads `other`, which nobody writes: the result is of no use, but no read waits for a branch. */
template <int N, typename T>
GA_DEVICE ga_few<T, N> conv_read_ahead(bool there, const void *other, const T *from) {
    static_assert(N * sizeof(T) % 16 == 0, "16 bytes at a time");
    const uint4 *at = there ? (const uint4 *)from : (const uint4 *)other;
    ga_few<T, N> few;
#pragma unroll
    for (int k = 0; k < (int)(N * sizeof(T) / 16); k++) few.wide[k] = __ldg(at + k);
    return few;
}

/* The chunk of octet q of a term in a turned slice. */
GA_DEVICE ga_byte *conv_turned_chunk(ga_byte *slice, int term, int q) {
    return slice + q / 8 * (128 * GA_DEPTH) + ga_chunk<true>(term, q % 8);
}

$(conv_ring { })

$(conv_results { })

$(conv_product { type = type })

$(conv_gradient { type = type })

//@ conv_ring()
/* Slices go round in a ring of STAGES places of `stage` bytes: begin(slice, place) begins to fill a place,
 * product(place) adds the products of a slice. Of three stages or more, warps that are `late` begin behind their
 * products, so that others multiply while they do. */
template <int STAGES, typename BEGIN, typename PRODUCT>
GA_DEVICE void conv_ring(ga_byte *ring, int stage, int slices, bool late, BEGIN begin, PRODUCT product) {
    auto place_of = [&](int slice) { return ring + slice % STAGES * stage; };
#pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < slices) begin(s, place_of(s));
        ga_copy_commit();
    }
#pragma unroll 1
    for (int s = 0; s < slices; s++) {
        const int next = s + STAGES - 1;
        ga_copy_wait<STAGES - 2>();
        __syncthreads(); /* all have slice s, and none needs the place of slice s - 1 any more */
        if (next < slices && !late) begin(next, place_of(next));
        product(place_of(s));
        if (next < slices && late) begin(next, place_of(next));
        ga_copy_commit();
    }
}

/* The same with slices of GA_DEPTH terms: TALL x WIDE blocks of 16 x 16 from (wi, wj) of the tile on for a warp. */
template <int TALL, int WIDE, bool TURNED, typename BEGIN>
GA_DEVICE void conv_ring_product(float (&sum)[TALL][2 * WIDE][4], ga_byte *ring, int stage, int a_bytes, int slices,
                                 int wi, int wj, BEGIN begin) {
    conv_ring<GA_STAGES>(ring, stage, slices, false, begin, [&](const ga_byte *a) {
        ga_slice_product<TALL, WIDE, TURNED, TURNED>(sum, a, a + a_bytes, wi, wj, threadIdx.x % GA_LANES);
    });
}

//@ conv_results()
/* Of four pairs of neighbours that each lane of four has, those of the pair with its number: eight neighbours. */
GA_DEVICE void conv_eight(float (&eight)[8], const float (&sum)[4][4], int half) {
    const int lane = threadIdx.x;
#pragma unroll
    for (int k = 0; k < 8; k++) eight[k] = sum[k / 2][half * 2 + k % 2];
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int other = k + 2 * step;
            if (k / 2 & step) continue;
            const float sent = lane & step ? eight[k] : eight[other];
            const float got = __shfl_xor_sync(GA_ALL_LANES, sent, step);
            (lane & step ? eight[k] : eight[other]) = got;
        }
}

/* Calls store(i, j, value) for each eight neighbours of the tile of a block of DOWN x ACROSS warps. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int TALL, int WIDE2, typename STORE>
GA_DEVICE void conv_tile_store(const float (&sum)[TALL][WIDE2][4], STORE store) {
    enum { FOURS = WIDE2 / 4 };
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    const int wi = warp % DOWN * (ROWS / DOWN), wj = warp / DOWN * (COLUMNS / ACROSS);
#pragma unroll
    for (int n = 0; n < TALL * FOURS * 2; n++) {
        const int u = n / 2 / FOURS, v = n / 2 % FOURS * 4;
        float eight[8];
        conv_eight(eight, (const float (&)[4][4])sum[u][v], n % 2);
        store(wi + u * 16 + n % 2 * 8 + lane / 4, wj + (v + lane % 4) * 8, eight);
    }
}

/* Averages of the columns of a tile over its rows, as they are rounded, and the sums of the squared distances from these:
 * `columns` of the one from `to` on, of the other `apart` elements behind them. All warps use the scratch. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, int TALL, int WIDE2>
GA_DEVICE void conv_tile_moments(float *scratch, const float (&sum)[TALL][WIDE2][4], float *to, int columns, int apart) {
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES, c = threadIdx.x;
    const int first = warp / DOWN * (COLUMNS / ACROSS) + lane % 4 * 2;
    float middle[WIDE2][2] = {};
    __syncthreads(); /* the scratch is free */
#pragma unroll 1
    for (int squares = 0; squares < 2; squares++) {
        float own[WIDE2][2] = {};
#pragma unroll
        for (int k = 0; k < TALL * WIDE2 * 4; k++) {
            const float x = ga_rounded(sum[k / 4 / WIDE2][k / 4 % WIDE2][k % 4]) - middle[k / 4 % WIDE2][k % 2];
            own[k / 4 % WIDE2][k % 2] += squares ? x * x : x;
        }
#pragma unroll
        for (int k = 0; k < WIDE2 * 2; k++) {
            float &x = own[k / 2][k % 2];
            for (int step = 4; step < GA_LANES; step *= 2) x += __shfl_xor_sync(GA_ALL_LANES, x, step);
            if (lane < 4) scratch[warp % DOWN * COLUMNS + first + k / 2 * 8 + k % 2] = x;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < WIDE2 * 2; k++) {
            float &x = middle[k / 2][k % 2] = 0;
            for (int down = 0; down < DOWN; down++) x += scratch[down * COLUMNS + first + k / 2 * 8 + k % 2];
            x /= ROWS;
        }
        if (c < columns && c < COLUMNS) {
            float x = 0;
            for (int down = 0; down < DOWN; down++) x += scratch[down * COLUMNS + c];
            to[squares * apart + c] = squares ? x : x / ROWS;
        }
        __syncthreads();
    }
}

//@ conv_product(type)
/* A tile of a convolution: rows are places of a share from i0 on, columns are outputs of a group from j0 on. weight: of
 * the share and group, rows of octets; x: the first octet of the group. Calls see(sums) once, then store(there, i, j,
 * value) for each eight outputs of a place of the tile; those behind the last output, in its octet, are zeros. Outside,
 * where nothing is `there` to be written, i and j are those of the first ones. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, typename SEE, typename STORE>
GA_DEVICE void conv_tensor_product(ga_byte *ring, const $type *x, const $type *weight, const conv_sizes &s,
                                   const conv_share &share, int i0, int j0, SEE see, STORE store) {
    enum { THREADS = DOWN * ACROSS * GA_LANES, TALL = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 16 };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, STAGE = (ROWS + COLUMNS) * GA_DEPTH * 2, CHUNKS = GA_DEPTH / GA_OCTET };
    const int row = threadIdx.x % ROWS, warp = threadIdx.x / GA_LANES, i = i0 + row;
    const int terms = s.in_octets * share.taps.by * GA_OCTET, places = s.images * share.places.by;
    const conv_place place = conv_place_of(x, s, share, i / share.places, i % share.places, i < places);
    unsigned short none[1];
    auto begin = [&](int slice, ga_byte *to) {
#pragma unroll
        for (int n = 0; n < ROWS * CHUNKS / THREADS; n++) {
            const int chunk = n * (THREADS / ROWS) + threadIdx.x / ROWS;
            conv_octet_begin(to + ga_chunk<false>(row, chunk), x, s, place,
                             conv_term_of(s, share, slice * CHUNKS + chunk));
        }
        ga_slice_begin<COLUMNS, THREADS, false, GA_WHOLE>(to + A_BYTES, none, weight, terms, j0, s.out,
                                                          slice * GA_DEPTH, terms);
    };
    float sum[TALL][2 * WIDE][4] = {};
    conv_ring_product<TALL, WIDE, false>(sum, ring, STAGE, A_BYTES, (terms + GA_DEPTH - 1) / GA_DEPTH,
                                         warp % DOWN * (ROWS / DOWN), warp / DOWN * (COLUMNS / ACROSS), begin);
    see(sum);
    conv_tile_store<ROWS, COLUMNS, DOWN, ACROSS>(sum, [&](int row, int column, float (&value)[8]) {
        const bool there = i0 + row < places && j0 + column < s.out;
        store(there, there ? i0 + row : i0, there ? j0 + column : j0, value);
    });
}

//@ conv_gradient(type)
/* A tile of the gradient of a weight: rows are octets from q0 on, columns are outputs from that of octet o0 on, terms
 * are the places from `from` to `to` of all images. x, dy: the first octet of the group. Calls store(i, j, value) for
 * each eight outputs of a row of the tile. */
template <int ROWS, int COLUMNS, int DOWN, int ACROSS, typename STORE>
GA_DEVICE void conv_tensor_gradient(ga_byte *ring, const $type *x, const $type *dy, const conv_sizes &s,
                                    const conv_share &share, int q0, int o0, int from, int to, STORE store) {
    enum { WARPS = DOWN * ACROSS, TALL = ROWS / DOWN / 16, WIDE = COLUMNS / ACROSS / 16 };
    enum { A_BYTES = ROWS * GA_DEPTH * 2, STAGE = (ROWS + COLUMNS) * GA_DEPTH * 2 };
    static_assert(GA_DEPTH == GA_LANES, "a lane has a place of a slice");
    const int lane = threadIdx.x % GA_LANES, warp = threadIdx.x / GA_LANES;
    conv_term terms[ROWS / GA_OCTET / WARPS];
#pragma unroll
    for (int n = 0; n < ROWS / GA_OCTET / WARPS; n++) terms[n] = conv_term_of(s, share, q0 + n * WARPS + warp);
    auto begin = [&](int slice, ga_byte *stage) {
        const int p = from + slice * GA_DEPTH + lane, image = p / share.places, in_image = p % share.places;
        const conv_place place = conv_place_of(x, s, share, image, in_image, p < to);
        const $type *first = dy + ((ga_int64)image * s.outputs + o0 * share.places.by + in_image) * GA_OCTET;
#pragma unroll
        for (int n = 0; n < ROWS / GA_OCTET / WARPS; n++)
            conv_octet_begin(conv_turned_chunk(stage, lane, n * WARPS + warp), x, s, place, terms[n]);
#pragma unroll
        for (int n = 0; n < COLUMNS / GA_OCTET / WARPS; n++) {
            const int q = n * WARPS + warp;
            const bool there = o0 + q < s.out_octets && p < to;
            const $type *at = first + (ga_int64)(q * share.places.by) * GA_OCTET;
            ga_copy_begin(conv_turned_chunk(stage + A_BYTES, lane, q), there ? at : dy, there ? 16 : 0);
        }
    };
    const int slices = to > from ? (to - from + GA_DEPTH - 1) / GA_DEPTH : 0;
    float sum[TALL][2 * WIDE][4] = {};
    conv_ring_product<TALL, WIDE, true>(sum, ring, STAGE, A_BYTES, slices, warp % DOWN * (ROWS / DOWN),
                                        warp / DOWN * (COLUMNS / ACROSS), begin);
    conv_tile_store<ROWS, COLUMNS, DOWN, ACROSS>(sum, [&](int i, int column, float (&value)[8]) {
        if (o0 + column / GA_OCTET < s.out_octets) store(q0 * GA_OCTET + i, o0 * GA_OCTET + column, value);
    });
}
