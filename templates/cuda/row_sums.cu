// row_sums: the gradient of a norm with respect to its input, which sums over the rows, too.

//@ row_sums()
/* Multiplies a thread's elements of a row by those of another one. */
template <int C, int LANES, int FEW, int EACH, typename T> GA_DEVICE void ga_scale_row(real (&v)[EACH], const T *row) {
#pragma unroll
    for (int k = 0; k < EACH; k += FEW) {
        const int c = ga_place<LANES, FEW>(k);
        ga_few<T, FEW> few;
        if (c < C) few = ga_read<FEW>(row + c);
#pragma unroll
        for (int e = 0; e < FEW; e++) v[k + e] *= c < C ? ga_get(few.at[e]) : (real)0;
    }
}

/* Writes the sums of TEAMS teams of a block, each a row, added up in their order; `scratch` is shared memory for all of
 * them, if there are several. */
template <int C, int LANES, int FEW, int TEAMS, int EACH>
GA_DEVICE void ga_write_sums(real *row, const real (&v)[EACH], real *scratch) {
    if (TEAMS == 1) return ga_write_row<C, LANES, FEW>(row, v);
    __syncthreads(); /* nobody reads what was there any more */
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int c = ga_place<LANES, FEW>(k);
        if (c < C) scratch[threadIdx.x / LANES * C + c] = v[k];
    }
    __syncthreads(); /* the sums of all teams are there */
    for (int c = threadIdx.x * FEW; c < C; c += TEAMS * LANES * FEW) {
        auto sum = ga_read<FEW>(scratch + c);
        for (int team = 1; team < TEAMS; team++) {
            const auto few = ga_read<FEW>(scratch + team * C + c);
#pragma unroll
            for (int e = 0; e < FEW; e++) sum.at[e] += few.at[e];
        }
        ga_write(row + c, sum);
    }
}
