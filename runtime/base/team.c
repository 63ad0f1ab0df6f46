/* team.c: threads, tiles claimed by compare-and-swap, and barriers that wait for tiles, not for threads: a worker that
 * the system keeps from its core delays the others only if it holds a tile. */
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
#include <time.h>
#include <unistd.h>

/* A waiting worker looks this often before it sleeps. -DGA_SPIN=20 suits cores that have other work too. */
#ifndef GA_SPIN
#define GA_SPIN 500
#endif

enum { SLOTS = 64, STACK = 4 << 20, MEMBERS = 0xffff };
enum { SHARES = 64, RUN_MOST = 64 }; /* claims of each worker for many tiles, at least; tiles of a claim, at most */

/* Tile counter of one kernel call: the call's sequence number in the upper half, the next tile in the
 * lower half. */
typedef struct {
    _Alignas(64) _Atomic uint64_t next;
} slot;

/* A word that counts passes in steps of 2; bit 0: a worker sleeps and must be woken. Both are in one word, so that no
 * wake-up is lost between setting the bit and passing. */
typedef struct {
    _Alignas(64) _Atomic uint32_t word;
} gate;

/* Between two barriers lies an interval. Worker 0 is a member of each, another worker from its first tile on; the last
 * member that leaves ends it. */
struct ga_team {
    slot slots[SLOTS];
    gate run, barrier; /* the beginnings and ends of runs; the intervals */
    _Alignas(64) _Atomic int arrived; /* workers at the beginning or end of the run */
    _Alignas(64) _Atomic uint64_t members; /* number of the interval in the upper 48 bits, members in the lower 16 */
    _Alignas(64) _Atomic int threads;
    _Atomic int status;
    bool closing;
    void (*body)(ga_worker *w, void *arg);
    void *arg;
    uint64_t interval, calls; /* of worker 0 where the run begins */
    ga_worker *workers;
    pthread_t *handles;
};

ga_threads ga_threads_choose(int option, int spec, int busy, int ranks) {
    if (option) return (ga_threads){option, "--threads"};
    if (spec) return (ga_threads){spec, "target.threads"};
    const int share = ga_cores_usable() / ranks;
    if (share >= busy) return (ga_threads){busy, "work"};
    return (ga_threads){share < 1 ? 1 : share, "cores"};
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

static bool passed(const gate *g, uint32_t old) {
    return (atomic_load_explicit(&g->word, memory_order_acquire) & ~1u) != old;
}

static void sleep_at(gate *g, uint32_t old) {
    uint32_t seen = old;
    for (;;) {
        if (seen == old &&
            !atomic_compare_exchange_strong_explicit(&g->word, &seen, old | 1,
                                                     memory_order_acq_rel, memory_order_acquire))
            continue; /* seen now holds the current value */
        if ((seen & ~1u) != old) return;
        syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old | 1, NULL, NULL, 0);
        seen = atomic_load_explicit(&g->word, memory_order_acquire);
    }
}

/* Waits until the gate is no longer at `old`: spins, then sleeps. */
static void wait_at(gate *g, uint32_t old) {
    for (int i = 0; i < GA_SPIN; i++) {
        if (passed(g, old)) return;
        pause_cpu();
    }
    sleep_at(g, old);
}

static void open_gate(gate *g, uint32_t next) {
    if (atomic_exchange_explicit(&g->word, next, memory_order_acq_rel) & 1)
        syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* All workers wait for each other, at the beginning and the end of a run. */
static void meet(ga_worker *w) {
    ga_team *t = w->team;
    if (w->count == 1) return;
    const uint32_t old = atomic_load_explicit(&t->run.word, memory_order_relaxed) & ~1u;
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 !=
        atomic_load_explicit(&t->threads, memory_order_relaxed)) {
        wait_at(&t->run, old);
        return;
    }
    atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
    open_gate(&t->run, old + 2);
}

/* === cores =============================================================================================== */

/* Whether a worker with a lower index was on this core when it last looked. */
static bool shared(const ga_worker *w, int core) {
    for (const ga_worker *other = w->team->workers; other < w; other++)
        if (atomic_load_explicit(&other->core, memory_order_relaxed) == core) return true;
    return false;
}

/* Moves the worker to a usable core that no worker is on, if there is one; all usable cores stay open to it. */
static void move(ga_worker *w) {
    cpu_set_t usable, apart;
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
    apart = usable;
    for (int i = 0; i < w->count; i++) {
        const int core = atomic_load_explicit(&w->team->workers[i].core, memory_order_relaxed);
        if (core >= 0 && core < CPU_SETSIZE) CPU_CLR(core, &apart);
    }
    if (CPU_COUNT(&apart) == 0 || sched_setaffinity(0, sizeof apart, &apart) != 0) return;
    atomic_store_explicit(&w->core, sched_getcpu(), memory_order_relaxed);
    sched_setaffinity(0, sizeof usable, &usable);
}

