/* pulse.h: tells a rank that computes or saves from one that died, was stopped or hangs. Each rank has a TCP
 * connection to rank 0, and a thread that sends ten messages a second: where the rank is, and in which collective.
 * Rank 0 judges and tells all; a rank that is told says so in one line and ends with exit 3, wherever its other threads
 * are.
 *   a closed connection                           the rank was killed
 *   silence of GAGEN_SILENCE s (10)               the rank was stopped, or the network is cut
 *   no new collective for GAGEN_TIMEOUT s (600)   the rank hangs, unless a rank starts, reads, saves or evaluates
 * Before the ranks are connected and behind their end a rank watches only its own waits. Used by the comm_*.c files. */
#ifndef GA_PULSE_H
#define GA_PULSE_H

#include "ranks/comm.h"
#include "ranks/launcher.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum { GA_PULSE_RESUME = 1200 };

struct ga_pulse {
    pthread_t thread;
    ga_guard guard;                /* without a word at the end it makes the launcher end soon */
    pthread_mutex_t lock;          /* of everything below */
    bool running, closing;
    int bell;                      /* an eventfd that wakes the thread */
    int silence, timeout;          /* seconds */
    int rank, size;                /* size 0: not connected yet */
    struct ga_peer *peers;         /* by rank: on rank 0 all, itself too; elsewhere rank 0 */
    struct pollfd alone, *polls;   /* the bell, and behind it the connection of each peer */
    int64_t ends;                  /* ms: a rank has failed, and this one ends then; 0: none has */
    int failed, failed_code;       /* that rank, its exit code */
    char resume[GA_PULSE_RESUME];  /* what --resume takes; "": no checkpoint so far */
    _Atomic int doing;             /* a ga_doing */
    _Atomic int64_t cycle;
    _Atomic uint64_t collective;   /* waits begun */
    _Atomic int64_t since;         /* ms: the start of the present wait; 0: none */
    const char *_Atomic operation; /* of the last wait */
};

/* Starts the thread, alone; `guarded`: and the guard of ranks/launcher.h, by a fork. GA_INPUT if
 * GAGEN_SILENCE or GAGEN_TIMEOUT is set to anything but a whole number from 1 to 86400. */
int ga_pulse_open(ga_pulse *p, bool guarded, ga_err *e);

/* Connects the ranks: collective, by broadcasts of c. With one rank the thread ends. */
int ga_pulse_connect(ga_pulse *p, ga_comm *c, ga_err *e);

/* Says goodbye, so that the others do not take the end for a death, and ends the thread. */
void ga_pulse_close(ga_pulse *p);

/* This rank ends with this exit code and has said why: the others end within two seconds. */
void ga_pulse_fail(ga_pulse *p, int exit_code);

void ga_pulse_says(ga_pulse *p, ga_doing doing, int64_t cycle);
void ga_pulse_saved(ga_pulse *p, const char *checkpoint);

/* Enter starts a wait for other ranks, leave ends it. NULL: one rank, no pulse. */
void ga_pulse_enter(ga_pulse *p, const char *operation);
void ga_pulse_leave(ga_pulse *p);

#endif
