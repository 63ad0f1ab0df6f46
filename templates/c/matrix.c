// matrix: products of bf16 in blocks, with sums in f32, on the matrix registers of the processor (AMX) or on vectors
// (AVX512-BF16). A profile says what a machine has; gen/emit/targets/c/matrix.lua chooses the sizes. On matrix
// registers a sum takes 32 terms at a time: those of even k are added up apart from those of odd k, then both are added
// to it. On vectors a sum takes two terms at a time: that of odd k is added first, then that of even k. So its bits
// follow from K alone, whatever the sizes of tiles and panels are. An operand of f32 is the sum of some numbers of bf16,
// its slices; 32 terms of a sum are then taken by one product of slices after another.

//@ registers()
/* Gives all matrix registers 16 rows of 64 bytes, for this thread until matrix_end. */
static inline void matrix_begin(void) {
    static const struct {
        uint8_t palette, first_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shapes);
}

static inline void matrix_end(void) { _tile_release(); }

//@ tile_height()
/* Rows of a tile of a product, a multiple of `block` and at most `most`: of `rows`, so that there are `each` tiles for
 * each worker where tiles of about 64 rows are enough. There are `across` tiles beside each other. */
static inline int tile_height(const ga_worker *w, int rows, int block, int most, int across, int each) {
    const int wanted = (each * w->count + across - 1) / across, least = (rows + most - 1) / most;
    const int down = wanted > least ? wanted : least, low = 64 / block * block;
    const int tall = ((rows + down - 1) / down + block - 1) / block * block;
    return tall < low && most > low ? low : tall < most ? tall : most;
}

