/* team.c: threads, a single barrier, and tiles claimed by compare-and-swap. Between runs the other
 * workers wait at the barrier; a run lies between two passes of the barrier. */
#define _GNU_SOURCE
#include "base/team.h"

#include "base/cores.h"
#include "base/denormals.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A waiting worker looks this often before it sleeps. -DGA_SPIN=20 suits cores that have other work too. */
#ifndef GA_SPIN
#define GA_SPIN 2000
#endif

enum { SLOTS = 64, STACK = 1 << 20 };

/* Tile counter of one kernel call: the call's sequence number in the upper half, the next tile in the
 * lower half. */
typedef struct {
    _Alignas(64) _Atomic uint64_t next;
} slot;

struct ga_team {
    slot slots[SLOTS];
    _Alignas(64) _Atomic int arrived;
    /* Counts passes of the barrier in steps of 2; bit 0: a worker sleeps and must be woken. Both are in
     * one word, so that no wake-up is lost between setting the bit and passing. */
    _Alignas(64) _Atomic uint32_t phase;
    _Alignas(64) _Atomic int threads;
    _Atomic int status;
    bool closing;
    void (*body)(ga_worker *w, void *arg);
    void *arg;
    ga_worker *workers;
    pthread_t *handles;
};

/* The cores that the affinity mask allows and the quota pays for. */
static long usable_cores(void) {
    cpu_set_t usable;
    const long cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable)
        : sysconf(_SC_NPROCESSORS_ONLN); /* the mask does not hold more than CPU_SETSIZE cores */
    const long paid = ga_cores_quota("");
    return paid < cores ? paid : cores;
}

ga_threads ga_threads_choose(int option, int spec, int busy, int ranks) {
    if (option) return (ga_threads){option, "--threads"};
    if (spec) return (ga_threads){spec, "target.threads"};
    const long share = usable_cores() / ranks;
    if (share >= busy) return (ga_threads){busy, "work"};
    return (ga_threads){share < 1 ? 1 : (int)share, "cores"};
}

size_t ga_team_bytes(int threads) {
    return 8192 + 64 * (size_t)threads;
}

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until the phase is no longer `old`: spins, then sleeps. */
static void wait_for_phase(ga_team *t, uint32_t old) {
    for (int i = 0; i < GA_SPIN; i++) {
        if ((atomic_load_explicit(&t->phase, memory_order_acquire) & ~1u) != old) return;
        pause_cpu();
    }
    uint32_t seen = old;
    for (;;) {
        if (seen == old &&
            !atomic_compare_exchange_strong_explicit(&t->phase, &seen, old | 1,
                                                     memory_order_acq_rel, memory_order_acquire))
            continue; /* seen now holds the current value */
        if ((seen & ~1u) != old) return;
        syscall(SYS_futex, &t->phase, FUTEX_WAIT_PRIVATE, old | 1, NULL, NULL, 0);
        seen = atomic_load_explicit(&t->phase, memory_order_acquire);
    }
}

