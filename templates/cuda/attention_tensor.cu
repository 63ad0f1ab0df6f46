// attention_tensor: the functions that the kernels of attention on tensor cores call for their tiles.

//@ attention_tensor(type, half)
/* -- attention on tensor cores: each warp of a block has 16 TALL rows of its own side, queries or keys, and goes over
 * those of the other side, ROWS at a time. Scores never leave the registers: as ga_multiply leaves them, they are the
 * first operand of the next product. Of a 16 x 8 block a thread has elements e = 0 .. 3 in row lane / 4 + e / 2 * 8
 * and column lane % 4 * 2 + e % 2. */
const float GA_LOG2_E = 1.4426950408889634f; /* exponentials are computed as powers of 2 */
enum { GA_OWN_WARPS = 4, GA_OWN_THREADS = GA_OWN_WARPS * GA_LANES };

/* Rows of D elements in shared memory, zeros up to WIDTH; 16 bytes more put eight rows at one chunk in other banks. */
template <int D> struct ga_rows {
    enum { WIDTH = (D + 15) / 16 * 16, CHUNKS = WIDTH / 8, BYTES = 2 * WIDTH + 16 };
};

/* Begins the copy of n of ROWS rows, `stride` apart; zeros for the others. */
template <int ROWS, int D>
GA_DEVICE void ga_rows_begin(ga_byte *to, const $type *rows, ga_int64 stride, int n) {
    enum { CHUNKS = ga_rows<D>::CHUNKS, ALL = ROWS * CHUNKS };
#pragma unroll
    for (int k = 0; k < (ALL + GA_OWN_THREADS - 1) / GA_OWN_THREADS; k++) {
        const int s = k * GA_OWN_THREADS + threadIdx.x, row = s / CHUNKS, chunk = s % CHUNKS;
        const bool there = row < n && chunk * 8 < D;
        const $type *from = there ? rows + row * stride + chunk * 8 : rows;
        if (s < ALL) ga_copy_begin(to + row * ga_rows<D>::BYTES + chunk * 16, from, there ? 16 : 0);
    }
}

$(attention_mask { })

/* score(i, j) = own(i) . other(j), `own` being the first row of this warp. */
template <int TALL, int ROWS, int D>
GA_DEVICE void ga_row_dots(float (&score)[TALL][ROWS / 8][4], const ga_byte *own, const ga_byte *other, int lane) {
    enum { BYTES = ga_rows<D>::BYTES };
    for (int u = 0; u < TALL; u++)
        for (int v = 0; v < ROWS / 8; v++)
            for (int e = 0; e < 4; e++) score[u][v][e] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        ga_uint32 a[TALL][4];
#pragma unroll
        for (int u = 0; u < TALL; u++) ga_matrices(a[u], own + (u * 16 + lane % 16) * BYTES + k * 2 + lane / 16 * 16);
#pragma unroll
        for (int j = 0; j < ROWS; j += 16) {
            ga_uint32 b[4];
            ga_matrices(b, other + (j + lane / 16 * 8 + lane % 8) * BYTES + k * 2 + lane / 8 % 2 * 16);
#pragma unroll
            for (int u = 0; u < TALL; u++) {
                ga_multiply(score[u][j / 8], a[u], b[0], b[1]);
                ga_multiply(score[u][j / 8 + 1], a[u], b[2], b[3]);
            }
        }
    }
}

/* sum(i, c) += sum over j of weight(i, j) other(j, c); weights are rounded to $half. */
template <int TALL, int ROWS, int D>
GA_DEVICE void ga_row_sums(float (&sum)[TALL][ga_rows<D>::CHUNKS][4], const float (&weight)[TALL][ROWS / 8][4],
                           const ga_byte *other, int lane) {
#pragma unroll
    for (int j = 0; j < ROWS; j += 16) {
        ga_uint32 a[TALL][4];
#pragma unroll
        for (int u = 0; u < TALL; u++) {
            const float (&low)[4] = weight[u][j / 8], (&high)[4] = weight[u][j / 8 + 1];
            a[u][0] = ga_narrow_pair(low[0], low[1]), a[u][1] = ga_narrow_pair(low[2], low[3]);
            a[u][2] = ga_narrow_pair(high[0], high[1]), a[u][3] = ga_narrow_pair(high[2], high[3]);
        }
#pragma unroll
        for (int c = 0; c < D; c += 16) {
            ga_uint32 b[4];
            ga_matrices_turned(b, other + (j + lane % 16) * ga_rows<D>::BYTES + c * 2 + lane / 16 * 16);
#pragma unroll
            for (int u = 0; u < TALL; u++) {
                ga_multiply(sum[u][c / 8], a[u], b[0], b[1]);
                ga_multiply(sum[u][c / 8 + 1], a[u], b[2], b[3]);
            }
        }
    }
}

$(attention_softmax { })