//@ sums()
/* Sums (32 x 32) in the registers: those of memory, or zeros if it is NULL. Rows lie `row` elements apart. */
static inline void matrix_load(const float *sums, int row) {
    const size_t bytes = sizeof(float) * (size_t)row;
    if (sums) {
        const float *below = sums + 16 * row;
        _tile_loadd(0, sums, bytes);
        _tile_loadd(1, sums + 16, bytes);
        _tile_loadd(2, below, bytes);
        _tile_loadd(3, below + 16, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

static inline void matrix_store(float *sums, int row) {
    const size_t bytes = sizeof(float) * (size_t)row;
    float *below = sums + 16 * row;
    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + 16, bytes);
    _tile_stored(2, below, bytes);
    _tile_stored(3, below + 16, bytes);
}

//@ step()
/* Adds a (32 x 32) b (32 x 32) to the sums. Rows of a have a_row elements; b has rows of 32 pairs: b(k, j) beside
 * b(k + 1, j) for an even k. */
static inline void matrix_step(const bf16 *a, size_t a_row, const bf16 *b) {
    _tile_loadd(4, a, 2 * a_row);
    _tile_stream_loadd(6, b, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, b + 32, 128);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + 16 * a_row, 2 * a_row);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

//@ terms()
/* Adds a (32 x depth) b (depth x 32) to the sums; depth is a multiple of 32. */
static inline void matrix_terms(const bf16 *a, size_t a_row, const bf16 *b, int depth) {
    for (int k = 0; k < depth; k += 32, a += 32, b += 1024) matrix_step(a, a_row, b);
}

//@ operands_of_slices()
/* 32 rows of a, and 32 columns of b, into registers; their product is added to the sums. Each time floats are added,
 * too: a core whose float unit rested for 2,500 cycles takes 1,000 more to store sums. */
static inline void load_rows(const bf16 *a, size_t a_row) {
    _tile_loadd(4, a, 2 * a_row);
    _tile_loadd(5, a + 16 * a_row, 2 * a_row);
}

static inline void load_columns(const bf16 *b) {
    _tile_loadd(6, b, 128);
    _tile_loadd(7, b + 32, 128);
}

static inline void add_product(void) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    volatile float busy = 1;
    busy += busy;
}

//@ terms_of_slices(order)
/* Adds a (32 x depth) b (depth x 32) to the sums; depth is a multiple of 32. Rows of a have a_row elements; b has rows
 * of 32 pairs: b(k, j) beside b(k + 1, j) for an even k. Slices of a, and those of b, lie 32 * a_row elements apart.
 * The $(#order) largest products of slices are added. */
static inline void matrix_terms(const bf16 *a, size_t a_row, const bf16 *b, int depth) {
    const size_t slice = 32 * a_row;
    for (int k = 0; k < depth; k += 32, a += 32, b += 1024) {
//% for i, product in ipairs(order) do
//%     local before = order[i - 1] or {}
//%     if product.a ~= before.a then
        load_rows(a + $(product.a) * slice, a_row);
//%     end
//%     if product.b ~= before.b then
        load_columns(b + $(product.b) * slice);
//%     end
        add_product();
//% end
    }
}

//@ block()
/* sums (32 x 32) = start + a b; start NULL: 0. Rows of sums and of start lie so many elements apart. */
static inline void matrix_block(float *sums, int sums_row, const float *start, int start_row, const bf16 *a,
                                size_t a_row, const bf16 *b, int depth) {
    matrix_load(start, start_row);
    matrix_terms(a, a_row, b, depth);
    matrix_store(sums, sums_row);
}

//@ block_of_parts()
/* sums (32 x 32) = a b, or added to them if `more`, where a and b are the sums of so many operands, 32 * SLICES * most
 * elements apart. */
static inline void matrix_block_of_parts(float *sums, int sums_row, bool more, const bf16 *a, int a_parts,
                                         const bf16 *b, int b_parts, size_t most, int depth) {
    const size_t operand = 32 * SLICES * most;
    matrix_load(more ? sums : NULL, sums_row);
    for (int i = 0; i < a_parts; i++)
        for (int j = 0; j < b_parts; j++) matrix_terms(a + i * operand, most, b + j * operand, depth);
    matrix_store(sums, sums_row);
}

//@ matrix_narrow()
/* The first rows and columns of a block of sums as numbers of bf16. Sums are never denormal: products of bf16 make them
 * zeros. */
static inline void matrix_narrow(bf16 *to, size_t row, const float *sums, int rows, int columns) {
    for (int r = 0; r < rows; r++, to += row, sums += 32) {
        vec half[2];
        memcpy(half, sums, sizeof half);
        const __m512bh all = _mm512_cvtne2ps_pbh((__m512)half[1], (__m512)half[0]);
        if (columns == 32) memcpy(to, &all, sizeof all);
        else memcpy(to, &all, (size_t)columns * sizeof *to);
    }
}

//@ matrix_finish()
/* The first rows and columns of a block of sums. */
static inline void matrix_finish(float *to, size_t row, const float *sums, int rows, int columns) {
    for (int r = 0; r < rows; r++, to += row, sums += 32) memcpy(to, sums, (size_t)columns * sizeof *to);
}

//@ matrix_look_up()
/* to = table[x.bits] for the first rows and columns of a block. Two elements of the table are read at a place, and the
 * first is taken. */
static inline void matrix_look_up(bf16 *to, const bf16 *x, size_t row, int rows, int columns, const bf16 *table) {
    for (int r = 0; r < rows; r++, to += row, x += row) {
        bf16_pairs all = {0};
        memcpy(&all, x, (size_t)columns * sizeof *x);
        const bf16_pairs even = (bf16_pairs)_mm512_i32gather_epi32((__m512i)(all & 0xffff), table, sizeof *table);
        const bf16_pairs odd = (bf16_pairs)_mm512_i32gather_epi32((__m512i)(all >> 16), table, sizeof *table);
        all = (even & 0xffff) | odd << 16;
        memcpy(to, &all, (size_t)columns * sizeof *to);
    }
}

//@ matrix_look_up_sums()
/* to = table[x.bits] for the first rows and columns of a block: to (32 x 32) as a block of sums. */
static inline void matrix_look_up_sums(float *to, const bf16 *x, size_t row, int rows, int columns,
                                       const float *table) {
    for (int r = 0; r < rows; r++, to += 32, x += row) {
        uint16_t bits[32] = {0};
        memcpy(bits, x, (size_t)columns * sizeof *x);
        UNROLL for (int n = 0; n < 32; n += 16) {
            __m256i some;
            memcpy(&some, bits + n, sizeof some);
            const __m512i all = _mm512_i32gather_epi32(_mm512_cvtepu16_epi32(some), table, sizeof *table);
            memcpy(to + n, &all, sizeof all);
        }
    }
}

//@ slices(count)
/* An operand is the sum of SLICES numbers of bf16: each is the rest after those before it, rounded. */
enum { SLICES = $count };

//@ vec_bits()
/* The bits of a vector: 16 floats, or 16 pairs of bf16. */
typedef uint32_t vec_bits __attribute__((vector_size(64), may_alias));

/* n, but at least 0 and at most `most`. */
static inline int at_most(int n, int most) { return n < 0 ? 0 : n < most ? n : most; }

//@ pairs()
/* 16 pairs of bf16, the first of a pair in the lower half. */
typedef vec_bits bf16_pairs;

/* Stores the slices of 16 pairs, `distance` elements apart. */
static inline void store_pairs(bf16 *to, const bf16_pairs x[SLICES], size_t distance) {
    for (int s = 0; s < SLICES; s++) memcpy(to + s * distance, &x[s], sizeof x[s]);
}

//@ block_of_vectors()
/* sums (32 x 32) = start + a (32 x depth) b (depth x 32); start NULL: 0; depth is a multiple of 32. Rows of sums, of
 * start and of a lie so many elements apart. b has rows of 32 pairs: b(k, j) beside b(k + 1, j) for an even k.
 * VDPBF16PS adds the product of odd k, then that of even k, each exact until the sum is rounded to nearest; denormals
 * are zeros. The sums of 8 rows stay in 16 registers. */
static inline void matrix_block(float *sums, int sums_row, const float *start, int start_row, const bf16 *a,
                                size_t a_row, const bf16 *b, int depth) {
    for (int i = 0; i < 32; i += 8, sums += 8 * sums_row, a += 8 * a_row) {
        __m512 sum[8][2] = {{{0}}};
        UNROLL for (int r = 0; r < 8; r++) {
            if (start) memcpy(&sum[r][0], start + (i + r) * start_row, sizeof(__m512));
            if (start) memcpy(&sum[r][1], start + (i + r) * start_row + 16, sizeof(__m512));
        }
        for (int k = 0; k < depth; k += 2) {
            __m512bh left, right;
            memcpy(&left, b + 32 * k, sizeof left);
            memcpy(&right, b + 32 * k + 32, sizeof right);
            UNROLL for (int r = 0; r < 8; r++) {
                uint32_t pair;
                memcpy(&pair, a + r * a_row + k, sizeof pair);
                const __m512bh x = (__m512bh)(pair - (bf16_pairs){0});
                sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, left);
                sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, right);
            }
        }
        UNROLL for (int r = 0; r < 8; r++) {
            memcpy(sums + r * sums_row, &sum[r][0], sizeof(__m512));
            memcpy(sums + r * sums_row + 16, &sum[r][1], sizeof(__m512));
        }
    }
}

