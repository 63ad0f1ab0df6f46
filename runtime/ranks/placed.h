/* placed.h: which elements of a rank lie on its device, and which in host memory. */
#ifndef GA_PLACED_H
#define GA_PLACED_H

#include "ranks/shard.h"

/* Where a rank's own cut of a bucket lies. */
typedef enum ga_placing {
    GA_ON_DEVICE,     /* all of it */
    GA_STATE_ON_HOST, /* the optimizer's state in host memory, values and gradients on the device */
    GA_ON_HOST        /* all of it in host memory */
} ga_placing;

/* The rank's elements by their places; the arrays of a device have nothing else than what lies there. */
typedef struct ga_placed {
    const ga_division *division;
    const ga_placing *places; /* of each bucket */
    ga_shard values;        /* with values and gradients on the device */
    ga_shard state;         /* with their state there */
    ga_shard updated;       /* all others: the host updates them */
} ga_placed;

/* places: of each bucket of d; both must stay. */
int ga_placed_open(ga_placed *p, const ga_division *d, const ga_placing *places, ga_err *e);
void ga_placed_close(ga_placed *p);

/* The bucket that has element `at` of the flat space. */
int ga_placed_bucket(const ga_placed *p, int64_t at);

/* Where this rank's cut of bucket i begins in the array of values that has it: the device's, or the host's. */
int64_t ga_placed_at(const ga_placed *p, int i);

#endif
