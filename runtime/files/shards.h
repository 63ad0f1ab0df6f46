/* shards.h: arrays that are divided over the ranks, brought together on rank 0. All functions are collective, and allow
 * whole arrays too; a shard is given on all ranks or on none. */
#ifndef GA_SHARDS_H
#define GA_SHARDS_H

#include "files/safetensors.h"
#include "ranks/comm.h"

/* Gives rank 0 iteration l of a parameter of the array, p->n elements; out is not used on the other ranks. */
int ga_shard_collect(ga_comm *c, const ga_array *a, const ga_param *p, int l, void *out, ga_err *e);

enum { GA_ALL_RANKS = -1 };

/* Writes the values of a file that only rank 0 has; f is not used on the other ranks. They are those that rank `of`
 * holds, or with GA_ALL_RANKS those of all ranks. They travel in pieces, without allocation. Rank 0 alone returns a
 * failure of writing, a rank that of reading what it holds. */
int ga_shard_put(ga_comm *c, ga_values_file f, const ga_array *arrays, int count, int of, ga_err *e);

/* ga_safetensors_save by rank 0 alone: the bytes of the whole arrays. */
int ga_shard_save(ga_comm *c, const char *path, const ga_array *arrays, int count, ga_err *e);

/* GA_BUG unless the ranks hold as many elements of each divided array as it has. */
int ga_shard_check(ga_comm *c, const ga_array *arrays, int count, ga_err *e);

#endif