//@ blocks_of_parts()
/* sums (32 x 32) = a b, or added to them if `more`, where a and b are the sums of so many operands, 32 * SLICES * most
 * elements apart. */
static inline void matrix_block_of_parts(float *sums, int sums_row, bool more, const bf16 *a, int a_parts,
                                         const bf16 *b, int b_parts, size_t most, int depth) {
    const size_t operand = 32 * SLICES * most;
    for (int i = 0; i < a_parts; i++)
        for (int j = 0; j < b_parts; j++)
            matrix_block(sums, sums_row, more || i + j > 0 ? sums : NULL, sums_row, a + i * operand, most,
                         b + j * operand, depth);
}

//@ pairs_along()
/* Pairs of neighbours of a row: its first n <= 32 elements, zeros behind them. */
static inline void pairs_along(bf16_pairs x[SLICES], const bf16 *row, int n) {
    x[0] = (bf16_pairs){0};
    if (n == 32) memcpy(x, row, sizeof x[0]);
    else memcpy(x, row, (size_t)n * sizeof *row);
}

//@ pairs_across()
/* The first n <= 16 elements of a row, each in a lane of its own. */
static inline bf16_pairs wide_row(const bf16 *x, int n) {
    __m256i all = {0};
    if (n == 16) memcpy(&all, x, sizeof all);
    else memcpy(&all, x, (size_t)n * sizeof *x);
    return (bf16_pairs)_mm512_cvtepu16_epi32(all);
}

