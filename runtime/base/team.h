/* team.h: a fixed team of threads that all execute the same straight-line step (SPMD).
 * Work is cut into tiles that the workers claim; the result of a tile never depends on the worker
 * that claims it. */
#ifndef GA_TEAM_H
#define GA_TEAM_H

#include "base/arena.h"

typedef struct ga_team ga_team;

typedef struct ga_worker {
    ga_team *team;
    int index;      /* 0..count-1; 0 is the thread that called ga_team_run */
    int count;      /* workers in the team */
    uint64_t calls; /* calls of ga_tiles_begin so far: the same sequence in every worker */
    uint64_t interval; /* barriers so far, likewise */
    bool member;    /* the next barrier waits for this worker */
    _Atomic int core;  /* where it was when it last looked, -1 before */
    int64_t looked;    /* the clock tick of then, in nanoseconds of its second */
} ga_worker;

/* A walk over the tiles of one kernel call, shared by all workers. */
typedef struct ga_tiles {
    ga_worker *worker;
    uint32_t sequence;
    int64_t count;
    int64_t run;   /* neighbours that are claimed at once */
    int64_t index; /* the tile to compute, valid after ga_tile_next returned true */
    int64_t end;   /* tiles from index to end are claimed */
} ga_tiles;

enum { GA_THREADS_MAX = 1024 };

size_t ga_team_bytes(int threads); /* taken from the arena: 8192 + 64 * threads */

/* Starts threads-1 threads with signals blocked. If the system gives fewer, the team is smaller
 * (ga_team_threads says its size) and results are the same. One thread must open and use the team: it
 * is worker 0. */
int ga_team_open(ga_team **out, int threads, ga_arena *a, ga_err *e);
void ga_team_close(ga_team *t); /* joins; NULL allowed */
int ga_team_threads(const ga_team *t);

/* Runs body on every worker and returns when all have returned: 0, or the code given to ga_team_fail.
 * Denormals are flushed to zero in every worker while body runs. With one thread this is a plain
 * call. */
int ga_team_run(ga_team *t, void (*body)(ga_worker *w, void *arg), void *arg);

/* Waits until worker 0 is here and all tiles before the barrier are computed; what worker 0 and tiles wrote before it
 * is visible after it. A worker that the system keeps from its core is not waited for, unless it is worker 0 or holds
 * a tile: it comes later, and finds no tile left. So only worker 0 and tiles may write, and what is read outside of a
 * tile may be of a later interval unless a tile follows. Spins briefly, then sleeps. Workers on one core move apart. */
void ga_barrier(ga_worker *w);

/* for (ga_tiles it = ga_tiles_begin(w, count); ga_tile_next(&it);) compute(it.index);
 * All workers must make the same calls with the same count (0..2^31-1) in the same order; no
 * barrier is needed between calls that do not read each other's results. Every index is claimed by
 * exactly one worker. Of many tiles a worker claims neighbours, up to 1/64 of its share at once, so
 * that it goes along memory. */
ga_tiles ga_tiles_begin(ga_worker *w, int64_t count);
bool ga_tile_next(ga_tiles *it);

/* Status of the run: worker 0 or a tile may set it (the first code stays); all read it after the next barrier. */
void ga_team_fail(ga_worker *w, int code);
int ga_team_status(const ga_worker *w);

#endif
