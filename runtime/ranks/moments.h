/* moments.h: averages and variances over the values of all ranks, for batch normalisation. Additions run in the order
 * of the ranks, so all ranks get the same bits. With one rank all numbers stay as they are. All ranks make the same
 * calls in the same order. */
#ifndef GA_MOMENTS_H
#define GA_MOMENTS_H

#include "ranks/comm.h"

/* all: of each rank the count of its values, the averages of `channels` channels, then their variances (sums of squares
 * over the count); this rank has filled in its own. The numbers of rank 0 become those of the values of all ranks, by
 * the formula of Chan, Golub and LeVeque. */
int ga_moments_join(ga_comm *c, double *all, int channels, ga_err *e);

/* The same without the exchange: the numbers of all ranks are there. A rank may have no values. */
void ga_moments_merge(double *all, int ranks, int channels);

/* all: n numbers of each rank; this rank has filled in its own. Those of rank 0 become the sums over the ranks. */
int ga_moments_add(ga_comm *c, double *all, int n, ga_err *e);

#endif