//@ attention_mask()
/* Begins the copy of those of COUNT keys' mask that are among the next n; both are multiples of 4. */
template <int COUNT> GA_DEVICE void ga_mask_begin(int *to, const int *mask, int n) {
    const int first = 4 * threadIdx.x;
    if (first < COUNT && first < n) ga_copy_begin(to + first, mask + first, 16);
}

//@ attention_scores()
/* Calls see(u, v, e, row, column) for each element x[u][v][e] of a warp's blocks that this thread has. */
template <int TALL, int ROWS, typename SEE> GA_DEVICE void ga_each_score(int lane, SEE see) {
#pragma unroll
    for (int u = 0; u < TALL; u++)
#pragma unroll
        for (int v = 0; v < ROWS / 8; v++)
#pragma unroll
            for (int e = 0; e < 4; e++) see(u, v, e, u * 16 + lane / 4 + e / 2 * 8, v * 8 + lane % 4 * 2 + e % 2);
}

/* How far score (u, v, e) of a thread lies behind its first one, where a step down and a step across are so far. */
GA_DEVICE ga_int64 ga_score_at(ga_int64 down, ga_int64 across, int u, int v, int e) {
    return (u * 16 + e / 2 * 8) * down + (v * 8 + e % 2) * across;
}

//@ attention_softmax()
$(attention_scores { })

/* Turns scores into the exponentials of their distance from the largest score of their row so far; the sums taken with
 * a smaller one are scaled down. `scale`: of a score, times the log of e to base 2. */
template <int TALL, int WIDE, int CHUNKS>
GA_DEVICE void ga_softmax_step(float (&score)[TALL][WIDE][4], float (&sum)[TALL][CHUNKS][4], float (&largest)[TALL][2],
                               float (&total)[TALL][2], float scale) {
#pragma unroll
    for (int u = 0; u < TALL; u++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float top = largest[u][r], part = 0;
#pragma unroll
            for (int v = 0; v < WIDE; v++) top = fmaxf(top, fmaxf(score[u][v][2 * r], score[u][v][2 * r + 1]));
            top = fmaxf(top, __shfl_xor_sync(GA_ALL_LANES, top, 1));
            top = fmaxf(top, __shfl_xor_sync(GA_ALL_LANES, top, 2));
            const float from = top == -ga_infinity(top) ? 0 : top * scale; /* 0: this row sees nothing so far */
            const float shrink = ga_exp2(largest[u][r] * scale - from);
#pragma unroll
            for (int v = 0; v < WIDE; v++)
#pragma unroll
                for (int e = 2 * r; e < 2 * r + 2; e++)
                    part += score[u][v][e] = ga_exp2(score[u][v][e] * scale - from);
            largest[u][r] = top, total[u][r] = total[u][r] * shrink + part;
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) sum[u][c][2 * r] *= shrink, sum[u][c][2 * r + 1] *= shrink;
        }
    }
}

/* Divides the sums by the total of their row; calls lse(row, x) for each row once, x being the log of the sum of the
 * exponentials of its scores. A row that saw nothing gives 0 and 0. */
template <int TALL, int CHUNKS, typename LSE>
GA_DEVICE void ga_softmax_end(float (&sum)[TALL][CHUNKS][4], const float (&largest)[TALL][2],
                              const float (&total)[TALL][2], float scale, int lane, LSE lse) {
#pragma unroll
    for (int u = 0; u < TALL; u++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float all = total[u][r];
            all += __shfl_xor_sync(GA_ALL_LANES, all, 1);
            all += __shfl_xor_sync(GA_ALL_LANES, all, 2);
            const float factor = all == 0 ? 0 : 1 / all;
            if (lane % 4 == 0) lse(u * 16 + lane / 4 + r * 8, all == 0 ? 0 : largest[u][r] * scale + logf(all));
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) sum[u][c][2 * r] *= factor, sum[u][c][2 * r + 1] *= factor;
        }
    }
}

template <int TALL, int CHUNKS> GA_DEVICE void ga_scale(float (&sum)[TALL][CHUNKS][4], float factor) {
#pragma unroll
    for (int u = 0; u < TALL; u++)
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[u][c][e] *= factor;
}

/* Writes n of the block's rows, `stride` apart: this warp's sums, the first of them in row `first`. `scratch`: shared
 * memory that no warp needs any more. */
template <int D, int TALL, typename T>
GA_DEVICE void ga_rows_store(ga_byte *scratch, const float (&sum)[TALL][ga_rows<D>::CHUNKS][4], int first, int lane,
                             T *rows, ga_int64 stride, int n) {
    enum { WIDTH = ga_rows<D>::WIDTH };
    float *strip = (float *)scratch + threadIdx.x / GA_LANES * (16 * (WIDTH + 8));
    ga_strips_store<WIDTH>(strip, sum, lane, [&](int u, int row, int c, float (&value)[8]) {
        const int i = first + u * 16 + row;
        if (i < n && c < D) ga_put8<true>(rows + i * stride + c, value, 8);
    });
}
