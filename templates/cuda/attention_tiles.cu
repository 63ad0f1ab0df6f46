// attention_tiles: the functions that the kernels of attention call for a tile.

//@ attention_tiles(half, type)
// Attention goes through its scores in tiles of TILE x TILE, with 256 threads as 16 x 16. Thread (down, across)
// has the rows down + 16 u and the columns across + 16 v. Elements of a head come in slices of DEPTH.
enum { GA_SIDE = 16, GA_TILE_THREADS = GA_SIDE * GA_SIDE };

// The sum (greatest value) over the 16 threads of a row, the same in each of them.
GA_DEVICE real ga_row_sum(real v) {
    for (int step = GA_SIDE / 2; step > 0; step /= 2) v += __shfl_xor_sync(GA_ALL_LANES, v, step);
    return v;
}
GA_DEVICE real ga_row_max(real v) {
    for (int step = GA_SIDE / 2; step > 0; step /= 2) {
        const real other = __shfl_xor_sync(GA_ALL_LANES, v, step);
        v = other > v || other != other ? other : v;
    }
    return v;
}

$(tile_products { half = half, type = type })

$(tile_store { half = half })

//@ tile_products(half, type)
// A slice of n rows, `stride` apart, of D elements from c0 on; 0 beyond.
template <int TILE, int DEPTH, int D>
GA_DEVICE void ga_tile_load(real (*tile)[DEPTH + 1], const $type *rows, ga_int64 stride, int n, int c0) {
    for (int s = threadIdx.x; s < TILE * DEPTH; s += GA_TILE_THREADS) {
        const int i = s / DEPTH, c = s % DEPTH;
//% if half then
        tile[i][c] = i < n && c0 + c < D ? $(half)_widen(rows[i * stride + c0 + c]) : (real)0;
//% else
        tile[i][c] = i < n && c0 + c < D ? rows[i * stride + c0 + c] : (real)0;
//% end
    }
}

// dots[u][v] = a(i) . b(j) for this thread's rows of a and of b, which are those of its columns.
template <int TILE, int DEPTH, int D>
GA_DEVICE void ga_tile_dots(real (*dots)[TILE / GA_SIDE], const $type *a, ga_int64 a_stride, int a_n,
                            const $type *b, ga_int64 b_stride, int b_n, real (*a_tile)[DEPTH + 1],
                            real (*b_tile)[DEPTH + 1]) {
    enum { TALL = TILE / GA_SIDE };
    const int down = threadIdx.x / GA_SIDE, across = threadIdx.x % GA_SIDE;
    for (int u = 0; u < TALL; u++)
        for (int v = 0; v < TALL; v++) dots[u][v] = 0;
    for (int c0 = 0; c0 < D; c0 += DEPTH) {
        ga_tile_load<TILE, DEPTH, D>(a_tile, a, a_stride, a_n, c0);
        ga_tile_load<TILE, DEPTH, D>(b_tile, b, b_stride, b_n, c0);
        __syncthreads();
#pragma unroll 8
        for (int c = 0; c < DEPTH; c++)
            for (int u = 0; u < TALL; u++)
                for (int v = 0; v < TALL; v++)
                    dots[u][v] = fma(a_tile[down + u * GA_SIDE][c], b_tile[across + v * GA_SIDE][c], dots[u][v]);
        __syncthreads();
    }
}

// sum[s][u][v] += sum over j of weight(i, j) rows(j, c), c = s DEPTH + across + 16 v. The weights may be written
// without waiting; when it returns, they and the slice may be written again.
template <int TILE, int DEPTH, int D>
GA_DEVICE void ga_tile_add(real (*sum)[TILE / GA_SIDE][DEPTH / GA_SIDE], real (*weight)[TILE + 1],
                           const $type *rows, ga_int64 stride, int n, real (*slice)[DEPTH + 1]) {
    const int down = threadIdx.x / GA_SIDE, across = threadIdx.x % GA_SIDE;
#pragma unroll
    for (int s = 0; s < (D + DEPTH - 1) / DEPTH; s++) {
        ga_tile_load<TILE, DEPTH, D>(slice, rows, stride, n, s * DEPTH);
        __syncthreads();
        for (int j = 0; j < TILE; j++)
            for (int u = 0; u < TILE / GA_SIDE; u++)
                for (int v = 0; v < DEPTH / GA_SIDE; v++)
                    sum[s][u][v] = fma(weight[down + u * GA_SIDE][j], slice[j][across + v * GA_SIDE], sum[s][u][v]);
        __syncthreads();
    }
}

//@ tile_store(half)
//% if half then
GA_DEVICE void ga_put(real *to, real value) {
    *to = value;
}
GA_DEVICE void ga_put($half *to, real value) {
    *to = $(half)_narrow(value);
}

//% end
// rows(i, c) = factor[u] sum[s][u][v] for n rows, `stride` apart.
//% if half then
template <int TILE, int DEPTH, int D, typename T>
GA_DEVICE void ga_tile_store(T *rows, ga_int64 stride, int n,
//% else
template <int TILE, int DEPTH, int D>
GA_DEVICE void ga_tile_store(real *rows, ga_int64 stride, int n,
//% end
                             const real (*sum)[TILE / GA_SIDE][DEPTH / GA_SIDE], const real *factor) {
    const int down = threadIdx.x / GA_SIDE, across = threadIdx.x % GA_SIDE;
#pragma unroll
    for (int s = 0; s < (D + DEPTH - 1) / DEPTH; s++) {
        for (int u = 0; u < TILE / GA_SIDE; u++) {
            for (int v = 0; v < DEPTH / GA_SIDE; v++) {
                const int i = down + u * GA_SIDE, c = s * DEPTH + across + v * GA_SIDE;
//% if half then
                if (i < n && c < D) ga_put(&rows[i * stride + c], factor[u] * sum[s][u][v]);
//% else
                if (i < n && c < D) rows[i * stride + c] = factor[u] * sum[s][u][v];
//% end
            }
        }
    }
}
