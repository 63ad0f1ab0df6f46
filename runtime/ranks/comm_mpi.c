/* comm_mpi.c: collectives by MPI. One thread opens MPI, makes every call and closes it: MPI moves bytes only inside its
 * calls, and so they move while the other threads compute. Those post what they want and wait on a futex. An exchange
 * sums with an all-to-all of parts and additions in the order of the ranks. If the caller had opened MPI without
 * MPI_THREAD_MULTIPLE, there is no thread: the waits and ga_comm_progress do its work. */
#include "ranks/comm.h"

#include "base/denormals.h"
#include "ranks/launcher.h"
#include "ranks/mpi_exchange.h"
#include "ranks/pulse.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
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
    POLLS = 200,                     /* tests before a thread that is waited for yields its core */
    NAP_LEAST = 50, NAP_MOST = 1000, /* microseconds of sleep while nobody waits */
    PATIENCE = 20000,                /* looks of a waiting thread before it sleeps */
    NOT_BEGUN = 1                    /* state of a call, else its code */
};

/* One call that is waited for at once. */
typedef struct call {
    enum { NO_CALL, SUM, SMALL, BROADCAST, BARRIER, LOWEST, CLOSE, ABORT } kind;
    void *buf;
    int n, root; /* elements or bytes; BROADCAST: the sender; ABORT: n is the exit status */
    MPI_Datatype type;
    MPI_Request request;
} call;

typedef struct request {
    ga_exchange x;
    bool started;
    int code;
    ga_err error;
    _Atomic uint32_t done;
} request;

struct ga_comm {
    MPI_Comm group;
    ga_mpi_ranks ranks;
    bool own_mpi, threaded;
    ga_comm_counts counts;
    ga_pulse pulse;
    pthread_t thread;
    ga_mpi_wire wires[GA_WIRES];
    int on_wire[GA_WIRES];           /* numbers of their requests */
    request requests[GA_COMM_REQUESTS];
    int queue[GA_COMM_REQUESTS];     /* numbers in the order of their start */
    uint32_t begun;                  /* of them */
    double *small;                   /* GA_COMM_SMALL of each rank */
    call call;
    int call_code;
    ga_err call_error;
    _Atomic uint32_t queued, called, call_done;
    _Atomic uint32_t bell;           /* rung for the thread at each change */
    _Atomic uint32_t waiting;        /* somebody waits */
};

size_t ga_comm_bytes(void) {
    return ga_padded(sizeof(ga_comm));
}

