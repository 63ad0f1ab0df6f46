// wide: rows of C elements that a block goes over, ROW apart in memory. FEW neighbours are moved at once. If ROW is a
// multiple of FEW, each row begins with all of them, and those behind its end belong to nobody. Else rows lie behind
// each other, so that one may begin inside of FEW neighbours; those of other rows stay apart.

//@ wide()
/* A thread's first element of a row, below 0 where its first neighbours belong to the row before. */
template <int ROW, int FEW> GA_DEVICE int ga_first_of_row(ga_int64 row) {
    return (int)threadIdx.x * FEW - (int)(row * ROW % FEW);
}

/* Reads those of FEW neighbours that are inside a row. */
template <int C, int ROW, int FEW, typename T> GA_DEVICE ga_few<T, FEW> ga_read_within(const T *row, int first) {
    if (ROW % FEW == 0 || (first >= 0 && first + FEW <= C)) return ga_read<FEW>(row + first);
    ga_few<T, FEW> few;
#pragma unroll
    for (int e = 0; e < FEW; e++)
        if (first + e >= 0 && first + e < C) few.at[e] = row[first + e];
    return few;
}

template <int C, int ROW, int FEW, typename T>
GA_DEVICE void ga_write_within(T *row, int first, const ga_few<T, FEW> &few) {
    if (ROW % FEW == 0 || (first >= 0 && first + FEW <= C)) return ga_write(row + first, few);
#pragma unroll
    for (int e = 0; e < FEW; e++)
        if (first + e >= 0 && first + e < C) row[first + e] = few.at[e];
}

/* Calls see(c, x) for each element of a row that a thread of the block has. */
template <int C, int ROW, int THREADS, int FEW, typename T, typename F>
GA_DEVICE void ga_each_of_row(const T *row, ga_int64 number, F see) {
    for (int first = ga_first_of_row<ROW, FEW>(number); first < C; first += THREADS * FEW) {
        const auto few = ga_read_within<C, ROW, FEW>(row, first);
#pragma unroll
        for (int e = 0; e < FEW; e++)
            if (first + e >= 0 && first + e < C) see(first + e, ga_get(few.at[e]));
        if (C + FEW - 1 <= THREADS * FEW) return; /* a short row: each thread has seen its only ones */
    }
}

/* Calls see(x) for FEW neighbours at once of those that a thread of the block has; outside of the row they are `none`.
 * So many of them are read before the first are seen. */
template <int C, int ROW, int THREADS, int FEW, typename T, typename F>
GA_DEVICE void ga_few_of_row(const T *row, ga_int64 number, real none, F see) {
    enum { MANY = 4, STEP = THREADS * FEW };
    for (int begin = ga_first_of_row<ROW, FEW>(number); begin < C; begin += MANY * STEP) {
        ga_few<T, FEW> few[MANY];
#pragma unroll
        for (int k = 0; k < MANY; k++)
            if (begin + k * STEP < C) few[k] = ga_read_within<C, ROW, FEW>(row, begin + k * STEP);
#pragma unroll
        for (int k = 0; k < MANY; k++) {
            const int first = begin + k * STEP;
            if (first >= C) break;
            real x[FEW];
#pragma unroll
            for (int e = 0; e < FEW; e++) x[e] = ga_get(few[k].at[e]);
            if (first < 0 || first + FEW > C) {
#pragma unroll
                for (int e = 0; e < FEW; e++)
                    if (first + e < 0 || first + e >= C) x[e] = none;
            }
            see(x);
        }
    }
}