void ga_barrier(ga_worker *w) {
    ga_team *t = w->team;
    if (w->count == 1) return;
    uint32_t old = atomic_load_explicit(&t->phase, memory_order_relaxed) & ~1u;
    int before = atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel);
    if (before + 1 != atomic_load_explicit(&t->threads, memory_order_relaxed)) {
        wait_for_phase(t, old);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    if (atomic_exchange_explicit(&t->phase, old + 2, memory_order_acq_rel) & 1)
        syscall(SYS_futex, &t->phase, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Main function of a thread: runs the body of each run until the team closes. */
static void *work(void *p) {
    ga_worker *w = p;
    ga_team *t = w->team;
    ga_flush_denormals();
    for (;;) {
        ga_barrier(w);
        if (t->closing) return NULL;
        w->count = atomic_load_explicit(&t->threads, memory_order_relaxed);
        t->body(w, t->arg);
        ga_barrier(w);
    }
}

static int start_threads(ga_team *t, int threads, ga_err *e) {
    pthread_attr_t attributes;
    sigset_t all, before;
    int started = 1, rc = pthread_attr_init(&attributes);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "threads: %s", strerror(rc));
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < threads &&
           pthread_create(&t->handles[started], &attributes, work, &t->workers[started]) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    /* The started threads wait at the barrier until worker 0 arrives with this number. */
    atomic_store_explicit(&t->threads, started, memory_order_relaxed);
    t->workers[0].count = started;
    return GA_OK;
}

int ga_team_open(ga_team **out, int threads, ga_arena *a, ga_err *e) {
    *out = NULL;
    if (threads < 1 || threads > GA_THREADS_MAX)
        return ga_fail(e, GA_INPUT, "threads: %d, expected 1..%d", threads, GA_THREADS_MAX);
    ga_team *t = ga_take(a, sizeof *t, 64, e);
    ga_worker *workers = t ? ga_take(a, (size_t)threads * sizeof *workers, 64, e) : NULL;
    pthread_t *handles = workers ? ga_take(a, (size_t)threads * sizeof *handles, 64, e) : NULL;
    if (!handles) return GA_BUG;
    t->workers = workers;
    t->handles = handles;
    for (int i = 0; i < threads; i++)
        workers[i] = (ga_worker){.team = t, .index = i, .count = threads};
    atomic_store_explicit(&t->threads, threads, memory_order_relaxed);
    GA_TRY(start_threads(t, threads, e));
    *out = t;
    return GA_OK;
}

void ga_team_close(ga_team *t) {
    if (!t) return;
    t->closing = true;
    ga_barrier(&t->workers[0]);
    for (int i = 1; i < ga_team_threads(t); i++) pthread_join(t->handles[i], NULL);
}

int ga_team_threads(const ga_team *t) {
    return atomic_load_explicit(&t->threads, memory_order_relaxed);
}

int ga_team_run(ga_team *t, void (*body)(ga_worker *w, void *arg), void *arg) {
    ga_worker *w = &t->workers[0];
    atomic_store_explicit(&t->status, 0, memory_order_relaxed);
    t->body = body;
    t->arg = arg;
    ga_barrier(w);
    uint64_t control = ga_flush_denormals();
    body(w, arg);
    ga_restore_denormals(control);
    ga_barrier(w);
    return ga_team_status(w);
}

ga_tiles ga_tiles_begin(ga_worker *w, int64_t count) {
    return (ga_tiles){.worker = w, .sequence = (uint32_t)++w->calls, .count = count, .index = -1};
}

/* A slot belongs to the call with the highest sequence number that touched it. A worker can be 64
 * calls ahead only after it saw all tiles of this call claimed, so a higher number means that no tile
 * is left. */
bool ga_tile_next(ga_tiles *it) {
    ga_worker *w = it->worker;
    if (w->count == 1) return ++it->index < it->count;
    _Atomic uint64_t *next = &w->team->slots[it->sequence % SLOTS].next;
    uint64_t seen = atomic_load_explicit(next, memory_order_relaxed);
    for (;;) {
        int32_t ahead = (int32_t)((uint32_t)(seen >> 32) - it->sequence);
        int64_t tile = ahead < 0 ? 0 : (int64_t)(uint32_t)seen;
        if (ahead > 0 || tile >= it->count) return false;
        uint64_t claimed = (uint64_t)it->sequence << 32 | (uint64_t)(tile + 1);
        if (atomic_compare_exchange_weak_explicit(next, &seen, claimed, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            it->index = tile;
            return true;
        }
    }
}

void ga_team_fail(ga_worker *w, int code) {
    int none = 0;
    atomic_compare_exchange_strong_explicit(&w->team->status, &none, code, memory_order_release,
                                            memory_order_relaxed);
}

int ga_team_status(const ga_worker *w) {
    return atomic_load_explicit(&w->team->status, memory_order_acquire);
}
