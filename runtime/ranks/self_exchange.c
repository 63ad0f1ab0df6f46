/* self_exchange.c: exchanges in a group of one process: the own cut is all there is. */
#include "ranks/self_exchange.h"

#include <string.h>

/* A part that would travel in 16 bits is rounded like any other. */
int ga_comm_start(ga_comm *c, int request, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, request, e));
    ga_comm_counts *counts = ga_self_counts(c);
    counts->collectives++;
    counts->bytes += ga_exchange_bytes(x);
    if (x->kind == GA_ALL_GATHER) {
        if (x->shard) memcpy(x->values, x->shard, (size_t)x->n * ga_dtype_bytes(x->type));
        return GA_OK;
    }
    if (x->wire != x->type) ga_exchange_round(x->values, x->n, x->wire);
    const void *part = x->values;
    if (x->shard) ga_exchange_sum(x->shard, x->add, &part, 1, x->n, x->type, x->type);
    return GA_OK;
}
