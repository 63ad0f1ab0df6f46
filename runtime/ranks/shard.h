/* shard.h: how the flat space is divided over the ranks, and what one rank holds of an array. */
#ifndef GA_SHARD_H
#define GA_SHARD_H

#include "ranks/comm.h"

/* How a bucket is divided over the ranks. */
typedef enum ga_sharing {
    GA_BY_ELEMENT, /* any element may be the first one of a rank */
    GA_BY_TENSOR,  /* each tensor belongs to one rank */
    GA_BY_BUCKET   /* all of it belongs to one rank */
} ga_sharing;

/* A run of the flat space that one exchange sums. */
typedef struct ga_bucket {
    int64_t offset, n;
    ga_exchange_kind kind;
    ga_dtype wire; /* as in ga_exchange */
    ga_sharing sharing;
} ga_bucket;

/* Elements from .. from + n - 1 of the whole array, at element `at` of the rank's memory. */
typedef struct ga_piece {
    int64_t from, n, at;
} ga_piece;

/* All that a rank holds of an array: pieces that do not overlap, in rising order of `from` and of `at`. */
typedef struct ga_shard {
    ga_piece *pieces;
    int count;
    int64_t elements; /* of the rank's memory: each piece has a multiple of GA_CUT */
} ga_shard;

/* The division of the flat space over the ranks. */
typedef struct ga_division {
    const ga_bucket *buckets;
    int count, rank, size;
    const ga_comm *comm; /* with groups; else NULL */
    const int *groups;   /* of each bucket, whose lists divide it; else NULL: all ranks do */
    int64_t *cuts;     /* of each bucket size + 1 or fewer, as in ga_exchange */
    ga_shard own;      /* the flat space of this rank, in an array that has nothing else */
    ga_shard in_place; /* the same, in an array over the whole flat space */
    ga_shard others;   /* of all other ranks, in such an array */
} ga_division;

/* Divides each bucket. GA_BY_ELEMENT: at equal multiples of GA_CUT elements, the last rank has the rest. GA_BY_TENSOR:
 * at the beginnings of tensors, so that the rank with the most has as little as possible, the largest buckets first.
 * GA_BY_BUCKET: in the order of the flat space each goes to the rank with the fewest elements so far, the lowest of
 * equal ones. starts: the first elements of all tensors in buckets of GA_BY_TENSOR, in rising order. The result does
 * not depend on the rank. */
int ga_division_open(ga_division *d, const ga_bucket *buckets, int count, const int64_t *starts, int start_count,
                     int rank, int size, ga_err *e);

/* As ga_division_open at equal multiples, where bucket i is divided over the ranks of the own list of group groups[i],
 * so that each list has a whole copy of it. */
int ga_division_open_in(ga_division *d, const ga_bucket *buckets, int count, const int *groups, const ga_comm *c,
                        ga_err *e);
void ga_division_close(ga_division *d);

/* The cuts of bucket i, for ga_exchange; where this rank's part of the bucket begins in an array that has nothing but
 * such parts. */
const int64_t *ga_division_cuts(const ga_division *d, int i);
int64_t ga_division_place(const ga_division *d, int i);

/* Gives all ranks the whole of an array over the flat space of which each has changed its own part. Buckets that are
 * not scattered have been changed alike by all. Collective. */
int ga_division_gather(const ga_division *d, ga_comm *c, void *flat, ga_dtype type, ga_err *e);

/* Room for `count` pieces; GA_ENVIRONMENT without memory. */
int ga_shard_open(ga_shard *s, int count, ga_err *e);
void ga_shard_close(ga_shard *s);

/* Appends a piece; its memory lies behind that of the piece before. */
void ga_shard_add(ga_shard *s, int64_t from, int64_t n);

/* Where element i of the whole array lies in the rank's memory; -1: the rank does not have it. */
int64_t ga_shard_place(const ga_shard *s, int64_t i);

#endif
