/* watchdog.h: a thread that ends the process if it waits too long for other ranks: the waiting thread
 * itself may be stuck inside a library. Used by the comm_*.c files. */
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
    int rank;                      /* for the message; -1: unknown so far */
    _Atomic int64_t deadline;      /* ms of the monotonic clock; 0: no wait */
    const char *_Atomic operation; /* the operation that waits */
} ga_watchdog;

/* Starts the thread. GA_INPUT if GAGEN_TIMEOUT is set to anything but a whole number from 1 to 86400;
 * its default is 600. */
int ga_watchdog_open(ga_watchdog *w, ga_err *e);
void ga_watchdog_close(ga_watchdog *w);

/* Enter starts a wait, leave ends it; a wait longer than the limit prints one line and calls _exit(3). */
void ga_watchdog_enter(ga_watchdog *w, const char *operation);
void ga_watchdog_leave(ga_watchdog *w);

#endif
