/* shared.h: whether all ranks see a folder or a file of rank 0. All functions are collective; with one rank the answer
 * is true. */
#ifndef GA_SHARED_H
#define GA_SHARED_H

#include "ranks/comm.h"

/* Rank 0 leaves a file in its folder for a moment, and the others look for it. folder: a descriptor, -1: this rank has
 * no such folder; path: its name in messages; mark: a random text that all ranks know. */
int ga_shared_folder(ga_comm *c, int folder, const char *path, const char *mark, bool *shared, ga_err *e);

/* Compares what the ranks find at `path`: content, number of the inode, and time of the last change. A copy on another
 * host is another file. */
int ga_shared_file(ga_comm *c, const char *path, bool *shared, ga_err *e);

#endif
