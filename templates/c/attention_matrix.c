// attention_matrix: the tiles of attention by blocks of bf16 (templates/c/matrix.c). Scores lie with a row for each key
// and a column for each query, so that what belongs to a query stands in the lanes of vectors.

//@ cuts(parts)
/* A probability, or the gradient of a score, is the sum of CUT_PARTS operands, so of CUTS numbers of bf16. */
enum { CUT_PARTS = $parts, CUTS = CUT_PARTS * SLICES };

//@ tile_pack(type)
/* As matrix_pack_rows, but a pair has the rows k and k + 16 of 32: as cut_pairs has two neighbouring vectors. */
static inline void tile_pack(bf16 *panel, int most, int columns, int depth, const $type *b, size_t stride) {
    for (int k = 0; k < depth; k += 32, b += 32 * stride)
        for (int r = 0; r < 16; r++)
            for (int j = 0; j < (columns + 31) / 32 * 32; j += 16) {
                bf16_pairs x[SLICES];
                const int rows = k + r + 16 < depth ? 2 : k + r < depth ? 1 : 0;
                pairs_across(x, b + r * stride + j, 16 * stride, rows, at_most(columns - j, 16));
                store_pairs(panel + j / 32 * 32 * SLICES * most + 32 * (k + 2 * r) + 2 * (j % 32), x,
                            32 * (size_t)most);
            }
}

//@ tile_exp(rest)
/* e^x for x <= 0. With t = x / ln 2: 2^t = 2^floor(t) 2^r, 0 <= r < 1. NaN stays NaN, and e^-INFINITY is 0.
//% if rest then
 * r has what t was rounded by, so the error is below 1 ulp and, as 1 / ln 2 is rounded, 2^-26 x. */
//% else
 * Error below 1 ulp and, as t is rounded, 2^-24 x: less than the operands of bf16 that it is cut into keep. */
//% end
static inline __attribute__((always_inline)) vec tile_exp(vec x) {
//% if rest then
    const vec t = x * 1.44269504f, rest = vec_fma(x, vec_all(1.44269504f), -t);
    const vec r = (vec)_mm512_reduce_ps((__m512)t, 1) + rest;
//% else
    const vec t = x * 1.44269504f, r = (vec)_mm512_reduce_ps((__m512)t, 1);
//% end
    vec p = vec_fma(r, vec_all(2.15659718e-4f), vec_all(1.24822895e-3f));
    p = vec_fma(r, p, vec_all(9.67377517e-3f));
    p = vec_fma(r, p, vec_all(5.54861836e-2f));
    p = vec_fma(r, p, vec_all(0.240229085f));
    p = vec_fma(r, p, vec_all(0.693147063f));
    p = vec_fma(r, p, vec_all(1.0f));
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)t);
}

//@ cut_pairs()
/* Pairs of an element of a and one of b: each is the rest after those before it, halves rounded away from 0. Those of
 * one cut lie `distance` elements behind those of the cut before. A rest of NaN is NaN. */
static inline __attribute__((always_inline)) void cut_pairs(bf16 *to, size_t distance, vec a, vec b) {
    UNROLL for (int cut = 0; cut < CUTS; cut++) {
        const vec_bits x = (vec_bits)a + 0x8000, y = (vec_bits)b + 0x8000, pairs = x >> 16 | (y & 0xffff0000u);
        memcpy(to + cut * distance, &pairs, sizeof pairs);
        a -= (vec)(x & 0xffff0000u);
        b -= (vec)(y & 0xffff0000u);
    }
}

//@ tile_lanes()
/* x, of which the first n lanes are `other`; n may be negative. */
static inline vec tile_lanes(vec x, int n, real other) {
    const vec_bits lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vec_bits first = (vec_bits)(lane < (uint32_t)at_most(n, 16));
    return (vec)((first & (vec_bits)vec_all(other)) | (~first & (vec_bits)x));
}

static inline vec tile_vector(const real *x) { return vec_load(x, VEC_LANES); }

//@ tile_turn()
/* to(i, c) = from(c, i) for 32 columns i of from and `wide` rows c. */
static inline void tile_turn(real *to, const real *from, int wide) {
    for (int c = 0; c < wide; c += 16)
        for (int i = 0; i < 32; i += 16) {
            vec_bits row[16];
            for (int r = 0; r < 16; r++) memcpy(&row[r], from + (c + r) * 32 + i, sizeof row[r]);
            turn_vectors(row);
            for (int r = 0; r < 16; r++) memcpy(to + (i + r) * wide + c, &row[r], sizeof row[r]);
        }
}

//@ tile_matrix()
/* out(i, j) = sum over k < n of a(i, k) b(k, j), or added if `more`, for tall x wide elements, in whole blocks of 32
 * rows and columns. a and b are the sums of so many operands, for depths up to `most`, with zeros behind n up to a
 * multiple of 32. */
