// rows: rows of C elements in registers. A team of LANES threads, a warp or a block, has a row: each thread FEW
// neighbours from its first element on, and those STEP = LANES * FEW further each time, EACH in all.

//@ rows()
/* The number of a thread's row. */
template <int LANES> GA_DEVICE ga_int64 ga_row() {
    return LANES == GA_LANES ? ga_thread_first() / GA_LANES : blockIdx.x;
}

/* The sum over the threads of a row, the same in each; scratch is shared memory for 32 values. */
template <int LANES> GA_DEVICE real ga_row_sum(real v, real *scratch) {
    return LANES == GA_LANES ? ga_warp_sum(v) : ga_block_sum(v, scratch);
}

/* Where in the row a thread's element k is. */
template <int LANES, int FEW> GA_DEVICE int ga_place(int k) {
    return (k / FEW * LANES + (int)threadIdx.x % LANES) * FEW + k % FEW;
}

/* Reads a thread's elements of a row of C as they are in memory. */
template <int C, int LANES, int FEW, int N, typename T>
GA_DEVICE void ga_fetch_row(ga_few<T, FEW> (&few)[N], const T *row) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int c = ga_place<LANES, FEW>(k * FEW);
        if (c < C) few[k] = ga_read<FEW>(row + c);
    }
}

/* Their values; behind the row they are `none`. */
template <int C, int LANES, int FEW, int EACH, int N, typename T>
GA_DEVICE void ga_row_values(real (&v)[EACH], const ga_few<T, FEW> (&few)[N], real none = 0) {
#pragma unroll
    for (int k = 0; k < EACH; k++)
        v[k] = ga_place<LANES, FEW>(k / FEW * FEW) < C ? ga_get(few[k / FEW].at[k % FEW]) : none;
}

template <int C, int LANES, int FEW, int EACH, typename T>
GA_DEVICE void ga_read_row(real (&v)[EACH], const T *row, real none = 0) {
    ga_few<T, FEW> few[EACH / FEW];
    ga_fetch_row<C, LANES>(few, row);
    ga_row_values<C, LANES>(v, few, none);
}

/* Writes them, or adds them to what is there. */
template <int C, int LANES, int FEW, int EACH, typename T>
GA_DEVICE void ga_write_row(T *row, const real (&v)[EACH], bool add = false) {
#pragma unroll
    for (int k = 0; k < EACH; k += FEW) {
        const int c = ga_place<LANES, FEW>(k);
        ga_few<T, FEW> few;
        if (c >= C) continue;
        if (add) few = ga_read<FEW>(row + c);
#pragma unroll
        for (int e = 0; e < FEW; e++) ga_put(few.at[e], add ? ga_get(few.at[e]) + v[k + e] : v[k + e]);
        ga_write(row + c, few);
    }
}
