// tensor_slices: slices of the operands of a product on tensor cores, on their way to shared memory.

//@ tensor_slices(type, half)
/* -- a tile of a product on tensor cores. Slices of A and of B, GA_DEPTH terms deep, go round in a ring of GA_STAGES
 * places in shared memory: while one is multiplied, the next ones are on their way. Where teams have a slice each, a
 * place has those of all. */

enum { GA_DEPTH = 32, GA_STAGES = 4, GA_DEEP_STAGES = 3 };

/* How rows of an operand lie in memory: they begin at whole chunks of 16 bytes and are whole ones, they only begin so, or
 * they begin anywhere. */
enum { GA_WHOLE, GA_BEGUN, GA_ODD };

/* Where 16 bytes of a slice lie: rows along the sum are of 64 bytes; a turned slice has panels of 64 neighbours, each
 * term a LONG row of 128 bytes, or of 64 where the slice has 32 neighbours. The chunks of a row are swapped, so that
 * eight rows at one chunk are in different banks. */
template <bool LONG> GA_DEVICE int ga_chunk(int row, int chunk) {
    return LONG ? row * 128 + ((chunk ^ (row & 7)) << 4) : row * 64 + ((chunk ^ (row >> 1 & 3)) << 4);
}

/* Begins the copy of a slice: EXTENT rows (columns) of the operand from i0 on, its terms from k0 on; zeros beyond.
 * TURNED: the elements of one term are neighbours in memory, `stride` apart from those of the next one; else the terms
 * of one row are. Of odd rows threads hold their elements until ga_slice_end, so that these come beside the products,
 * too. `thread`: of the THREADS that copy the slice. */
template <int EXTENT, int THREADS, bool TURNED, int LIES, int HELD>
GA_DEVICE void ga_slice_begin(ga_byte *slice, unsigned short (&held)[HELD], const $type *x, int stride, int i0,
                              int extent, int k0, int depth, unsigned thread = threadIdx.x) {
    const bool LONG = TURNED && EXTENT >= 64;
#pragma unroll
    for (int n = 0; n < EXTENT * GA_DEPTH / 8 / THREADS && LIES != GA_ODD; n++) {
        const int s = n * THREADS + thread, panel = LONG ? s / (8 * GA_DEPTH) : 0;
        const int row = LONG ? s / 8 % GA_DEPTH : s / 4, chunk = LONG ? s % 8 : s % 4;
        const int i = i0 + (TURNED ? panel * 64 + chunk * 8 : row), k = k0 + (TURNED ? row : chunk * 8);
        const bool there = i < extent && k < depth;
        const int rest = TURNED ? extent - i : depth - k; /* elements of its row of memory */
        const int count = LIES == GA_WHOLE || rest >= 8 ? 8 : rest;
        const $type *from = x + (TURNED ? (ga_int64)k * stride + i : (ga_int64)i * stride + k);
        ga_copy_begin(slice + panel * (128 * GA_DEPTH) + ga_chunk<LONG>(row, chunk), there ? from : x,
                      there ? 2 * count : 0);
    }
#pragma unroll
    for (int n = 0; n < HELD && LIES == GA_ODD; n++) {
        const int s = n * THREADS + thread;
        const int i = i0 + (TURNED ? s % EXTENT : s / GA_DEPTH), k = k0 + (TURNED ? s / EXTENT : s % GA_DEPTH);
        const $type *from = x + (TURNED ? (ga_int64)k * stride + i : (ga_int64)i * stride + k);
        held[n] = i < extent && k < depth ? from->bits : 0;
    }
}

template <int EXTENT, int THREADS, bool TURNED, int LIES, int HELD>
GA_DEVICE void ga_slice_end(ga_byte *slice, const unsigned short (&held)[HELD], unsigned thread = threadIdx.x) {
#pragma unroll
    for (int n = 0; n < HELD && LIES == GA_ODD; n++) {
        const int s = n * THREADS + thread;
        const int i = TURNED ? s % EXTENT : s / GA_DEPTH, k = TURNED ? s / EXTENT : s % GA_DEPTH;
        const int panel = TURNED ? i / 64 * (128 * GA_DEPTH) : 0, element = TURNED ? i % 64 : k;
        ga_byte *chunk = slice + panel + ga_chunk<TURNED && EXTENT >= 64>(TURNED ? k : i, element / 8);
        ((unsigned short *)chunk)[element % 8] = held[n];
    }
}
