// matmul: C(i, j) = sum over k of A(i, k) B(k, j), in tiles of C; gen/emit/targets/c/matmul.lua chooses the sizes.
// One worker computes a tile from start to end. The sum of an element runs over k upwards, one vec_fma each,
// whatever the sizes of tiles, strips and panels are.

//@ fetch_lines()
/* Asks for n lines of memory from line `from` on. They lie in `rows` rows, `stride` bytes apart, and are counted down
 * the rows first. */
static inline void fetch_lines(const void *memory, size_t stride, int rows, int from, int n) {
    const char *line = (const char *)memory + (size_t)(from / rows) * 64;
    for (int row = from % rows; n > 0; n--) {
        __builtin_prefetch(line + row * stride);
        if (++row == rows) row = 0, line += 64;
    }
}

//@ pack_rows()
/* A panel of B for strips: panel(k, j) = b[k * stride + j], rows of `width` elements, zeros behind the
 * columns up to a whole vector. */
static inline __attribute__((always_inline)) void pack_rows(real *panel, int width, const int columns,
                                                            int depth, const real *b, size_t stride) {
    const int wide = (columns + VEC_LANES - 1) / VEC_LANES, last = columns - (wide - 1) * VEC_LANES;
    for (int k = 0; k < depth; k++, b += stride, panel += width)
        for (int v = 0; v < wide; v++)
            vec_store(panel + v * VEC_LANES, vec_load(b + v * VEC_LANES, v < wide - 1 ? VEC_LANES : last),
                      VEC_LANES);
}

//@ pack_columns()
/* A panel of B for strips: panel(k, j) = b[j * stride + k], rows of `width` elements, zeros behind the
 * columns. */
static inline __attribute__((always_inline)) void pack_columns(real *panel, int width, const int columns,
                                                               int depth, const real *b, size_t stride) {
    for (int k = 0; k < depth; k++, panel += width) {
        for (int j = 0; j < columns; j++) panel[j] = b[j * stride + k];
        for (int j = columns; j < width; j++) panel[j] = 0;
    }
}

//@ pack_columns_in_eights()
/* A panel of B for strips: panel(k, j) = b[j * stride + k], rows of `width` elements, zeros behind the
 * columns. */
static inline __attribute__((always_inline)) void pack_columns(real *panel, int width, const int columns,
                                                               int depth, const real *b, size_t stride) {
    for (int j = 0; j < width; j += 8, b += 8 * stride)
        for (int k = 0; k < depth; k += 8) {
            eight x[8];
            turned_eights(x, b, stride, columns - j, k, depth);
            UNROLL for (int r = 0; r < 8; r++)
                if (k + r < depth) memcpy(panel + (k + r) * width + j, &x[r], sizeof x[r]);
        }
}

//@ pack_columns_turned()
/* A panel of B for strips: panel(k, j) = b[j * stride + k], rows of `width` elements, zeros behind the
 * columns. 16 x 16 elements are turned at a time, in registers where all are there. */
static inline __attribute__((always_inline)) void pack_columns(real *panel, int width, const int columns,
                                                               int depth, const real *b, size_t stride) {
    for (int j = 0; j < width; j += 16, b += 16 * stride)
        for (int k = 0; k < depth; k += 16) {
            const int n = at_most(columns - j, 16), terms = at_most(depth - k, 16);
            vec_bits x[16] = {{0}};
            if (n == 16 && terms == 16) {
                UNROLL for (int r = 0; r < 16; r++) memcpy(&x[r], b + r * stride + k, sizeof x[r]);
                turn_vectors(x);
                UNROLL for (int r = 0; r < 16; r++) memcpy(panel + (k + r) * width + j, &x[r], sizeof x[r]);
                continue;
            }
            for (int r = 0; r < n; r++) memcpy(&x[r], b + r * stride + k, (size_t)terms * sizeof *b);
            turn_vectors(x);
            for (int r = 0; r < terms; r++) memcpy(panel + (k + r) * width + j, &x[r], sizeof x[r]);
        }
}

//@ part_term()
/* Term k of a part of A for strips of `high` rows with room for `apart` terms, from `rows` neighbours. */
static inline __attribute__((always_inline)) void part_term(real *part, const int high, int rows, int apart, int k,
                                                            const real *a) {
    const int whole = rows / high * high;
    for (int i = 0; i < whole; i += high) memcpy(part + i * apart + k * high, a + i, (size_t)high * sizeof *a);
    for (int i = whole; i < rows; i++) part[whole * apart + k * high + i - whole] = a[i];
}