static void sleep_on(_Atomic uint32_t *word, uint32_t value, long microseconds) {
    const struct timespec nap = {microseconds / 1000000, microseconds % 1000000 * 1000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, microseconds ? &nap : NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void ring(ga_comm *c) {
    atomic_fetch_add_explicit(&c->bell, 1, memory_order_release);
    if (c->threaded) wake(&c->bell);
}

static void finish(_Atomic uint32_t *done) {
    atomic_store_explicit(done, 1, memory_order_release);
    wake(done);
}

static int check(const ga_comm *c, int rc, const char *operation, ga_err *e) {
    return ga_mpi_check(c->ranks.rank, rc, operation, e);
}

/* === calls ============================================================================================== */

static int begin_call(ga_comm *c, call *k, ga_err *e) {
    switch (k->kind) {
    case SUM:
        return check(c, MPI_Iallreduce(MPI_IN_PLACE, k->buf, k->n, k->type, MPI_SUM, c->group, &k->request),
                     "all-reduce", e);
    case SMALL:
        memcpy(c->small + (size_t)c->ranks.rank * (size_t)k->n, k->buf, sizeof(double) * (size_t)k->n);
        return check(c, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->small, k->n, MPI_DOUBLE, c->group,
                                       &k->request), "small sum", e);
    case BROADCAST:
        return check(c, MPI_Ibcast(k->buf, k->n, MPI_BYTE, k->root, c->group, &k->request), "broadcast", e);
    case LOWEST:
        return check(c, MPI_Iallreduce(MPI_IN_PLACE, k->buf, 1, MPI_2INT, MPI_MINLOC, c->group, &k->request),
                     "agreement", e);
    case ABORT: MPI_Abort(c->group, k->n); return GA_OK;
    default: return check(c, MPI_Ibarrier(c->group, &k->request), "barrier", e); /* also before the end */
    }
}

static void end_call(ga_comm *c, call *k) {
    double *values = k->buf;
    for (int i = 0; k->kind == SMALL && i < k->n; i++) {
        double sum = c->small[i];
        for (int rank = 1; rank < c->ranks.size; rank++) sum += c->small[(size_t)rank * (size_t)k->n + (size_t)i];
        values[i] = sum;
    }
}

/* What has become of the exchange on wire i: see ga_mpi_begin. */
static bool take(ga_comm *c, int i, int code) {
    request *r = &c->requests[c->on_wire[i]];
    if (c->wires[i].x) return code != 0;
    r->code = code < 0 ? code : GA_OK;
    finish(&r->done);
    return true;
}

/* Begins the exchanges that wait for a wire, and moves the others along. */
static bool advance_exchanges(ga_comm *c) {
    bool moved = false;
    const uint32_t queued = atomic_load_explicit(&c->queued, memory_order_acquire);
    for (; c->begun != queued && !c->wires[c->begun % GA_WIRES].x; c->begun++) {
        const int i = (int)(c->begun % GA_WIRES), number = c->queue[c->begun % GA_COMM_REQUESTS];
        request *r = &c->requests[number];
        c->on_wire[i] = number;
        take(c, i, ga_mpi_begin(&c->wires[i], &c->ranks, &r->x, &r->error));
        moved = true;
    }
    for (int i = 0; i < GA_WIRES; i++)
        if (c->wires[i].x) {
            ga_err *e = &c->requests[c->on_wire[i]].error;
            moved = take(c, i, ga_mpi_advance(&c->wires[i], &c->ranks, e)) || moved;
        }
    return moved;
}

static bool advance_call(ga_comm *c) {
    if (!atomic_load_explicit(&c->called, memory_order_acquire)) return false;
    call *k = &c->call;
    int done = 0;
    if (c->call_code == NOT_BEGUN) c->call_code = begin_call(c, k, &c->call_error);
    if (c->call_code == GA_OK)
        c->call_code = check(c, MPI_Test(&k->request, &done, MPI_STATUS_IGNORE), "a call", &c->call_error);
    if (!done && c->call_code == GA_OK) return false;
    if (c->call_code == GA_OK) end_call(c, k);
    atomic_store_explicit(&c->called, 0, memory_order_relaxed);
    finish(&c->call_done);
    return true;
}

/* Moves everything along; true if anything has begun or ended. */
static bool advance(ga_comm *c) {
    const bool moved = advance_exchanges(c);
    return advance_call(c) || moved;
}

/* === the thread ========================================================================================= */

static int open_mpi(ga_comm *c, ga_err *e) {
    int level = 0;
    if (c->own_mpi)
        GA_TRY(check(c, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread", e));
    else
        MPI_Query_thread(&level);
    if (level < MPI_THREAD_FUNNELED)
        return ga_fail(e, GA_ENVIRONMENT, "MPI: thread level %d found, MPI_THREAD_FUNNELED (%d) expected: use an MPI "
                       "with thread support", level, MPI_THREAD_FUNNELED);
    GA_TRY(check(c, MPI_Comm_dup(MPI_COMM_WORLD, &c->group), "MPI_Comm_dup", e));
    MPI_Comm_set_errhandler(c->group, MPI_ERRORS_RETURN);
    for (int i = 0; i < GA_WIRES && c->ranks.wire_bytes > 0; i++)
        GA_TRY(check(c, MPI_Comm_dup(c->group, &c->wires[i].group), "MPI_Comm_dup", e));
    MPI_Comm_rank(c->group, &c->ranks.rank);
    MPI_Comm_size(c->group, &c->ranks.size);
    return ga_launcher_check(c->ranks.size, "MPI knows of fewer: start it with the mpirun of the MPI that it was "
                             "built with", e);
}

/* Tables of as many entries as there are ranks. */
static int open_tables(ga_comm *c, ga_err *e) {
    const size_t size = (size_t)c->ranks.size;
    c->small = malloc(sizeof(double) * GA_COMM_SMALL * size);
    c->ranks.parts = malloc(sizeof(void *) * size);
    int *table = malloc(sizeof(int) * 4 * GA_WIRES * size);
    if (!c->small || !c->ranks.parts || !table)
        return ga_fail(e, GA_ENVIRONMENT, "no memory for tables of %d ranks", c->ranks.size);
    for (int i = 0; i < GA_WIRES; i++) {
        c->wires[i].send = table + 4 * size * (size_t)i;
        c->wires[i].send_at = c->wires[i].send + size;
        c->wires[i].receive = c->wires[i].send + 2 * size;
        c->wires[i].receive_at = c->wires[i].send + 3 * size;
    }
    return GA_OK;
}

static int open_all(ga_comm *c, ga_err *e) {
    GA_TRY(open_mpi(c, e));
    return open_tables(c, e);
}

static void close_all(ga_comm *c) {
    for (int i = 0; i < GA_WIRES && c->ranks.wire_bytes > 0; i++) MPI_Comm_free(&c->wires[i].group);
    MPI_Comm_free(&c->group);
    if (c->own_mpi) MPI_Finalize();
}

static void *serve(void *arg) {
    ga_comm *c = arg;
    int polls = 0, nap = NAP_LEAST;
    ga_flush_denormals(); /* as the threads that compute do */
    const int code = open_all(c, &c->call_error);
    c->call_code = code;
    finish(&c->call_done);
    while (code == GA_OK) {
        const uint32_t bell = atomic_load_explicit(&c->bell, memory_order_acquire);
        if (advance(c)) {
            polls = 0;
            nap = NAP_LEAST;
            if (c->call.kind == CLOSE && atomic_load_explicit(&c->call_done, memory_order_relaxed)) break;
            continue;
        }
        bool busy = false;
        for (int i = 0; i < GA_WIRES; i++) busy = busy || c->wires[i].x != NULL;
        if (atomic_load_explicit(&c->waiting, memory_order_acquire)) {
            if (++polls > POLLS) sched_yield();
        } else if (!busy) {
            sleep_on(&c->bell, bell, 0);
        } else {
            sleep_on(&c->bell, bell, nap);
            nap = nap < NAP_MOST / 2 ? 2 * nap : NAP_MOST;
        }
    }
    if (code == GA_OK) close_all(c);
    return NULL;
}

/* Waits until *done. */
static void wait_for(ga_comm *c, _Atomic uint32_t *done, const char *operation) {
    ga_pulse_enter(&c->pulse, operation);
    atomic_fetch_add_explicit(&c->waiting, 1, memory_order_release);
    ring(c);
    for (int looks = 0; !atomic_load_explicit(done, memory_order_acquire); looks++) {
        if (!c->threaded) {
            if (!advance(c) && looks > POLLS) sched_yield();
        } else if (looks > PATIENCE) {
            sleep_on(done, 0, 0);
        }
    }
    atomic_fetch_sub_explicit(&c->waiting, 1, memory_order_release);
    ga_pulse_leave(&c->pulse);
}

static int make_call(ga_comm *c, call k, const char *operation, ga_err *e) {
    k.request = MPI_REQUEST_NULL;
    c->call = k;
    c->call_code = NOT_BEGUN;
    atomic_store_explicit(&c->call_done, 0, memory_order_relaxed);
    atomic_store_explicit(&c->called, 1, memory_order_release);
    wait_for(c, &c->call_done, operation);
    if (c->call_code < 0 && e) *e = c->call_error;
    return c->call_code;
}

/* === the face =========================================================================================== */

static int start_thread(ga_comm *c, ga_err *e) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&c->thread, NULL, serve, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return ga_fail(e, GA_ENVIRONMENT, "thread of MPI: %s", strerror(rc));
    wait_for(c, &c->call_done, "MPI start");
    if (c->call_code == GA_OK) return GA_OK;
    pthread_join(c->thread, NULL);
    if (e) *e = c->call_error;
    return c->call_code;
}

int ga_comm_open(ga_comm **out, ga_arena *a, ga_wires wires, ga_err *e) {
    int ready = 0, level = 0;
    *out = NULL;
    ga_comm *c = ga_take(a, sizeof *c, 64, e);
    if (!c) return GA_BUG;
    memset(c, 0, sizeof *c);
    c->group = MPI_COMM_NULL;
    c->ranks.wire_bytes = wires.bytes;
    for (int i = 0; i < GA_WIRES && wires.base; i++) c->wires[i].base = (char *)wires.base + (size_t)i * wires.bytes;
    GA_TRY(check(c, MPI_Initialized(&ready), "MPI_Initialized", e));
    if (ready) MPI_Query_thread(&level);
    c->own_mpi = !ready;
    c->threaded = !ready || level == MPI_THREAD_MULTIPLE;
    if (!ready) ga_launcher_follow();
    GA_TRY(ga_pulse_open(&c->pulse, e));
    int code = c->threaded ? start_thread(c, e) : open_all(c, e);
    if (code == GA_OK) code = ga_pulse_connect(&c->pulse, c, e);
    if (code < 0) {
        ga_pulse_close(&c->pulse);
        return code;
    }
    *out = c;
    return GA_OK;
}

void ga_comm_close(ga_comm *c) {
    if (!c) return;
    make_call(c, (call){.kind = CLOSE}, "MPI end", NULL);
    ga_pulse_enter(&c->pulse, "MPI end");
    if (c->threaded) pthread_join(c->thread, NULL);
    else close_all(c);
    ga_pulse_leave(&c->pulse);
    ga_pulse_close(&c->pulse);
    free(c->small);
    free(c->ranks.parts);
    free(c->wires[0].send);
}

int ga_comm_rank(const ga_comm *c) {
    return c->ranks.rank;
}

int ga_comm_size(const ga_comm *c) {
    return c->ranks.size;
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    if (n > INT_MAX || t == GA_BF16 || t == GA_F16 || t == GA_U8)
        return ga_fail(e, GA_BUG, "sum over ranks of %zu %s: at most %d F32, F64, I32 or I64 expected", n,
                       ga_dtype_name(t), INT_MAX);
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return make_call(c, (call){.kind = SUM, .buf = buf, .n = (int)n, .type = ga_mpi_type(t)}, "all-reduce", e);
}

int ga_comm_start(ga_comm *c, int number, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, number, e));
    request *r = &c->requests[number];
    if (r->started) return ga_fail(e, GA_BUG, "request %d: started again before its wait", number);
    r->x = *x;
    r->started = true;
    r->code = GA_OK;
    atomic_store_explicit(&r->done, 0, memory_order_relaxed);
    const uint32_t queued = atomic_load_explicit(&c->queued, memory_order_relaxed);
    c->queue[queued % GA_COMM_REQUESTS] = number;
    atomic_store_explicit(&c->queued, queued + 1, memory_order_release);
    c->counts.collectives++;
    c->counts.bytes += ga_exchange_bytes(x);
    ring(c);
    return GA_OK;
}

