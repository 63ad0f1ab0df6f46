// row_largest: the greatest element of a row in registers (rows.cu).

//@ row_largest()
/* The greatest element of a row, the same in each of its threads; scratch is shared memory for 32 values. */
template <int LANES, int EACH> GA_DEVICE real ga_row_largest(const real (&v)[EACH], real *scratch) {
    real largest = -ga_infinity((real)0);
#pragma unroll
    for (int k = 0; k < EACH; k++) largest = v[k] > largest || v[k] != v[k] ? v[k] : largest;
    return LANES == GA_LANES ? ga_warp_max(largest) : ga_block_max(largest, scratch);
}
