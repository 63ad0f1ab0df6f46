/* comm.h: collectives over one process group. Link exactly one of comm_self.c, comm_mpi.c,
 * comm_nccl.c. Only the thread that opened the group (worker 0) calls these functions, and all ranks
 * make collective calls in the same order. If a rank dies, is stopped or hangs, the others end with exit 3
 * (pulse.h). */
#ifndef GA_COMM_H
#define GA_COMM_H

#include "base/arena.h"
#include "ranks/exchange.h"

typedef struct ga_comm ga_comm;
typedef struct ga_pulse ga_pulse;

enum {
    GA_WIRES = 4,      /* exchanges under way at once */
    GA_COMM_SMALL = 256, /* most numbers of a small sum */
    GA_GROUPS = 8        /* most groups beside that of all ranks */
};

/* Counters, kept with one rank too. collectives and bytes (of the values of one rank) count ga_comm_all_reduce,
 * ga_comm_gather and ga_comm_start, but not where a list of a group has one rank alone; small counts ga_comm_small.
 * Broadcast, barrier, agree and handshake are not counted. */
typedef struct ga_comm_counts {
    int64_t collectives, bytes, small;
} ga_comm_counts;

/* wires: an arena for the parts of exchanges under way, of which each has one part in GA_WIRES; larger ones travel in
 * pieces. NULL: this program starts no exchange. */
int ga_comm_open(ga_comm **out, ga_arena *a, const ga_arena *wires, ga_err *e);
void ga_comm_close(ga_comm *c); /* collective; NULL allowed */
int ga_comm_rank(const ga_comm *c);
int ga_comm_size(const ga_comm *c);
int ga_comm_local_size(const ga_comm *c); /* ranks on this host whose cores are also those of this rank */

/* Sums over the ranks in place: GA_F32, GA_F64, GA_I32 or GA_I64. All ranks get the same bits. */
int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e);

/* Gathers n doubles of each rank, in the order of the ranks: all has them, and this rank's own are in their place.
 * Programs of comm_nccl.c do not gather; it has no such function. */
int ga_comm_gather(ga_comm *c, double *all, size_t n, ga_err *e);

/* Starts an exchange: its values and shard must not be used before ga_comm_wait of the same request number. Exchanges
 * begin in the order in which they are started, several are under way at once. The number is free again after its
 * wait. */
int ga_comm_start(ga_comm *c, int request, const ga_exchange *x, ga_err *e);
int ga_comm_wait(ga_comm *c, int request, ga_err *e); /* returns 0 at once if the request is not in flight */

/* A group divides the ranks into lists, each of which exchanges for itself. Group 0 is all ranks in one list. */
typedef struct ga_group {
    const char *name;
    int first;        /* how many lists the groups before it have together */
    const int *lists; /* of each rank the number of its list, from 0 */
} ga_group;

/* Adds groups 1 to count, which stay the caller's. Collective, once, behind ga_comm_open. */
int ga_comm_divide(ga_comm *c, const ga_group *groups, int count, ga_err *e);
const ga_group *ga_comm_group(const ga_comm *c, int group); /* from 1; NULL: there are fewer */
int ga_comm_group_rank(const ga_comm *c, int group); /* the place of this rank in its list, from 0 */
int ga_comm_group_size(const ga_comm *c, int group); /* ranks of its list */

/* As ga_comm_all_reduce and ga_comm_broadcast, over the ranks of the own list; root: a place in it. */
int ga_comm_all_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_err *e);
int ga_comm_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int root, ga_err *e);

/* Sums n doubles, at most GA_COMM_SMALL, over the ranks in their order: the small sum of a boundary (norm, finite flag,
 * weight, loss, ...). Of the last `largest` of them each becomes the largest of the ranks. */
int ga_comm_small(ga_comm *c, double *values, size_t n, size_t largest, ga_err *e);

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e);
int ga_comm_barrier(ga_comm *c, ga_err *e);

/* The lowest value over the ranks, and the first rank that has it. */
int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e);

/* Ends all processes of the group, this one too, with exit_code: for a failure of one rank that the
 * others cannot see. With one rank it returns at once. */
void ga_comm_abort(ga_comm *c, int exit_code);

ga_comm_counts ga_comm_counted(const ga_comm *c);

/* The activity of a rank. The others wait for a rank without limit in all of them but GA_COMPUTES. */
typedef enum ga_doing { GA_STARTS, GA_COMPUTES, GA_READS, GA_SAVES, GA_EVALUATES } ga_doing;

/* Tells the other ranks what this one does from now on, and in or behind which cycle. */
void ga_comm_says(ga_comm *c, ga_doing doing, int64_t cycle);

/* A checkpoint is complete: what to resume from if a rank is lost. */
void ga_comm_saved(ga_comm *c, const char *checkpoint);

/* The pulse of the group, for waits outside of these functions; NULL with one rank. */
ga_pulse *ga_comm_pulse(ga_comm *c);

/* === made of the above, in agree.c ====================================================================== */

/* The number of this rank's list among those of all groups. */
int ga_comm_list(const ga_comm *c, int group);

/* The group of this name; -1: there is none. */
int ga_comm_group_named(const ga_comm *c, const char *name);

/* Agrees on success: each rank passes its code, 0 or a negative ga_status with e filled in. Returns 0
 * if all codes are 0; else this rank's code if it is negative; else the lowest code of all ranks, and e
 * names its rank. */
int ga_comm_agree(ga_comm *c, int code, ga_err *e);

/* Compares a value with that of rank 0: *rank is the first one that has another, or -1. */
int ga_comm_compare(ga_comm *c, uint64_t value, int *rank, ga_err *e);

/* GA_INPUT unless all ranks pass the same hash, of the spec and the options that must agree; the
 * message names the rank that differs. */
int ga_comm_handshake(ga_comm *c, uint64_t hash, ga_err *e);

/* One of the things that all ranks start with. */
typedef struct ga_fact {
    const char *name, *text; /* "--seed", "9" */
} ga_fact;

/* GA_INPUT unless all ranks pass the same texts, for the same names in the same order; the message names the first
 * rank that differs, the fact and both texts. */
int ga_comm_same_facts(ga_comm *c, const ga_fact *facts, int count, ga_err *e);

#endif
