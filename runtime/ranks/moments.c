/* moments.c: averages and variances over the values of all ranks. */
#include "ranks/moments.h"

/* Values a and b together have the average and the variance
 *   mean = mean_a + d n_b / n,  variance = (n_a variance_a + n_b variance_b) / n + d^2 n_a n_b / n^2
 * with d = mean_b - mean_a, n = n_a + n_b. */
void ga_moments_merge(double *all, int ranks, int channels) {
    double *mean = all + 1, *variance = mean + channels;
    for (int rank = 1; rank < ranks; rank++) {
        const double *its = all + (size_t)rank * (1 + 2 * (size_t)channels), before = all[0], n = before + its[0];
        if (its[0] == 0) continue;
        const double share = its[0] / n;
        for (int c = 0; c < channels; c++) {
            const double apart = its[1 + c] - mean[c];
            mean[c] += apart * share;
            variance[c] = (before * variance[c] + its[0] * its[1 + channels + c]) / n;
            variance[c] += apart * apart * (before / n) * share;
        }
        all[0] = n;
    }
}

int ga_moments_join(ga_comm *c, double *all, int channels, ga_err *e) {
    GA_TRY(ga_comm_gather(c, all, 1 + 2 * (size_t)channels, e));
    ga_moments_merge(all, ga_comm_size(c), channels);
    return GA_OK;
}

int ga_moments_add(ga_comm *c, double *all, int n, ga_err *e) {
    GA_TRY(ga_comm_gather(c, all, (size_t)n, e));
    for (int rank = 1; rank < ga_comm_size(c); rank++)
        for (int i = 0; i < n; i++) all[i] += all[(size_t)rank * (size_t)n + (size_t)i];
    return GA_OK;
}
