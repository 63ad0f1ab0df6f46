/* comm_mpi.c: collectives by MPI, which moves bytes only inside its calls. So a thread of its own moves exchanges along
 * while the workers compute. A thread that waits does that itself, without a change of threads; a lock keeps the two
 * apart. If the caller of a library opened MPI, and not with MPI_THREAD_MULTIPLE, there is no such thread: exchanges
 * move along when another one starts, and in waits. */
#define _GNU_SOURCE
#include "ranks/comm.h"

#include "base/denormals.h"
#include "ranks/launcher.h"
#include "ranks/mpi_exchange.h"
#include "ranks/pulse.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    POLLS = 1000,                    /* tests before a thread that waits yields its core after each */
    NAP_LEAST = 50, NAP_MOST = 1000  /* microseconds between the looks of the thread that nobody waits for */
};

typedef struct request {
    ga_exchange x;
    bool started, done;
    int code;
    ga_err error;
} request;

struct ga_comm {
    ga_mpi_ranks groups[GA_GROUPS + 1]; /* 0: all ranks */
    MPI_Comm of_wires[GA_GROUPS + 1][GA_WIRES];
    int group_count;
    const ga_group *named; /* those from 1 on */
    int local_size;
    bool own_mpi, threaded;
    ga_comm_counts counts;
    ga_pulse pulse;
    pthread_t thread;
    ga_mpi_wire wires[GA_WIRES];
    int on_wire[GA_WIRES];           /* numbers of their requests */
    request requests[GA_COMM_REQUESTS];
    int queue[GA_COMM_REQUESTS];     /* numbers in the order of their start */
    uint32_t queued, begun;          /* of them */
    double *small;                   /* GA_COMM_SMALL of each rank */
    pthread_mutex_t lock;            /* of MPI, the wires, the requests and the queue */
    _Atomic uint32_t busy;           /* exchanges that have not ended: the thread sleeps while there are none */
    _Atomic bool waiting, closing;   /* a wait moves exchanges along */
};