//@ part_columns()
/* A part of A for strips of `high` rows, each by terms: part(i, k) = a[k * stride + i], the rows of a strip beside
 * each other, with room for `apart` terms. The term four ahead is asked for. */
static inline __attribute__((always_inline)) void part_columns(real *part, const int high, int rows, int apart,
                                                               int depth, const real *a, size_t stride) {
    for (int k = 0; k < depth; k++, a += stride) {
        if (k + 4 < depth) fetch_row(a + 4 * stride, (size_t)rows * sizeof *a);
        part_term(part, high, rows, apart, k, a);
    }
}

//@ linear(fn, params, source, shape, tile, a, b, start, start_row, behind, ahead)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N))
 * $source */
static void $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K), TALL = $(tile.tall), WIDE = $(tile.wide) };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), WIDTH = $(tile.width), DEPTH = $(tile.depth) };
    const int wide = $(tile.broad), across = (N + wide - 1) / wide;
    const int tall = $(tile.high), down = (M + tall - 1) / tall;
//% if a.packed then
    enum { APART = $(a.apart) }; /* terms that a strip of a part has room for: strips lie in several sets of a cache */
    _Alignas(64) real panel[DEPTH * WIDTH], part[TALL * APART];
//% else
    _Alignas(64) real panel[DEPTH * WIDTH];
//% end
    for (ga_tiles t = ga_tiles_begin(w, down * across); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / across) * tall, rows = M - i0 < tall ? M - i0 : tall, i1 = i0 + rows;
        const int j0 = (int)(t.index % across) * wide, j1 = j0 + wide < N ? j0 + wide : N;
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = k + DEPTH < K ? DEPTH : K - k;
//% if b.asks then
            /* Each strip asks for an equal share of the next panel's rows. */
            const int pace = rows < ROWS ? 1 : rows / ROWS, share = (depth + pace - 1) / pace;
//% else
            /* Each strip asks for an equal share of the next panel's lines. */
            const int share = ($(b.lines) * ROWS + rows - 1) / rows;
//% end
//% if a.packed and not a.packs then
            part_columns(part, ROWS, rows, APART, depth, a + $(a.at), $(a.stride));
//% end
            for (int j = j0; j < j1; j += COLUMNS) {
                const real *columns = b + $(b.at);
                const real *next = $(b.next);
//% if b.calls then
                $(b.calls)
//% end
                for (int i = i0, from = 0; i < i1; i += ROWS, from += share) {
//% if b.asks then
                    const bool asks = $(b.asks);
                    const ahead asked = {asks ? $(b.ahead) : panel, asks ? $(b.stride) : 0, pace};
//% else
                    if (j + COLUMNS < j1) fetch_lines(next, $(b.stride) * sizeof *b, $(b.rows), from, share);
//% end
                    real *out = c + (size_t)i * N + j;
                    if ($(tile.again)i + ROWS < i1) ask_rows(out + (size_t)ROWS * N, N, ROWS, COLUMNS, sizeof *c);
                    const real *start = $start;
//% if ahead then
                    if (k + DEPTH >= K) {
                        $ahead
                    }
//% end
//% if b.first then
                    const bool first = $(b.first);
//% end
//% if a.packs then
                    const bool packs = j == j0, lies = $(a.lies); /* rows of A; others are in the part */
//% end
                    const strip s = {depth, $(a.strip), $(a.strides),
                                     $(b.strip), start, $start_row, out, N};
                    $(tile.strips)
//% if behind then
                    if (k + DEPTH < K) continue;
                    for (int r = i; r < $(tile.low); r++) {
                        INDEPENDENT for (int x = j; x < $(tile.last); x++) {
                            const size_t at = (size_t)r * N + x;
                            const real value = c[at];
                            $behind
                        }
                    }
//% end
                }
            }
        }
    }
}

//@ pack_half_rows(half)
/* A panel of B for strips, of 16 bits: panel(k, j) = b[k * stride + j], rows of `width` elements, zeros
 * behind the columns. */
static inline __attribute__((always_inline)) void pack_half_rows(real *panel, int width, const int columns,
                                                                 int depth, const $half *b, size_t stride) {
    for (int k = 0; k < depth; k++, b += stride, panel += width) {
        widen_row(panel, b, columns);
        for (int j = columns; j < width; j++) panel[j] = 0;
    }
}

//@ pack_half_columns(half, depth)
/* A panel of B for strips, of 16 bits: panel(k, j) = b[j * stride + k], rows of `width` elements, zeros
 * behind the columns. */
static inline __attribute__((always_inline)) void pack_half_columns(real *panel, int width, const int columns,
                                                                    int depth, const $half *b, size_t stride) {
    real some[STRIP_VECTORS * VEC_LANES * $depth];
    for (int j = 0; j < columns; j++) widen_row(some + j * depth, b + j * stride, depth);
    pack_columns(panel, width, columns, depth, some, (size_t)depth);
}

