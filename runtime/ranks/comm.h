/* comm.h: collectives over one process group. Link exactly one of comm_self.c, comm_mpi.c,
 * comm_nccl.c. Only the thread that opened it (worker 0) calls these functions. Collective calls:
 * same order on all ranks. A collective that makes no progress for GAGEN_TIMEOUT seconds (default
 * 600) ends the process with exit 3. */
#ifndef GA_COMM_H
#define GA_COMM_H

#include "base/arena.h"

typedef struct ga_comm ga_comm;

enum { GA_COMM_REQUESTS = 256 }; /* request numbers are 0..255 */

/* collectives and bytes (elements x their size, per rank) count ga_comm_all_reduce and
 * ga_comm_start; small counts ga_comm_small; also with one rank. Broadcast, barrier, agree,
 * handshake are not counted. */
typedef struct ga_comm_counts {
    int64_t collectives, bytes, small;
} ga_comm_counts;

size_t ga_comm_bytes(void); /* taken from the arena: at most 8192 */

int ga_comm_open(ga_comm **out, ga_arena *a, ga_err *e);
void ga_comm_close(ga_comm *c); /* collective; NULL allowed */
int ga_comm_rank(const ga_comm *c);
int ga_comm_size(const ga_comm *c);

/* Sum over the ranks, in place; GA_F32, GA_F64, GA_I32 or GA_I64. Same bits on all ranks. */
int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e);

/* The same in two halves: buf must not be touched in between. Several requests may be in flight;
 * a request number may be used again after its wait. Progress pushes them on and never blocks. */
int ga_comm_start(ga_comm *c, int request, void *buf, size_t n, ga_dtype t, ga_err *e);
int ga_comm_wait(ga_comm *c, int request,
                 ga_err *e); /* 0 at once if the request was never started */
int ga_comm_progress(ga_comm *c, ga_err *e);

/* The one small sum of a boundary (norm, finite flag, weight, loss, ...). */
int ga_comm_small(ga_comm *c, double *values, size_t n, ga_err *e);

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e);
int ga_comm_barrier(ga_comm *c, ga_err *e);

/* All ranks learn the worst code: pass the own one (0 or a negative ga_status, e filled in).
 * Returns 0 if all passed 0; else the own code if it is negative, else the worst one, with e naming
 * the rank it came from. */
int ga_comm_agree(ga_comm *c, int code, ga_err *e);

/* GA_INPUT unless all ranks pass the same hash (of the spec and what must be equal): names the
 * rank. */
int ga_comm_handshake(ga_comm *c, uint64_t hash, ga_err *e);

/* For a rank that fails alone, where the others cannot learn of it: ends all processes of the
 * group, this one too, with exit_code. With one rank it returns at once. */
void ga_comm_abort(ga_comm *c, int exit_code);

ga_comm_counts ga_comm_counted(const ga_comm *c);

#endif