/* Sleeps while *word has this value, but no longer than that; 0: as long as it takes. */
static void sleep_on(_Atomic uint32_t *word, uint32_t value, long microseconds) {
    const struct timespec nap = {microseconds / 1000000, microseconds % 1000000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, microseconds ? &nap : NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static int check(const ga_comm *c, int rc, const char *operation, ga_err *e) {
    return ga_mpi_check(c->groups[0].rank, rc, operation, e);
}

/* Notes the result of ga_mpi_begin or ga_mpi_advance for wire i; true unless nothing is new. */
static bool take(ga_comm *c, int i, int code) {
    request *r = &c->requests[c->on_wire[i]];
    if (c->wires[i].x) return code != 0;
    r->code = code < 0 ? code : GA_OK;
    r->done = true;
    atomic_fetch_sub_explicit(&c->busy, 1, memory_order_relaxed);
    return true;
}

/* Begins exchanges that wait for a wire, and moves the others along; true if anything has begun or ended. */
static bool advance(ga_comm *c) {
    bool moved = false;
    for (; c->begun != c->queued && !c->wires[c->begun % GA_WIRES].x; c->begun++) {
        const int i = (int)(c->begun % GA_WIRES), number = c->queue[c->begun % GA_COMM_REQUESTS];
        request *r = &c->requests[number];
        c->on_wire[i] = number;
        take(c, i, ga_mpi_begin(&c->wires[i], &c->groups[r->x.group], &r->x, &r->error));
        moved = true;
    }
    for (int i = 0; i < GA_WIRES; i++)
        if (c->wires[i].x) {
            ga_err *e = &c->requests[c->on_wire[i]].error;
            moved = take(c, i, ga_mpi_advance(&c->wires[i], e)) || moved;
        }
    return moved;
}

/* === opening and the thread ============================================================================= */

/* Counts the ranks of this host that share cores with this one. Masks without a common core are those of a launcher
 * that binds ranks, which has divided the cores. */
static int count_local(ga_comm *c, ga_err *e) {
    MPI_Comm local;
    cpu_set_t own;
    int ranks;
    const ga_mpi_ranks *all = &c->groups[0];
    GA_TRY(check(c, MPI_Comm_split_type(all->all, MPI_COMM_TYPE_SHARED, all->rank, MPI_INFO_NULL, &local),
                 "MPI_Comm_split_type", e));
    MPI_Comm_size(local, &ranks);
    if (sched_getaffinity(0, sizeof own, &own) != 0) memset(&own, 0xff, sizeof own); /* more cores than it holds */
    c->local_size = 0;
    for (int r = 0; r < ranks; r++) {
        cpu_set_t other = own;
        GA_TRY(check(c, MPI_Bcast(&other, sizeof other, MPI_BYTE, r, local), "MPI_Bcast", e));
        CPU_AND(&other, &other, &own);
        c->local_size += CPU_COUNT(&other) > 0;
    }
    MPI_Comm_free(&local);
    return GA_OK;
}

/* The ranks of a group, whose communicator is there. */
static int open_ranks(ga_comm *c, int group, ga_err *e) {
    ga_mpi_ranks *g = &c->groups[group];
    g->wires = c->of_wires[group];
    g->wire_bytes = c->groups[0].wire_bytes;
    g->parts = c->groups[0].parts;
    c->group_count++;
    MPI_Comm_set_errhandler(g->all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(g->all, &g->rank);
    MPI_Comm_size(g->all, &g->size);
    for (int i = 0; i < GA_WIRES; i++) {
        g->wires[i] = MPI_COMM_NULL;
        if (g->wire_bytes > 0) GA_TRY(check(c, MPI_Comm_dup(g->all, &g->wires[i]), "MPI_Comm_dup", e));
    }
    return GA_OK;
}

/* Sets own_mpi, and threaded: whether two threads may call MPI, one after the other. */
static int open_mpi(ga_comm *c, ga_err *e) {
    int ready = 0, level = 0;
    GA_TRY(check(c, MPI_Initialized(&ready), "MPI_Initialized", e));
    c->own_mpi = !ready;
    if (ready)
        MPI_Query_thread(&level);
    else
        GA_TRY(check(c, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread", e));
    if (level < MPI_THREAD_FUNNELED)
        return ga_fail(e, GA_ENVIRONMENT, "MPI: thread level %d found, MPI_THREAD_FUNNELED (%d) expected: use an MPI "
                       "with thread support", level, MPI_THREAD_FUNNELED);
    c->threaded = level >= (ready ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED);
    GA_TRY(check(c, MPI_Comm_dup(MPI_COMM_WORLD, &c->groups[0].all), "MPI_Comm_dup", e));
    GA_TRY(open_ranks(c, 0, e));
    GA_TRY(count_local(c, e));
    return ga_launcher_check(c->groups[0].size, "MPI knows of fewer: start it with the mpirun of the MPI that it was "
                             "built with", e);
}

/* Tables of as many entries as there are ranks. */
static int open_tables(ga_comm *c, ga_err *e) {
    const size_t size = (size_t)c->groups[0].size;
    c->small = malloc(sizeof(double) * GA_COMM_SMALL * size);
    c->groups[0].parts = malloc(sizeof(void *) * size);
    int *table = malloc(sizeof(int) * 4 * GA_WIRES * size);
    if (!c->small || !c->groups[0].parts || !table)
        return ga_fail(e, GA_ENVIRONMENT, "no memory for tables of %d ranks", c->groups[0].size);
    for (int i = 0; i < GA_WIRES; i++) {
        c->wires[i].send = table + 4 * size * (size_t)i;
        c->wires[i].send_at = c->wires[i].send + size;
        c->wires[i].receive = c->wires[i].send + 2 * size;
        c->wires[i].receive_at = c->wires[i].send + 3 * size;
    }
    return GA_OK;
}

static void *serve(void *arg) {
    ga_comm *c = arg;
    int nap = NAP_LEAST;
    ga_flush_denormals(); /* as the threads that compute do */
    while (!atomic_load_explicit(&c->closing, memory_order_acquire)) {
        const uint32_t busy = atomic_load_explicit(&c->busy, memory_order_acquire);
        bool moved = false;
        if (busy > 0 && !atomic_load_explicit(&c->waiting, memory_order_relaxed)
            && pthread_mutex_trylock(&c->lock) == 0) {
            moved = advance(c);
            pthread_mutex_unlock(&c->lock);
        }
        nap = moved ? NAP_LEAST : nap < NAP_MOST / 2 ? 2 * nap : NAP_MOST;
        sleep_on(&c->busy, busy, busy > 0 ? nap : 0);
    }
    return NULL;
}

/* === waits ============================================================================================== */

static void begin_wait(ga_comm *c, const char *operation) {
    ga_pulse_enter(&c->pulse, operation);
    atomic_store_explicit(&c->waiting, true, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
}

static void end_wait(ga_comm *c) {
    pthread_mutex_unlock(&c->lock);
    atomic_store_explicit(&c->waiting, false, memory_order_relaxed);
    ga_pulse_leave(&c->pulse);
}

/* Waits for a call of MPI that `rc` is the result of, and moves exchanges along meanwhile. */
static int finish(ga_comm *c, int rc, MPI_Request *call, const char *operation, ga_err *e) {
    int done = 0, code = check(c, rc, operation, e);
    for (int polls = 0; code == GA_OK && !done; polls++) {
        code = check(c, MPI_Test(call, &done, MPI_STATUS_IGNORE), operation, e);
        if (!done && !advance(c) && polls > POLLS) sched_yield();
    }
    return code;
}

/* === the face =========================================================================================== */

static int start_thread(ga_comm *c, ga_err *e) {
    sigset_t all, before;
    c->threaded = c->threaded && c->groups[0].size > 1 && c->groups[0].wire_bytes > 0;
    if (!c->threaded) return GA_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&c->thread, NULL, serve, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "thread of MPI: %s", strerror(rc));
    pthread_setname_np(c->thread, "exchanges");
    return GA_OK;
}

static int open_all(ga_comm *c, ga_err *e) {
    GA_TRY(open_mpi(c, e));
    GA_TRY(open_tables(c, e));
    GA_TRY(ga_pulse_connect(&c->pulse, c, e));
    return start_thread(c, e);
}

int ga_comm_open(ga_comm **out, ga_arena *a, const ga_arena *wires, ga_err *e) {
    *out = NULL;
    ga_comm *c = ga_take(a, sizeof *c, 64, e);
    if (!c) return GA_BUG;
    memset(c, 0, sizeof *c);
    c->groups[0].wire_bytes = wires ? wires->bytes / GA_WIRES / 64 * 64 : 0;
    for (int i = 0; i < GA_WIRES && wires; i++) {
        c->wires[i].number = i;
        c->wires[i].base = wires->base + (size_t)i * c->groups[0].wire_bytes;
    }
    pthread_mutex_init(&c->lock, NULL);
    ga_launcher_follow();
    int ready = 0;
    MPI_Initialized(&ready);
    GA_TRY(ga_pulse_open(&c->pulse, !ready, e)); /* MPI that is open already may not bear a fork */
    const int code = open_all(c, e);
    if (code < 0) {
        ga_pulse_close(&c->pulse);
        return code;
    }
    *out = c;
    return GA_OK;
}

void ga_comm_close(ga_comm *c) {
    if (!c) return;
    if (c->threaded) {
        atomic_store_explicit(&c->closing, true, memory_order_release);
        atomic_fetch_add_explicit(&c->busy, 1, memory_order_release);
        wake(&c->busy);
        pthread_join(c->thread, NULL);
    }
    ga_comm_barrier(c, NULL);
    ga_pulse_enter(&c->pulse, "MPI end");
    for (int k = 0; k < c->group_count; k++) {
        for (int i = 0; i < GA_WIRES && c->groups[k].wire_bytes > 0; i++) MPI_Comm_free(&c->of_wires[k][i]);
        MPI_Comm_free(&c->groups[k].all);
    }
    if (c->own_mpi) MPI_Finalize();
    ga_pulse_leave(&c->pulse);
    ga_pulse_close(&c->pulse);
    pthread_mutex_destroy(&c->lock);
    free(c->small);
    free(c->groups[0].parts);
    free(c->wires[0].send);
}

int ga_comm_rank(const ga_comm *c) {
    return c->groups[0].rank;
}

int ga_comm_size(const ga_comm *c) {
    return c->groups[0].size;
}

int ga_comm_local_size(const ga_comm *c) {
    return c->local_size;
}

int ga_comm_divide(ga_comm *c, const ga_group *groups, int count, ga_err *e) {
    const ga_mpi_ranks *all = &c->groups[0];
    if (count > GA_GROUPS) return ga_fail(e, GA_BUG, "%d groups of ranks: at most %d expected", count, GA_GROUPS);
    c->named = groups;
    pthread_mutex_lock(&c->lock);
    int code = GA_OK;
    for (int k = 1; k <= count && code == GA_OK; k++) {
        const int list = groups[k - 1].lists[all->rank];
        code = check(c, MPI_Comm_split(all->all, list, all->rank, &c->groups[k].all), "MPI_Comm_split", e);
        if (code == GA_OK) code = open_ranks(c, k, e);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

const ga_group *ga_comm_group(const ga_comm *c, int group) {
    return group >= 1 && group < c->group_count ? &c->named[group - 1] : NULL;
}

int ga_comm_group_rank(const ga_comm *c, int group) {
    return c->groups[group].rank;
}

int ga_comm_group_size(const ga_comm *c, int group) {
    return c->groups[group].size;
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    return ga_comm_all_reduce_in(c, 0, buf, n, t, e);
}

int ga_comm_all_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_err *e) {
    MPI_Request call;
    if (n > INT_MAX || t == GA_BF16 || t == GA_F16 || t == GA_U8)
        return ga_fail(e, GA_BUG, "sum over ranks of %zu %s: at most %d F32, F64, I32 or I64 expected", n,
                       ga_dtype_name(t), INT_MAX);
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    begin_wait(c, "all-reduce");
    const int rc = MPI_Iallreduce(MPI_IN_PLACE, buf, (int)n, ga_mpi_type(t), MPI_SUM, c->groups[group].all, &call);
    const int code = finish(c, rc, &call, "all-reduce", e);
    end_wait(c);
    return code;
}

/* n doubles of each rank; this rank's own are in their place. */
static int gather(ga_comm *c, double *all, size_t n, const char *operation, ga_err *e) {
    MPI_Request call;
    begin_wait(c, operation);
    const int rc = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, (int)n, MPI_DOUBLE, c->groups[0].all, &call);
    const int code = finish(c, rc, &call, operation, e);
    end_wait(c);
    return code;
}

int ga_comm_gather(ga_comm *c, double *all, size_t n, ga_err *e) {
    if (n > INT_MAX)
        return ga_fail(e, GA_BUG, "gather of %zu numbers: at most %d expected", n, INT_MAX);
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * sizeof(double));
    return gather(c, all, n, "gather", e);
}

int ga_comm_start(ga_comm *c, int number, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, number, e));
    request *r = &c->requests[number];
    if (r->started) return ga_fail(e, GA_BUG, "request %d: started again before its wait", number);
    if (x->group == 0 || c->groups[x->group].size > 1) {
        c->counts.collectives++;
        c->counts.bytes += ga_exchange_bytes(x);
    }
    pthread_mutex_lock(&c->lock);
    *r = (request){.x = *x, .started = true};
    c->queue[c->queued++ % GA_COMM_REQUESTS] = number;
    const bool idle = atomic_fetch_add_explicit(&c->busy, 1, memory_order_release) == 0;
    advance(c);
    pthread_mutex_unlock(&c->lock);
    if (c->threaded && idle) wake(&c->busy);
    return GA_OK;
}

int ga_comm_wait(ga_comm *c, int number, ga_err *e) {
    if (number < 0 || number >= GA_COMM_REQUESTS)
        return ga_fail(e, GA_BUG, "request %d: not in 0..%d", number, GA_COMM_REQUESTS - 1);
    request *r = &c->requests[number];
    if (!r->started) return GA_OK;
    begin_wait(c, ga_exchange_name(&r->x));
    for (int polls = 0; !r->done; polls++)
        if (!advance(c) && polls > POLLS) sched_yield();
    end_wait(c);
    r->started = false;
    if (r->code < 0 && e) *e = r->error;
    return r->code;
}

int ga_comm_small(ga_comm *c, double *values, size_t n, size_t largest, ga_err *e) {
    const size_t size = (size_t)c->groups[0].size;
    if (n > GA_COMM_SMALL)
        return ga_fail(e, GA_BUG, "small sum of %zu numbers: at most %d expected", n, GA_COMM_SMALL);
    c->counts.small++;
    memcpy(c->small + (size_t)c->groups[0].rank * n, values, sizeof(double) * n);
    const int code = gather(c, c->small, n, "small sum", e);
    for (size_t i = 0; i < n && code == GA_OK; i++) {
        values[i] = c->small[i];
        for (size_t rank = 1; rank < size; rank++) {
            const double other = c->small[rank * n + i];
            values[i] = i < n - largest ? values[i] + other : fmax(values[i], other);
        }
    }
    return code;
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    return ga_comm_broadcast_in(c, 0, buf, bytes, root, e);
}

int ga_comm_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int root, ga_err *e) {
    int code = GA_OK;
    for (char *at = buf; code == GA_OK && bytes > 0;) {
        const int part = bytes < INT_MAX ? (int)bytes : INT_MAX;
        MPI_Request call;
        begin_wait(c, "broadcast");
        code = finish(c, MPI_Ibcast(at, part, MPI_BYTE, root, c->groups[group].all, &call), &call, "broadcast", e);
        end_wait(c);
        at += part;
        bytes -= (size_t)part;
    }
    return code;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    MPI_Request call;
    begin_wait(c, "barrier");
    const int code = finish(c, MPI_Ibarrier(c->groups[0].all, &call), &call, "barrier", e);
    end_wait(c);
    return code;
}

int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    struct {
        int value, rank;
    } pair = {value, c->groups[0].rank};
    MPI_Request call;
    begin_wait(c, "agreement");
    const int rc = MPI_Iallreduce(MPI_IN_PLACE, &pair, 1, MPI_2INT, MPI_MINLOC, c->groups[0].all, &call);
    const int code = finish(c, rc, &call, "agreement", e);
    end_wait(c);
    *low = pair.value;
    *rank = pair.rank;
    return code;
}

void ga_comm_abort(ga_comm *c, int exit_code) {
    if (c->groups[0].size == 1) return;
    ga_pulse_fail(&c->pulse, exit_code);
    begin_wait(c, "MPI abort");
    MPI_Abort(c->groups[0].all, exit_code);
    _exit(exit_code);
}

ga_comm_counts ga_comm_counted(const ga_comm *c) {
    return c->counts;
}

void ga_comm_says(ga_comm *c, ga_doing doing, int64_t cycle) {
    ga_pulse_says(&c->pulse, doing, cycle);
}

void ga_comm_saved(ga_comm *c, const char *checkpoint) {
    ga_pulse_saved(&c->pulse, checkpoint);
}

ga_pulse *ga_comm_pulse(ga_comm *c) {
    return c->groups[0].size > 1 ? &c->pulse : NULL;
}
