/* sent.h: what a rank sends of its parameters where kernels read some of them in 16 bits. An element of these is one
 * word of 16 bits, rounded once per update, any other is two words as it is. A bucket without any of these is sent as
 * its rank has it. */
#ifndef GA_SENT_H
#define GA_SENT_H

#include "files/layout.h"

/* Elements of one kind, at most GA_SENT_MOST, behind each other in memory and among what is sent. */
typedef struct ga_sent_run {
    int64_t from; /* in the memory of this rank's parameters, division.own */
    int64_t to;   /* first word among what it sends */
    int n;
    bool half;
} ga_sent_run;

enum { GA_SENT_MOST = 16384 };

typedef struct ga_sent {
    ga_dtype half;     /* GA_BF16 or GA_F16 */
    int size;          /* ranks */
    int64_t *cuts;     /* of each bucket size + 1: its words of each rank, as in ga_exchange */
    int64_t *places;   /* of each bucket: the first word of this rank's part among what it sends */
    ga_sent_run *runs; /* all that this rank sends */
    int count;
    int64_t words; /* of it */
} ga_sent;

/* halves: of each parameter whether kernels read it in 16 bits, `half`. The elements behind a tensor, up to a multiple
 * of GA_CUT, are of its kind; cuts of buckets are such multiples. */
int ga_sent_open(ga_sent *s, const ga_division *d, const ga_param *params, const bool *halves, int count, ga_dtype half,
                 ga_err *e);
void ga_sent_close(ga_sent *s);

/* The cuts of a bucket's words, for ga_exchange; NULL: the bucket is sent as it is. */
const int64_t *ga_sent_cuts(const ga_sent *s, int bucket);

/* Writes a run of what this rank sends; own: its parameters. */
void ga_sent_pack(const ga_sent *s, int run, const float *own, uint16_t *words);

#endif
