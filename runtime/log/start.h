/* start.h: whether all ranks start alike: with the same inputs, and then with the same values. */
#ifndef GA_START_H
#define GA_START_H

#include "files/ckpt.h"
#include "log/options.h"

/* GA_INPUT unless all ranks have the same options that training depends on, files of --init and data, seed, rows and
 * micro-steps; the message names the rank, the thing and both values. Collective. */
int ga_start_same_inputs(const ga_options *o, const ga_ckpt_state *now, ga_comm *comm, ga_err *e);

/* Compares the whole arrays of c->files, parameters and state, over the ranks. Where they differ all ranks get those of
 * rank 0, those of a list of ranks the values of its first one, and rank 0 says so. Collective. */
int ga_start_same_values(const ga_ckpt_config *c, ga_err *e);

#endif
