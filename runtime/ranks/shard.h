/* shard.h: how an array is divided over the ranks: what one rank holds of it, and where that lies in its memory. */
#ifndef GA_SHARD_H
#define GA_SHARD_H

#include "base/ga.h"

/* Elements from .. from + n - 1 of the whole array, at element `at` of the rank's memory. */
typedef struct ga_piece {
    int64_t from, n, at;
} ga_piece;

/* All that a rank holds of an array: pieces that do not overlap, in rising order of `from` and of `at`. */
typedef struct ga_shard {
    ga_piece *pieces;
    int count;
    int64_t elements; /* of the rank's memory */
} ga_shard;

#endif