/* Pairs (row(0, j), row(1, j)) of `rows` <= 2 rows for the first n <= 16 columns j, zeros behind them. */
static inline void pairs_across(bf16_pairs x[SLICES], const bf16 *row, size_t stride, int rows, int n) {
    const bf16_pairs even = wide_row(row, rows > 0 ? n : 0), odd = wide_row(row + stride, rows > 1 ? n : 0);
    x[0] = even | odd << 16;
}

//@ some()
/* The first n <= 16 elements of a row, zeros behind them. */
static inline vec some(const float *row, int n) {
    vec x = {0};
    if (n >= 16) memcpy(&x, row, sizeof x);
    else if (n > 0) memcpy(&x, row, (size_t)n * sizeof *row);
    return x;
}

//@ slices_of_row()
/* Pairs of neighbours of a row, whose first half is a and whose second is b. */
static inline void slices_of_row(bf16_pairs x[SLICES], vec a, vec b) {
    const bf16_pairs lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, first = lane << 16;
    for (int s = 0; s < SLICES; s++) {
        const __m512i slice = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
        x[s] = (bf16_pairs)slice;
        a -= (vec)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, (__m512i)first, slice);
        b -= (vec)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, (__m512i)(first + (16 << 16)), slice);
    }
}

//@ slices_along()
/* Pairs of neighbours of a row: its first n <= 32 elements, zeros behind them. */
static inline void pairs_along(bf16_pairs x[SLICES], const float *row, int n) {
    slices_of_row(x, some(row, n), some(row + 16, n - 16));
}

//@ slices_of_pairs()
/* Pairs of an element of a and one of b. */
static inline void slices_of_pairs(bf16_pairs x[SLICES], vec a, vec b) {
    const bf16_pairs lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, turn = lane | (lane + 16) << 16;
    for (int s = 0; s < SLICES; s++) {
        const __m512i slice = (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
        x[s] = (bf16_pairs)_mm512_permutexvar_epi16((__m512i)turn, slice);
        a -= (vec)(x[s] << 16);
        b -= (vec)(x[s] & 0xffff0000u);
    }
}

//@ slices_across()
/* Pairs (row(0, j), row(1, j)) of `rows` <= 2 rows for the first n <= 16 columns j, zeros behind them. */
static inline void pairs_across(bf16_pairs x[SLICES], const float *row, size_t stride, int rows, int n) {
    slices_of_pairs(x, some(row, rows > 0 ? n : 0), some(row + stride, rows > 1 ? n : 0));
}

//@ turn_vectors()
/* Exchanges rows and columns of 16 x 16 elements: each step exchanges one bit of their numbers. */
static inline __attribute__((always_inline)) void turn_vectors(vec_bits x[16]) {
    const vec_bits lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    UNROLL for (int bit = 8; bit > 0; bit /= 2) {
        const vec_bits set = (lane & bit) / bit, upper = lane + set * (16 - bit), lower = upper + bit;
        UNROLL for (int i = 0; i < 16; i++) {
            if (i & bit) continue;
            const vec_bits a = x[i], b = x[i + bit];
            x[i] = (vec_bits)_mm512_permutex2var_epi32((__m512i)a, (__m512i)upper, (__m512i)b);
            x[i + bit] = (vec_bits)_mm512_permutex2var_epi32((__m512i)a, (__m512i)lower, (__m512i)b);
        }
    }
}

//@ turn_block()
/* to(j, i) = from[i * stride + j] for 16 x 16 elements. */
static inline void turn_block(real to[16][16], const real *from, size_t stride) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) to[j][i] = from[i * stride + j];
}