//@ part_half_columns(half, tall)
/* A part of A for strips, of 16 bits: part(i, k) = a[k * stride + i], the rows of a strip beside each other, with room
 * for `apart` terms. The term four ahead is asked for. */
static inline __attribute__((always_inline)) void part_half_columns(real *part, const int high, int rows, int apart,
                                                                    int depth, const $half *a, size_t stride) {
    real some[$tall];
    for (int k = 0; k < depth; k++, a += stride) {
        if (k + 4 < depth) fetch_row(a + 4 * stride, (size_t)rows * sizeof *a);
        widen_row(some, a, rows);
        part_term(part, high, rows, apart, k, some);
    }
}

//@ linear_half(fn, params, source, shape, tile, a, b, start, start_row, store)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N)), of 16 bits
 * Sums are of 32 bits; one that is complete is rounded, or added.
 * $source */
static void $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K), TALL = $(tile.tall), WIDE = $(tile.wide) };
    enum { ROWS = $(tile.rows), COLUMNS = $(tile.columns), WIDTH = $(tile.width), DEPTH = $(tile.depth) };
    const int wide = $(tile.broad), across = (N + wide - 1) / wide, down = (M + TALL - 1) / TALL;
//% if a.packed then
    enum { APART = $(a.apart) }; /* terms that a strip of a part has room for: strips lie in several sets of a cache */
    _Alignas(64) real panel[DEPTH * WIDTH], part[TALL * APART], sums[$(tile.sums)];
//% elseif a.widens then
    _Alignas(64) real panel[DEPTH * WIDTH], part[TALL * DEPTH], sums[$(tile.sums)];
//% else
    _Alignas(64) real panel[DEPTH * WIDTH], sums[$(tile.sums)];
//% end
    for (ga_tiles t = ga_tiles_begin(w, down * across); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / across) * TALL, rows = M - i0 < TALL ? M - i0 : TALL, i1 = i0 + rows;
        const int j0 = (int)(t.index % across) * wide, j1 = j0 + wide < N ? j0 + wide : N;
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = k + DEPTH < K ? DEPTH : K - k;
            /* Each strip asks for an equal share of the next panel's lines. */
            const int share = ($(b.lines) * ROWS + rows - 1) / rows;
//% if a.packed then
            part_half_columns(part, ROWS, rows, APART, depth, a + $(a.at), $(a.stride));
//% elseif a.widens then
            widen_rows(part, (size_t)depth, a + $(a.at), $(a.stride), rows, depth);
//% end
            for (int j = j0; j < j1; j += COLUMNS) {
                const $(b.type) *columns = b + $(b.at);
                const $(b.type) *next = $(b.next);
//% if b.calls then
                $(b.calls)
//% end
                for (int i = i0, from = 0; i < i1; i += ROWS, from += share) {
                    if (j + COLUMNS < j1) fetch_lines(next, $(b.stride) * sizeof *b, $(b.rows), from, share);
                    real *out = $(tile.place);
                    const real *start = $start;
//% if b.first then
                    const bool first = $(b.first);
//% end
                    const strip s = {depth, $(a.strip), $(a.strides),
                                     panel, WIDTH, start, $start_row, out, WIDTH};
                    $(tile.strips)
                    if (k + DEPTH < K) continue;
                    for (int r = i; r < $(tile.low); r++) {
                        INDEPENDENT for (int x = j; x < $(tile.last); x++) {
                            const size_t at = (size_t)r * N + x;
                            const real value = out[(r - i) * WIDTH + x - j];
                            $store
                        }
                    }
                }
            }
        }
    }
}

//@ linear_matrix(fn, params, source, shape, tile, a, b, sums, ahead, finish, store)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N)), of $(a.type), sums of f32
 * $source */
static void $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K) };
    enum { TALL = $(tile.tall), WIDE = $(tile.wide), DEPTH = $(tile.depth) };
    enum { ACROSS = (N + WIDE - 1) / WIDE, EACH = $(tile.each) }; /* tiles beside each other, and for each worker */
    const int tall = tile_height(w, M, 32, TALL, ACROSS, EACH), down = (M + tall - 1) / tall;
//% if b.panels and a.part then
    _Alignas(64) bf16 part[SLICES * $(a.part) * DEPTH];
//% elseif a.part then
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE], part[SLICES * $(a.part) * DEPTH];
//% elseif not b.panels then
    _Alignas(64) bf16 panel[SLICES * DEPTH * WIDE];