int ga_comm_wait(ga_comm *c, int number, ga_err *e) {
    if (number < 0 || number >= GA_COMM_REQUESTS)
        return ga_fail(e, GA_BUG, "request %d: not in 0..%d", number, GA_COMM_REQUESTS - 1);
    request *r = &c->requests[number];
    if (!r->started) return GA_OK;
    wait_for(c, &r->done, ga_exchange_name(&r->x));
    r->started = false;
    if (r->code < 0 && e) *e = r->error;
    return r->code;
}

int ga_comm_progress(ga_comm *c, ga_err *e) {
    (void)e; /* a failure is told by the wait */
    if (!c->threaded) advance(c);
    return GA_OK;
}

int ga_comm_small(ga_comm *c, double *values, size_t n, ga_err *e) {
    if (n > GA_COMM_SMALL)
        return ga_fail(e, GA_BUG, "small sum of %zu numbers: at most %d expected", n, GA_COMM_SMALL);
    c->counts.small++;
    return make_call(c, (call){.kind = SMALL, .buf = values, .n = (int)n}, "small sum", e);
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    for (char *at = buf; bytes > 0;) {
        const int part = bytes < INT_MAX ? (int)bytes : INT_MAX;
        GA_TRY(make_call(c, (call){.kind = BROADCAST, .buf = at, .n = part, .root = root}, "broadcast", e));
        at += part;
        bytes -= (size_t)part;
    }
    return GA_OK;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    return make_call(c, (call){.kind = BARRIER}, "barrier", e);
}

int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    struct {
        int value, rank;
    } pair = {value, c->ranks.rank};
    GA_TRY(make_call(c, (call){.kind = LOWEST, .buf = &pair}, "agreement", e));
    *low = pair.value;
    *rank = pair.rank;
    return GA_OK;
}

void ga_comm_abort(ga_comm *c, int exit_code) {
    if (c->ranks.size == 1) return;
    ga_pulse_fail(&c->pulse, exit_code);
    make_call(c, (call){.kind = ABORT, .n = exit_code}, "MPI abort", NULL);
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
    return c->ranks.size > 1 ? &c->pulse : NULL;
}