//@ turn_block_of_vectors()
/* to(j, i) = from[i * stride + j] for 16 x 16 elements. */
static inline void turn_block(real to[16][16], const real *from, size_t stride) {
    vec_bits row[16];
    for (int i = 0; i < 16; i++) memcpy(&row[i], from + i * stride, sizeof row[i]);
    turn_vectors(row);
    memcpy(to, row, sizeof row);
}

//@ store_turned()
/* Stores 16 rows of 16 pairs with rows and columns exchanged: rows of `row` elements, slices `distance` apart. */
static inline void store_turned(bf16 *to, size_t row, size_t distance, bf16_pairs x[16][SLICES]) {
    for (int s = 0; s < SLICES; s++) {
        bf16_pairs one[16];
        for (int r = 0; r < 16; r++) one[r] = x[r][s];
        turn_vectors(one);
        for (int r = 0; r < 16; r++) memcpy(to + s * distance + r * row, &one[r], sizeof one[r]);
    }
}

//@ matrix_start()
/* The values that the sums of a tile begin with: start(i, j) = start[i * stride + j]. Sums are in blocks of 32 x 32. */
static inline void matrix_start(float *sums, int wide, int rows, int columns, const float *start, size_t stride) {
    for (int i = 0; i < rows; i++, start += stride) {
        float *row = sums + i / 32 * 32 * wide + i % 32 * 32;
        for (int j = 0; j < columns; j += 32)
            memcpy(row + 32 * j, start + j, sizeof *start * (size_t)(columns - j < 32 ? columns - j : 32));
    }
}

//@ matrix_pack_rows(type)
/* A panel of B in blocks of 32 columns, in each its slices with rows of 32 pairs: B(k, j) = b[k * stride + j]; zeros
 * behind the columns and the depth up to a multiple of 32. `most`: the depth of a whole panel. Rows AHEAD are asked
 * for. */
static inline void matrix_pack_rows(bf16 *panel, int most, int columns, int depth, const $type *b, size_t stride) {
    enum { AHEAD = 16 };
    for (int k = 0; k < (depth + 31) / 32 * 32; k += 2, b += 2 * stride) {
        for (int r = AHEAD; r < AHEAD + 2 && k + r < depth; r++)
            fetch_row(b + r * stride, (size_t)columns * sizeof *b);
        for (int j = 0; j < (columns + 31) / 32 * 32; j += 16) {
            bf16_pairs x[SLICES];
            pairs_across(x, b + j, stride, at_most(depth - k, 2), at_most(columns - j, 16));
            store_pairs(panel + j / 32 * 32 * SLICES * most + 32 * k + 2 * (j % 32), x, 32 * (size_t)most);
        }
    }
}

//@ matrix_pack_columns(type)
/* As matrix_pack_rows, of B(k, j) = b[j * stride + k]. */
static inline void matrix_pack_columns(bf16 *panel, int most, int columns, int depth, const $type *b, size_t stride) {
    for (int j = 0; j < (columns + 31) / 32 * 32; j += 16, b += 16 * stride)
        for (int k = 0; k < depth; k += 32) {
            bf16_pairs x[16][SLICES];
            for (int r = 0; r < 16; r++)
                pairs_along(x[r], b + r * stride + k, j + r < columns ? at_most(depth - k, 32) : 0);
            bf16 *to = panel + j / 32 * 32 * SLICES * most + 32 * k + 2 * (j % 32);
            store_turned(to, 64, 32 * (size_t)most, x);
        }
}

//@ turned_rows()
/* The first n of 16 rows of 16 elements, of `columns` <= 16 of them, with rows and columns exchanged; else zeros. */
static inline void turned_rows(vec x[16], const float *rows, size_t stride, int n, int columns) {
    vec_bits all[16];
    for (int r = 0; r < 16; r++) all[r] = (vec_bits)some(rows + r * stride, r < n ? columns : 0);
    turn_vectors(all);
    for (int r = 0; r < 16; r++) x[r] = (vec)all[r];
}

