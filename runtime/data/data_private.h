/* data_private.h: one micro-batch in memory, as data.c fills it for loader.c. */
#ifndef GA_DATA_PRIVATE_H
#define GA_DATA_PRIVATE_H

#include "data/data.h"

/* Where a field of a micro-batch of `rows` rows begins; that behind the last one is the ga_micro. */
size_t ga_batch_offset(const ga_source *s, int field, int64_t rows);

/* The micro-batch at place p, from rows in memory. */
void ga_batch_fill(const ga_loader_config *c, const ga_place *p, char *batch);

/* The same from a feed that stands before it: how many rows there were on all ranks, fewer than
 * batch * world only at the end, or a negative status. */
int64_t ga_batch_read(const ga_loader_config *c, const ga_place *p, char *batch, ga_err *e);

#endif
