// tensor_sums: sums of an operand of a product on tensor cores over the terms, from the slices that the product reads.

//@ tensor_sums(type, half)
/* The operand that is summed, too. It is a turned one. */
enum { GA_OF_NONE, GA_OF_A, GA_OF_B };

/* Threads that share the terms of eight neighbours of a slice, every eighth one for each: so bits depend on no tile. */
enum { GA_TEAMS = 8 };

/* Adds the terms of a slice, for the eight neighbours of this one of its threads. */
template <int EXTENT> GA_DEVICE void ga_sum_terms(float (&sums)[8], const ga_byte *slice, unsigned thread) {
    const int chunk = thread % (EXTENT / 8), team = thread / (EXTENT / 8);
    if (team >= GA_TEAMS) return;
#pragma unroll
    for (int k = 0; k < GA_DEPTH; k += GA_TEAMS) {
        const ga_byte *at = slice + chunk / 8 * (128 * GA_DEPTH) + ga_chunk<EXTENT >= 64>(k + team, chunk % 8);
        ga_add8<true>(sums, (const $type *)at, 8);
    }
}

/* Adds up the sums of the TEAMS in their order, and calls put(i, sums) for each four neighbours of the EXTENT sums. */
template <int EXTENT, int TEAMS, typename PUT>
GA_DEVICE void ga_sums_store(float *scratch, const float (&sums)[8], PUT put) {
    const int chunk = threadIdx.x % (EXTENT / 8), team = threadIdx.x / (EXTENT / 8), i = threadIdx.x * 4;
#pragma unroll
    for (int e = 0; e < 8 && team < TEAMS; e++) scratch[team * EXTENT + chunk * 8 + e] = sums[e];
    __syncthreads(); /* all teams have their sums there */
    if (i < EXTENT) {
        auto four = ga_read<4>(scratch + i);
#pragma unroll 8
        for (int t = 1; t < TEAMS; t++) {
            const auto more = ga_read<4>(scratch + t * EXTENT + i);
#pragma unroll
            for (int e = 0; e < 4; e++) four.at[e] += more.at[e];
        }
        put(i, four);
    }
    __syncthreads(); /* the scratch is free */
}
