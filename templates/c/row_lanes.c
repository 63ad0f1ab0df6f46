// row_lanes: the order in which the elements of a row are added up.

//@ row_lanes()
/* Sums along a row in an order that does not depend on the compiler: element c goes to lane c % ROW_LANES, then the
 * upper half of the lanes is added to the lower one, until one is left. */
enum { ROW_LANES = 16, ROW_VECTORS = ROW_LANES / VEC_LANES };

static inline vec row_part(const real *x, int v) { return vec_load(x + v * VEC_LANES, VEC_LANES); }

static inline real row_lanes(const real *lane) {
    real eight[8], four[4], two[2];
    for (int j = 0; j < 8; j++) eight[j] = lane[j] + lane[j + 8];
    for (int j = 0; j < 4; j++) four[j] = eight[j] + eight[j + 4];
    for (int j = 0; j < 2; j++) two[j] = four[j] + four[j + 2];
    return two[0] + two[1];
}
