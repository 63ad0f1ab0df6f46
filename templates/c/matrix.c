// matrix: products of bf16 on the matrix registers of the processor (AMX), with sums in f32. A profile says whether a
// machine has them; gen/emit/targets/c/matrix.lua chooses the sizes. A sum takes 32 terms at a time: those of even k
// are added up apart from those of odd k, then both are added to it. So its bits follow from K alone, whatever the
// sizes of tiles and panels are.

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

//@ block()
/* Sums (32 x 32) in the registers: those of memory if `more`, else zeros. Rows in memory have `row` elements. */
static inline void matrix_load(const float *sums, int row, bool more) {
    const size_t bytes = sizeof(float) * (size_t)row;
    const float *below = sums + 16 * row;
    if (more) {
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

/* Adds a (32 x depth) b (depth x 32) to the sums; depth is a multiple of 32. Rows of a have a_row elements; b has rows
 * of 32 pairs: b(k, j) beside b(k + 1, j) for an even k. */
static inline void matrix_terms(const bf16 *a, size_t a_row, const bf16 *b, int depth) {
    for (int k = 0; k < depth; k += 32, a += 32, b += 1024) {
        _tile_loadd(4, a, 2 * a_row);
        _tile_stream_loadd(6, b, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stream_loadd(7, b + 32, 128);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * a_row, 2 * a_row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
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

/* sums (32 x 32) = a b, or added to them if `more`. */
static inline void matrix_block(float *sums, int sums_row, bool more, const bf16 *a, size_t a_row, const bf16 *b,
                                int depth) {
    matrix_load(sums, sums_row, more);
    matrix_terms(a, a_row, b, depth);
    matrix_store(sums, sums_row);
}

//@ pairs()
/* 16 pairs of bf16, the first of a pair in the lower half. */
typedef uint32_t bf16_pairs __attribute__((vector_size(64), may_alias));

/* n, but at least 0 and at most `most`. */
static inline int at_most(int n, int most) { return n < 0 ? 0 : n < most ? n : most; }

static inline void store_pairs(bf16 *to, bf16_pairs x) { memcpy(to, &x, sizeof x); }

//@ pairs_along()
/* Pairs of neighbours of a row: its first n <= 32 elements, zeros behind them. */
static inline bf16_pairs pairs_along(const bf16 *x, int n) {
    bf16_pairs all = {0};
    if (n == 32) memcpy(&all, x, sizeof all);
    else memcpy(&all, x, (size_t)n * sizeof *x);
    return all;
}

//@ pairs_across()
/* The first n <= 16 elements of a row, each in a lane of its own. */
static inline bf16_pairs wide_row(const bf16 *x, int n) {
    typedef uint16_t row __attribute__((vector_size(32)));
    row all = {0};
    if (n == 16) memcpy(&all, x, sizeof all);
    else memcpy(&all, x, (size_t)n * sizeof *x);
    return __builtin_convertvector(all, bf16_pairs);
}

/* Pairs (x(0, j), x(1, j)) of `rows` <= 2 rows for the first n <= 16 columns j, zeros behind them. */
static inline bf16_pairs pairs_across(const bf16 *x, size_t stride, int rows, int n) {
    const bf16_pairs even = wide_row(x, rows > 0 ? n : 0), odd = wide_row(x + stride, rows > 1 ? n : 0);
    return even | odd << 16;
}

//@ turn_pairs()
/* Exchanges rows and columns of 16 x 16 pairs: each step exchanges one bit of their numbers. */
static inline __attribute__((always_inline)) void turn_pairs(bf16_pairs x[16]) {
    const bf16_pairs lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma GCC unroll 4
    for (int bit = 8; bit > 0; bit /= 2) {
        const bf16_pairs set = (lane & bit) / bit, upper = lane + set * (16 - bit), lower = upper + bit;
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            if (i & bit) continue;
            const bf16_pairs a = x[i], b = x[i + bit];
            x[i] = (bf16_pairs)_mm512_permutex2var_epi32((__m512i)a, (__m512i)upper, (__m512i)b);
            x[i + bit] = (bf16_pairs)_mm512_permutex2var_epi32((__m512i)a, (__m512i)lower, (__m512i)b);
        }
    }
}

//@ matrix_pack_rows()
/* A panel of B in blocks of 32 columns, in each rows of 32 pairs: B(k, j) = b[k * stride + j]; zeros behind the columns
 * and the depth up to a multiple of 32. `most`: the depth of a whole panel. */
static inline void matrix_pack_rows(bf16 *panel, int most, int columns, int depth, const bf16 *b, size_t stride) {
    for (int k = 0; k < (depth + 31) / 32 * 32; k += 2, b += 2 * stride)
        for (int j = 0; j < (columns + 31) / 32 * 32; j += 16)
            store_pairs(panel + j / 32 * 32 * most + 32 * k + 2 * (j % 32),
                        pairs_across(b + j, stride, at_most(depth - k, 2), at_most(columns - j, 16)));
}

//@ matrix_pack_columns()
/* As matrix_pack_rows, of B(k, j) = b[j * stride + k]. */
static inline void matrix_pack_columns(bf16 *panel, int most, int columns, int depth, const bf16 *b, size_t stride) {
    for (int j = 0; j < (columns + 31) / 32 * 32; j += 16, b += 16 * stride)
        for (int k = 0; k < depth; k += 32) {
            bf16_pairs x[16];
            for (int r = 0; r < 16; r++)
                x[r] = pairs_along(b + r * stride + k, j + r < columns ? at_most(depth - k, 32) : 0);
            turn_pairs(x);
            for (int r = 0; r < 16; r++)
                store_pairs(panel + j / 32 * 32 * most + 32 * (k + 2 * r) + 2 * (j % 32), x[r]);
        }
}

//@ matrix_part_rows()
/* Rows of A for blocks: A(i, k) = a[i * stride + k]; rows of `most` elements, zeros behind the rows and the depth up to
 * multiples of 32. */
static inline void matrix_part_rows(bf16 *part, int most, int rows, int depth, const bf16 *a, size_t stride) {
    for (int i = 0; i < (rows + 31) / 32 * 32; i++)
        for (int k = 0; k < depth; k += 32)
            store_pairs(part + i * most + k, pairs_along(a + i * stride + k, i < rows ? at_most(depth - k, 32) : 0));
}

//@ matrix_part_columns()
/* As matrix_part_rows, of A(i, k) = a[k * stride + i]. */
static inline void matrix_part_columns(bf16 *part, int most, int rows, int depth, const bf16 *a, size_t stride) {
    for (int k = 0; k < depth; k += 32, a += 32 * stride)
        for (int i = 0; i < (rows + 31) / 32 * 32; i += 16) {
            bf16_pairs x[16];
            for (int r = 0; r < 16; r++)
                x[r] = pairs_across(a + 2 * r * stride + i, stride, at_most(depth - k - 2 * r, 2),
                                    at_most(rows - i, 16));
            turn_pairs(x);
            for (int r = 0; r < 16; r++) store_pairs(part + (i + r) * most + k, x[r]);
        }
}
