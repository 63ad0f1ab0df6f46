// tensor_sums: sums of an operand of a product on tensor cores over the terms, from the slices that the product reads.

//@ tensor_sums(type, half)
/* The operand that is summed, too. It is a turned one. */
enum { GA_OF_NONE, GA_OF_A, GA_OF_B };

/* Threads that share the terms of eight neighbours, every eighth one for each: so bits depend on no tile. */
enum { GA_TEAMS = 8 };

/* Adds the terms of a slice, for the eight neighbours of this thread. */
template <int EXTENT> GA_DEVICE void ga_sum_terms(float (&sums)[8], const ga_byte *slice) {
    const int chunk = threadIdx.x % (EXTENT / 8), team = threadIdx.x / (EXTENT / 8);
    if (team >= GA_TEAMS) return;
#pragma unroll
    for (int k = 0; k < GA_DEPTH; k += GA_TEAMS) {
        const ga_byte *at = slice + chunk / 8 * (128 * GA_DEPTH) + ga_chunk<true>(k + team, chunk % 8);
        ga_add8<true>(sums, (const $type *)at, 8);
    }
}

/* Adds up the sums of the teams in their order, and calls put(i, sum) for each of the EXTENT sums. */
template <int EXTENT, int THREADS, typename PUT>
GA_DEVICE void ga_sums_store(float *scratch, const float (&sums)[8], PUT put) {
    const int chunk = threadIdx.x % (EXTENT / 8), team = threadIdx.x / (EXTENT / 8);
    if (team < GA_TEAMS) ga_put8<true>(scratch + team * EXTENT + chunk * 8, sums, 8);
    __syncthreads(); /* all teams have their sums there */
    for (int i = threadIdx.x; i < EXTENT; i += THREADS) {
        float sum = scratch[i];
        for (int t = 1; t < GA_TEAMS; t++) sum += scratch[t * EXTENT + i];
        put(i, sum);
    }
    __syncthreads(); /* the scratch is free */
}
