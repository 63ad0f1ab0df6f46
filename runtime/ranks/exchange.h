/* exchange.h: one collective over a run of elements that is divided over the ranks. */
#ifndef GA_EXCHANGE_H
#define GA_EXCHANGE_H

#include "base/ga.h"

enum { GA_COMM_REQUESTS = 256 }; /* request numbers are 0..255 */

typedef enum ga_exchange_kind {
    GA_ALL_REDUCE,     /* values become the sums over the ranks */
    GA_REDUCE_SCATTER, /* only the own cut becomes the sums; the rest of values is left as it was or undefined */
    GA_ALL_GATHER      /* each cut of values comes from the rank that owns it */
} ga_exchange_kind;

/* Sums are taken in the order of the ranks, so that they do not depend on a library. */
typedef struct ga_exchange {
    ga_exchange_kind kind;
    void *values;        /* n elements */
    int64_t n;           /* at most INT_MAX */
    const int64_t *cuts; /* rank i owns elements cuts[i] to cuts[i + 1] - 1; NULL: as ga_cut gives them */
    ga_dtype type;       /* GA_F32 or GA_F64; of a gather 16 bits too */
    ga_dtype wire;       /* of the parts that travel to be summed: `type`; or, for GA_F32, GA_BF16 or GA_F16: each
                            rank's part is rounded once, and summed as GA_F32 */
    void *shard;         /* GA_REDUCE_SCATTER: gets the sums of the own cut; NULL: they stay in values.
                            GA_ALL_GATHER: has the own cut; NULL: it is in values */
    bool add;            /* the sums are added to what the shard has */
    int group;           /* of comm.h, whose ranks the cuts are for; 0: all ranks */
} ga_exchange;

/* Cuts without a table are equal multiples of so many elements; the last rank has the rest too. */
enum { GA_CUT = 16 };

/* The first element of rank i; i = size: n. */
int64_t ga_cut(const ga_exchange *x, int i, int size);

/* GA_BUG unless the fields fit together. */
int ga_exchange_check(const ga_exchange *x, int request, ga_err *e);

const char *ga_exchange_name(const ga_exchange *x); /* of its kind, for messages */

/* Bytes that one rank's values have on the wire: those of the counters. */
int64_t ga_exchange_bytes(const ga_exchange *x);

/* out[i], or with add out[i] + it, = parts[0][i] + parts[1][i] + ... in this order. out is of `type`, parts are of
 * `wire`; out may be one of the parts if both are of one type. */
void ga_exchange_sum(void *out, bool add, const void *const *parts, int count, int64_t n, ga_dtype type, ga_dtype wire);

/* Rounds n floats to GA_BF16 or GA_F16; the second keeps them floats. */
void ga_exchange_narrow(void *out, const float *from, int64_t n, ga_dtype wire);
void ga_exchange_round(float *values, int64_t n, ga_dtype wire);

#endif