//@ matrix_pack_columns_in_slices()
/* As matrix_pack_rows, of B(k, j) = b[j * stride + k]. The next 16 columns are asked for. */
static inline void matrix_pack_columns(bf16 *panel, int most, int columns, int depth, const float *b, size_t stride) {
    for (int j = 0; j < (columns + 31) / 32 * 32; j += 16, b += 16 * stride)
        for (int k = 0; k < (depth + 31) / 32 * 32; k += 16) {
            vec x[16];
            for (int r = 16; r < 32 && j + r < columns; r++) __builtin_prefetch(b + r * stride + k);
            turned_rows(x, b + k, stride, columns - j, at_most(depth - k, 16));
            bf16 *to = panel + j / 32 * 32 * SLICES * most + 32 * k + 2 * (j % 32);
            for (int r = 0; r < 16; r += 2) {
                bf16_pairs pairs[SLICES];
                slices_of_pairs(pairs, x[r], x[r + 1]);
                store_pairs(to + 32 * r, pairs, 32 * (size_t)most);
            }
        }
}

//@ matrix_part_rows(type)
/* Rows of A in blocks of 32, in each its slices: A(i, k) = a[i * stride + k]; rows of `most` elements, zeros behind the
 * rows and the depth up to multiples of 32. */
static inline void matrix_part_rows(bf16 *part, int most, int rows, int depth, const $type *a, size_t stride) {
    for (int i = 0; i < (rows + 31) / 32 * 32; i++)
        for (int k = 0; k < depth; k += 32) {
            bf16_pairs x[SLICES];
            pairs_along(x, a + i * stride + k, i < rows ? at_most(depth - k, 32) : 0);
            store_pairs(part + (i / 32 * 32 * SLICES + i % 32) * most + k, x, 32 * (size_t)most);
        }
}

//@ matrix_part_columns(type)
/* As matrix_part_rows, of A(i, k) = a[k * stride + i]. The next 32 terms are asked for. */
static inline void matrix_part_columns(bf16 *part, int most, int rows, int depth, const $type *a, size_t stride) {
    for (int k = 0; k < depth; k += 32, a += 32 * stride) {
        for (int r = 32; r < 64 && k + r < depth; r++) fetch_row(a + r * stride, (size_t)rows * sizeof *a);
        for (int i = 0; i < (rows + 31) / 32 * 32; i += 16) {
            bf16_pairs x[16][SLICES];
            for (int r = 0; r < 16; r++)
                pairs_across(x[r], a + 2 * r * stride + i, stride, at_most(depth - k - 2 * r, 2),
                             at_most(rows - i, 16));
            bf16 *to = part + (i / 32 * 32 * SLICES + i % 32) * most + k;
            store_turned(to, (size_t)most, 32 * (size_t)most, x);
        }
    }
}

//@ matrix_part_columns_in_slices()
/* As matrix_part_rows, of A(i, k) = a[k * stride + i]. The next 32 terms are asked for. */
static inline void matrix_part_columns(bf16 *part, int most, int rows, int depth, const float *a, size_t stride) {
    for (int k = 0; k < depth; k += 32, a += 32 * stride) {
        for (int r = 32; r < 64 && k + r < depth; r++) fetch_row(a + r * stride, (size_t)rows * sizeof *a);
        for (int i = 0; i < (rows + 31) / 32 * 32; i += 16) {
            vec even[16], odd[16];
            turned_rows(even, a + i, stride, depth - k, at_most(rows - i, 16));
            turned_rows(odd, a + 16 * stride + i, stride, depth - k - 16, at_most(rows - i, 16));
            bf16 *to = part + (i / 32 * 32 * SLICES + i % 32) * most + k;
            for (int r = 0; r < 16; r++) {
                bf16_pairs pairs[SLICES];
                slices_of_row(pairs, even[r], odd[r]);
                store_pairs(to + r * most, pairs, 32 * (size_t)most);
            }
        }
    }
}
