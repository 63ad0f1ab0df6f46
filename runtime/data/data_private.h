/* data_private.h: functions of data.c for loader.c that fill a micro-batch in memory. */
#ifndef GA_DATA_PRIVATE_H
#define GA_DATA_PRIVATE_H

#include "data/data.h"

/* Offset of a field in a micro-batch of `rows` rows; with field = s->fields, of its ga_micro. */
size_t ga_batch_offset(const ga_source *s, int field, int64_t rows);

/* Fills in the micro-batch at place p from rows in memory. */
void ga_batch_fill(const ga_loader_config *c, const ga_place *p, char *batch);

/* The same from a feed positioned before it. Returns the rows read for all ranks, fewer than batch *
 * world only at the end of the feed, or a negative status. */
int64_t ga_batch_read(const ga_loader_config *c, const ga_place *p, char *batch, ga_err *e);

#endif
