/* watchdog.h: ends a process that waits too long for its peers, from a thread of its own, since the
 * waiting one may be stuck inside a library. Used by the comm_*.c files. */
#ifndef GA_WATCHDOG_H
#define GA_WATCHDOG_H

#include "base/ga.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct ga_watchdog {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool running, closing;
    int limit;                     /* seconds */
    int rank;                      /* for the message; -1: not known yet */
    _Atomic int64_t deadline;      /* ms of the monotonic clock; 0: nothing is being waited for */
    const char *_Atomic operation; /* what is being waited for */
} ga_watchdog;

/* Starts the thread. GA_INPUT if GAGEN_TIMEOUT is set and not a whole number from 1 to 86400
 * (default 600). */
int ga_watchdog_open(ga_watchdog *w, ga_err *e);
void ga_watchdog_close(ga_watchdog *w);

/* Between enter and leave the limit runs: when it is over, one line to stderr and _exit(3). */
void ga_watchdog_enter(ga_watchdog *w, const char *operation);
void ga_watchdog_leave(ga_watchdog *w);

#endif