//% end
//% if sums.size then
    _Alignas(64) float sums[$(sums.size)];
//% end
//% if tile.registers then
    matrix_begin();
//% end
    for (ga_tiles t = ga_tiles_begin(w, down * ACROSS); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / ACROSS) * tall, i1 = i0 + tall < M ? i0 + tall : M;
        const int j = (int)(t.index % ACROSS) * WIDE, columns = at_most(N - j, WIDE);
//% if sums.begin then
        $(sums.begin)
//% end
        for (int k = 0; k < K; k += DEPTH) {
            const int depth = at_most(K - k, DEPTH);
//% if b.panels then
            $(b.panels)
//% else
            $(b.pack)(panel, DEPTH, columns, depth, b + $(b.at), $(b.stride));
//% end
//% if a.columns then
            $(a.pack)(part, DEPTH, i1 - i0, depth, a + $(a.at), $(a.stride));
//% end
            for (int i = i0; i < i1; i += 32) {
//% if a.direct and a.part then
                const bool whole = i + 32 <= i1;
                const bf16 *block = whole ? a + $(a.at) : part;
                const size_t row = whole ? $(a.stride) : DEPTH;
                if (!whole) $(a.pack)(part, DEPTH, i1 - i, depth, a + $(a.at), $(a.stride));
//% elseif not a.direct and not a.columns then
                $(a.pack)(part, DEPTH, at_most(i1 - i, 32), depth, a + $(a.at), $(a.stride));
//% end
                for (int x = 0; x < columns; x += 32) {
//% if ahead and sums.chunks then
                    if (k + DEPTH >= K) {
                        $ahead
                    }
//% elseif ahead then
                    $ahead
//% end
//% if sums.place then
                    $(sums.place)
//% end
                    matrix_block($(sums.block), $(sums.row), $(sums.start), $(sums.start_row),
                                 $(a.block), $(a.row), panel + x * $(b.block), depth);
//% if finish then
                    $finish
//% end
//% if store then
                    for (int r = 0; r < $(sums.rows); r++) {
                        INDEPENDENT for (int n = 0; n < $(sums.columns); n++) {
                            const size_t at = (size_t)(i + r) * N + j + x + n;
                            const real value = $(sums.block)[32 * r + n];
                            $store
                        }
                    }
//% end
                }
            }
        }
    }
//% if tile.registers then
    matrix_end();
//% end
}

//@ linear_matrix_beside(fn, params, source, shape, tile, a, sums, ahead, finish)
/* $fn: ($(shape.M), $(shape.N)) = ($(shape.M), $(shape.K)) x ($(shape.K), $(shape.N)), of bf16, sums of f32
 * While the registers add up a block, vectors finish the one before.
 * $source */
static void $fn($params) {
    enum { M = $(shape.M), N = $(shape.N), K = $(shape.K), TALL = $(tile.tall), WIDE = $(tile.wide), STEPS = K / 32 };
    enum { ACROSS = (N + WIDE - 1) / WIDE, EACH = $(tile.each) }; /* tiles beside each other, and for each worker */
    const int tall = tile_height(w, M, 32, TALL, ACROSS, EACH), down = (M + tall - 1) / tall;
    _Alignas(64) float sums[2][32 * 32];
    matrix_begin();
    for (ga_tiles t = ga_tiles_begin(w, down * ACROSS); ga_tile_next(&t);) {
        const int i0 = (int)(t.index / ACROSS) * tall, i1 = i0 + tall < M ? i0 + tall : M;
        const int j = (int)(t.index % ACROSS) * WIDE, across = at_most(N - j, WIDE) / 32;
        const int blocks = (i1 - i0) / 32 * across;
        const bf16 *panel = b + (size_t)j * K;
        size_t place = 0; /* of the block before */
        for (int block = 0; block <= blocks; block++) { /* one round more: it finishes the last block */
            const bool adds = block < blocks;
            const int i = i0 + block / across * 32, x = block % across * 32;
            if (adds) {
//% if ahead then
                $ahead
//% end
                matrix_load($(sums.start), $(sums.start_row));
            }
            for (int step = 0; step < STEPS; step++) {
                const int k = 32 * step;
                if (adds) matrix_step($(a.block), $(a.row), panel + x * K + 32 * k);
                if (block == 0) continue;
                const int first = 32 * step / STEPS, rows = 32 * (step + 1) / STEPS - first;
                const size_t from = place + (size_t)first * N;
                float *done = sums[(block + 1) % 2] + 32 * first;
                $finish
            }
            if (adds) matrix_store(sums[block % 2], 32);
            place = (size_t)i * N + j + x;
        }
    }
    matrix_end();
}