/* Two workers on one core take turns, and beside a foreign process that fills another core the system leaves them
 * there for long. Once in a clock tick of the system (1 to 10 ms) each worker looks where it is. */
static void move_apart(ga_worker *w) {
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0 || now.tv_nsec == w->looked) return;
    w->looked = now.tv_nsec;
    const int core = sched_getcpu();
    atomic_store_explicit(&w->core, core, memory_order_relaxed);
    if (shared(w, core)) move(w);
}

/* === intervals =========================================================================================== */

/* The state of the barrier while interval `number` lasts. */
static uint32_t gate_of(uint64_t number) {
    return (uint32_t)number * 2;
}

/* Begins an interval with worker 0 as its only member. */
static void begin_interval(ga_team *t, uint64_t number) {
    atomic_store_explicit(&t->members, number << 16 | 1, memory_order_release);
    open_gate(&t->barrier, gate_of(number));
}

/* Makes the worker a member; false if the interval is over, so that no tile of it is left. */
static bool join(ga_worker *w) {
    _Atomic uint64_t *members = &w->team->members;
    uint64_t seen = atomic_load_explicit(members, memory_order_relaxed);
    do {
        if (seen >> 16 != w->interval || (seen & MEMBERS) == 0) return false;
    } while (!atomic_compare_exchange_weak_explicit(members, &seen, seen + 1, memory_order_acq_rel,
                                                    memory_order_relaxed));
    w->member = true;
    return true;
}

void ga_barrier(ga_worker *w) {
    ga_team *t = w->team;
    if (w->count == 1) return;
    move_apart(w);
    const uint64_t number = w->interval++;
    if (w->member) {
        w->member = w->index == 0;
        const uint64_t before = atomic_fetch_sub_explicit(&t->members, 1, memory_order_acq_rel);
        if ((before & MEMBERS) == 1) {
            begin_interval(t, number + 1);
            return;
        }
    }
    wait_at(&t->barrier, gate_of(number));
}

/* === runs ================================================================================================ */

/* Runs the body in one worker. */
static void run(ga_worker *w) {
    ga_team *t = w->team;
    w->interval = t->interval;
    w->calls = t->calls;
    w->member = w->index == 0;
    t->body(w, t->arg);
    meet(w);
}

/* Main function of a thread: runs the body of each run until the team closes. */
static void *work(void *p) {
    ga_worker *w = p;
    ga_team *t = w->team;
    ga_flush_denormals();
    for (;;) {
        meet(w);
        if (t->closing) return NULL;
        w->count = atomic_load_explicit(&t->threads, memory_order_relaxed);
        run(w);
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
    /* The started threads wait for the first run until worker 0 arrives with this number. */
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
        workers[i] = (ga_worker){.team = t, .index = i, .count = threads, .core = -1};
    atomic_store_explicit(&t->threads, threads, memory_order_relaxed);
    GA_TRY(start_threads(t, threads, e));
    *out = t;
    return GA_OK;
}

void ga_team_close(ga_team *t) {
    if (!t) return;
    t->closing = true;
    meet(&t->workers[0]);
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
    t->interval = ++w->interval;
    t->calls = w->calls;
    begin_interval(t, w->interval);
    meet(w);
    const uint64_t control = ga_flush_denormals();
    run(w);
    ga_restore_denormals(control);
    return ga_team_status(w);
}

ga_tiles ga_tiles_begin(ga_worker *w, int64_t count) {
    const int64_t share = count / (SHARES * (int64_t)w->count);
    const int64_t run = share < 1 ? 1 : share > RUN_MOST ? RUN_MOST : share;
    return (ga_tiles){.worker = w, .sequence = (uint32_t)++w->calls, .count = count, .run = run, .index = -1};
}

/* A slot belongs to the call with the highest sequence number that touched it. A worker can be 64
 * calls ahead only after it saw all tiles of this call claimed, so a higher number means that no tile
 * is left. Only a member claims, so no tile is claimed once its interval is over. */
bool ga_tile_next(ga_tiles *it) {
    ga_worker *w = it->worker;
    if (w->count == 1) return ++it->index < it->count;
    if (++it->index < it->end) return true;
    _Atomic uint64_t *next = &w->team->slots[it->sequence % SLOTS].next;
    uint64_t seen = atomic_load_explicit(next, memory_order_relaxed);
    for (;;) {
        int32_t ahead = (int32_t)((uint32_t)(seen >> 32) - it->sequence);
        int64_t tile = ahead < 0 ? 0 : (int64_t)(uint32_t)seen;
        if (ahead > 0 || tile >= it->count) return false;
        if (!w->member && !join(w)) return false;
        uint64_t claimed = (uint64_t)it->sequence << 32 | (uint64_t)(tile + it->run);
        if (atomic_compare_exchange_weak_explicit(next, &seen, claimed, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            it->index = tile;
            it->end = tile + it->run < it->count ? tile + it->run : it->count;
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