static inline void tile_matrix(float *out, int out_row, bool more, const bf16 *a, int a_parts, const bf16 *b,
                               int b_parts, int most, int tall, int wide, int n) {
    for (int i = 0; i < tall; i += 32)
        for (int j = 0; j < wide; j += 32)
            matrix_block_of_parts(out + i * out_row + j, out_row, more, a + i * a_parts * SLICES * most, a_parts,
                                  b + j * b_parts * SLICES * most, b_parts, (size_t)most, (n + 31) / 32 * 32);
}

//@ tile_gradients()
/* Scores p of 32 keys and 32 queries, and dy . v in ds, become probabilities and gradients of scores, cut: p_part has a
 * row of `most` queries for each key, and so has ds_part; ds_pairs has pairs of keys. The first hidden[j] queries do
 * not see key j. `kept` has a factor for each probability, or is NULL. */
static __attribute__((noinline)) void tile_gradients(bf16 *p_part, bf16 *ds_part, int most, bf16 *ds_pairs,
                                                     size_t distance, const real *p, const real *ds, real scale,
                                                     const real *level, const real *mean, const int *hidden,
                                                     const real *kept) {
    const vec shift[2] = {-tile_vector(level), -tile_vector(level + 16)};
    const vec less[2] = {-scale * tile_vector(mean), -scale * tile_vector(mean + 16)};
    for (int j = 0; j < 32; j += 2, p_part += 2 * most, ds_part += 2 * most, ds_pairs += 64) {
        vec x[4], d[4];
        UNROLL for (int v = 0; v < 4; v++) {
            const int at = 32 * j + 16 * v;
            x[v] = tile_exp(vec_fma(tile_vector(p + at), vec_all(scale), shift[v % 2]));
            const int first = hidden[j + v / 2] - 16 * (v % 2);
            if (first > 0) x[v] = tile_lanes(x[v], first, 0);
            d[v] = x[v] * vec_fma(kept ? tile_vector(ds + at) * tile_vector(kept + at) : tile_vector(ds + at),
                                  vec_all(scale), less[v % 2]);
            if (kept) x[v] *= tile_vector(kept + at);
        }
        cut_pairs(p_part, 32 * (size_t)most, x[0], x[1]);
        cut_pairs(p_part + most, 32 * (size_t)most, x[2], x[3]);
        cut_pairs(ds_part, 32 * (size_t)most, d[0], d[1]);
        cut_pairs(ds_part + most, 32 * (size_t)most, d[2], d[3]);
        cut_pairs(ds_pairs, distance, d[0], d[2]);
        cut_pairs(ds_pairs + 32, distance, d[1], d[3]);
    }
}

//@ attention_matrix()
/* The number of the first queries of a block of 32 that do not see key j of a tile of m keys: all of them behind the
 * tile and where the mask is 0, else `earlier`. */
static inline int tile_hidden(int j, int m, const int32_t *mask, int earlier) {
    return j >= m || (mask && mask[j] == 0) ? 32 : earlier;
}

/* The scores of the first n of 32 queries become -INFINITY; n may be negative. */
static inline void tile_hide_first(real *score, int n) {
    for (int i = 0; i < 32 && i < n; i += 16)
        vec_store(score + i, tile_lanes(tile_vector(score + i), n - i, -INFINITY), VEC_LANES);
}

/* The greatest score of 32 queries over `keys` keys, at least as large as `greatest`. */
static inline void tile_greatest(real *greatest, const real *score, int keys) {
    for (int j = 0; j < keys; j++, score += 32)
        for (int i = 0; i < 32; i++) greatest[i] = score[i] > greatest[i] ? score[i] : greatest[i];
}

/* The scores of 32 queries become exponentials, cut into `part`; total: their sums. `kept` has a factor for each behind
 * the sum, or is NULL. Runs of 32 keys are added up apart. */
static __attribute__((noinline)) void tile_weights(bf16 *part, size_t distance, real *total, const real *score,
                                                   int keys, real scale, const real *from, const real *kept) {
    for (int i = 0; i < 32; i += 16) {
        const vec shift = -tile_vector(from + i);
        vec sum = {0};
        for (int run = 0; run < keys; run += 32) {
            vec few = {0};
            for (int j = run; j < run + 32; j += 2) {
                const size_t at = (size_t)j * 32 + i;
                vec a = tile_exp(vec_fma(tile_vector(score + at), vec_all(scale), shift));
                vec b = tile_exp(vec_fma(tile_vector(score + at + 32), vec_all(scale), shift));
                few += a + b;
                if (kept) a *= tile_vector(kept + at), b *= tile_vector(kept + at + 32);
                cut_pairs(part + 32 * j + 2 * i, distance, a, b);
            }
            sum += few;
        }
        vec_store(total + i, sum, VEC_LANES);
    }
}
