// slices: products of f32 in blocks on matrix registers whose vectors work meanwhile (templates/c/matrix.c tells of
// slices; gen/emit/targets/c/matrix.lua chooses the sizes).

//@ product_of_slices(order)
enum { PRODUCTS = $(#order) }; /* products of slices, each with a slice of the one before it */

/* Adds product n of the slices of a (32 x 32) and b (32 x 32) to the sums; the one before it was added just now. Slices
 * of a lie one after another; b has rows of 32 pairs, and its slices lie so many elements apart. */
static inline void matrix_add_product(int n, const bf16 *a, const bf16 *b, size_t slice) {
    switch (n) {
//% for i, product in ipairs(order) do
//%     local before = order[i - 1] or {}
    case $(i - 1):
//%     if product.a ~= before.a then
        load_rows(a + $(product.a) * 1024, 32);
//%     end
//%     if product.b ~= before.b then
        load_columns(b + $(product.b) * slice);
//%     end
        break;
//% end
    }
    add_product();
}

//@ cut()
/* The slices of 32 neighbours, the n-th of a block of A: terms from n / 32 * 32 on of row n % 32; zeros behind so many
 * rows and terms. A(i, k) = a[i * stride + k]. A part has the slices of 32 x 32 elements one after another. */
static inline void matrix_cut(bf16 *part, int n, const float *a, size_t stride, int rows, int depth) {
    const int row = n % 32, k = n - row;
    bf16_pairs x[SLICES];
    pairs_along(x, a + row * stride + k, row < rows ? at_most(depth - k, 32) : 0);
    store_pairs(part + SLICES * 32 * k + 32 * row, x, 1024);
}

//@ linear_slices(fn, params, source, shape, tile, a, b, sums, ahead, store)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N)), of f32, sums of f32
 * While the registers add up a block, vectors cut the next rows of A into slices and finish the block before.
 * $source */
static void $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth) };
    enum { ACROSS = (N + WIDE - 1) / WIDE, EACH = $(tile.each) }; /* tiles beside each other, and for each worker */
    const int tall = tile_height(w, M, 32, TALL, ACROSS, EACH), down = (M + tall - 1) / tall;
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE], part[2][SLICES * 32 * DEPTH];
    _Alignas(64) float sums[$(sums.size)];
    matrix_begin();
    for (ga_tiles t = ga_tiles_begin(w, down * ACROSS); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / ACROSS) * tall, i1 = i0 + tall < M ? i0 + tall : M;
        const int j = (int)(t.index % ACROSS) * WIDE, columns = at_most(N - j, WIDE), across = (columns + 31) / 32;
        const int blocks = (i1 - i0 + 31) / 32 * across;
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = at_most(K - k, DEPTH), steps = (depth + 31) / 32, turns = steps * PRODUCTS;
            $(b.pack)(panel, DEPTH, columns, depth, b + $(b.at), $(b.stride));
            for (int n = 0; n < 32 * steps; n++)
                matrix_cut(part[0], n, a + $(a.first), $(a.stride), i1 - i0, depth);
            const float *done = sums; /* the block before, and its place in the result */
            size_t place = 0;
//% if sums.edges then
            int rows = 0, wide = 0;
//% end
            for (int block = 0; block <= blocks; block++) { /* one round more: it finishes the last block */
                const bool adds = block < blocks;
                const int down_blocks = block / across, across_blocks = block % across;
                const int i = i0 + 32 * down_blocks, x = 32 * across_blocks, below = i + 32;
                const bf16 *a_block = part[down_blocks % 2], *b_block = panel + x * SLICES * DEPTH;
                float *block_sums = sums + 1024 * $(sums.number);
//% if sums.lines > 1 then
                if (adds) {
                    $(sums.begin)
                }
//% else
                if (adds) $(sums.begin)
//% end
                /* in all turns `cuts` parts of the rows below are cut, and 32 rows of the block before finished */
                int cut = 32 * steps * across_blocks / across, cuts_due = 0, r = 0, rows_due = 0;
                const int cuts = adds && below < i1 ? 32 * steps * (across_blocks + 1) / across - cut : 0;
                for (int turn = 0; turn < turns; turn++) {
                    const int step = turn / PRODUCTS;
                    if (adds)
                        matrix_add_product(turn % PRODUCTS, a_block + step * SLICES * 1024, b_block + step * 1024,
                                           32 * DEPTH);
                    for (cuts_due += cuts; cuts_due >= turns; cuts_due -= turns, cut++)
                        matrix_cut(part[(down_blocks + 1) % 2], cut, a + $(a.below), $(a.stride), i1 - below, depth);
//% if sums.chunks then
                    if (k + DEPTH < K) continue;
//% end
                    for (rows_due += 32; rows_due >= turns; rows_due -= turns, r++) {
//% if ahead then
                        if (adds) {
                            $ahead
                        }
//% end
                        if (block == 0$(sums.outside)) continue;
                        INDEPENDENT for (int n = 0; n < $(sums.columns); n++) {
                            const size_t at = place + (size_t)r * N + n;
                            const real value = done[32 * r + n];
                            $store
                        }
                    }
                }
                if (adds) matrix_store(block_sums, 32);
                done = block_sums;
                place = (size_t)i * N + j + x;
//% if sums.edges then
                rows = at_most(i1 - i, 32), wide = at_most(columns - x, 32);
//% end
            }
        }
    }
    matrix_end();
}
