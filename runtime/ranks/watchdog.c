/* watchdog.c: a thread that checks the deadline a few times a second. */
#include "ranks/watchdog.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void) {
    return (int64_t)(ga_clock() * 1000);
}

/* Ends the process if the deadline is over. */
static void check(ga_watchdog *w) {
    int64_t deadline = atomic_load_explicit(&w->deadline, memory_order_acquire);
    if (deadline == 0 || now_ms() < deadline) return;
    ga_say("rank %d: no progress in %s for %d s (GAGEN_TIMEOUT), expected the other ranks to take "
           "part: one is dead, "
           "stopped or elsewhere; resume from the last checkpoint",
           w->rank, atomic_load_explicit(&w->operation, memory_order_relaxed), w->limit);
    _exit(3);
}

static void *watch(void *arg) {
    ga_watchdog *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += 250000000;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&w->wake, &w->lock, &t);
        if (!w->closing) check(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static int read_limit(ga_watchdog *w, ga_err *e) {
    const char *text = getenv("GAGEN_TIMEOUT");
    char *end;
    w->limit = 600;
    if (!text || !*text) return GA_OK;
    long value = strtol(text, &end, 10);
    if (*end || *text < '0' || *text > '9' || value < 1 || value > 86400)
        return ga_fail(e, GA_INPUT,
                       "GAGEN_TIMEOUT: '%.100s' found, seconds from 1 to 86400 expected", text);
    w->limit = (int)value;
    return GA_OK;
}

int ga_watchdog_open(ga_watchdog *w, ga_err *e) {
    pthread_condattr_t attributes;
    sigset_t all, before;
    memset(w, 0, sizeof *w);
    w->rank = -1;
    GA_TRY(read_limit(w, e));
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&w->lock, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "watchdog thread: %s", strerror(rc));
    w->running = true;
    return GA_OK;
}

void ga_watchdog_close(ga_watchdog *w) {
    if (!w->running) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    w->running = false;
}

void ga_watchdog_enter(ga_watchdog *w, const char *operation) {
    atomic_store_explicit(&w->operation, operation, memory_order_relaxed);
    atomic_store_explicit(&w->deadline, now_ms() + (int64_t)w->limit * 1000, memory_order_release);
}

void ga_watchdog_leave(ga_watchdog *w) {
    atomic_store_explicit(&w->deadline, 0, memory_order_release);
}
