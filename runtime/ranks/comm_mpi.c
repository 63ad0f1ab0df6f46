/* comm_mpi.c: collectives by MPI. Every operation is non-blocking, and one loop polls for all of them:
 * MPI makes progress only inside its calls, and ranks may share cores. */
#include "ranks/comm.h"
#include "ranks/launcher.h"
#include "ranks/watchdog.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

enum { POLLS = 1000 }; /* tests of a request before a wait starts to yield the core */

struct ga_comm {
    MPI_Comm group;
    int rank, size, local_size;
    bool own_mpi; /* MPI was initialized here, so it is finalized here */
    ga_comm_counts counts;
    ga_watchdog watchdog;
    MPI_Request requests[GA_COMM_REQUESTS];
};

size_t ga_comm_bytes(void) {
    return ga_padded(sizeof(ga_comm));
}

static int check(ga_comm *c, int rc, const char *operation, ga_err *e) {
    if (rc == MPI_SUCCESS) return GA_OK;
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return ga_fail(e, GA_ENVIRONMENT, "rank %d: MPI failed in %s: %.*s", c->rank, operation,
                   n < 300 ? n : 300, text);
}

static int poll_until_done(ga_comm *c, MPI_Request *request, const char *operation, ga_err *e) {
    int done = 0, code = GA_OK;
    ga_watchdog_enter(&c->watchdog, operation);
    for (int64_t polls = 0; !done && code == GA_OK; polls++) {
        code = check(c, MPI_Test(request, &done, MPI_STATUS_IGNORE), operation, e);
        if (!done && polls > POLLS) sched_yield();
    }
    ga_watchdog_leave(&c->watchdog);
    return code;
}

/* Counts the ranks that share memory with this one. */
static int count_local(ga_comm *c, ga_err *e) {
    MPI_Comm local;
    GA_TRY(check(c, MPI_Comm_split_type(c->group, MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local),
                 "MPI_Comm_split_type", e));
    MPI_Comm_size(local, &c->local_size);
    MPI_Comm_free(&local);
    return GA_OK;
}

static int open_mpi(ga_comm *c, ga_err *e) {
    int ready = 0, level = 0;
    GA_TRY(check(c, MPI_Initialized(&ready), "MPI_Initialized", e));
    if (ready) {
        MPI_Query_thread(&level);
    } else {
        GA_TRY(check(c, MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread",
                     e));
        c->own_mpi = true;
    }
    if (level < MPI_THREAD_FUNNELED)
        return ga_fail(
            e, GA_ENVIRONMENT,
            "MPI: thread level %d found, MPI_THREAD_FUNNELED (%d) expected: use an MPI with "
            "thread support",
            level, MPI_THREAD_FUNNELED);
    GA_TRY(check(c, MPI_Comm_dup(MPI_COMM_WORLD, &c->group), "MPI_Comm_dup", e));
    MPI_Comm_set_errhandler(c->group, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c->group, &c->rank);
    MPI_Comm_size(c->group, &c->size);
    GA_TRY(count_local(c, e));
    return ga_launcher_check(c->size, "MPI knows of fewer: start it with the mpirun of the MPI that it was "
                             "built with", e);
}

int ga_comm_open(ga_comm **out, ga_arena *a, ga_err *e) {
    *out = NULL;
    ga_comm *c = ga_take(a, sizeof *c, 64, e);
    if (!c) return GA_BUG;
    for (int i = 0; i < GA_COMM_REQUESTS; i++) c->requests[i] = MPI_REQUEST_NULL;
    c->group = MPI_COMM_NULL;
    GA_TRY(ga_watchdog_open(&c->watchdog, e));
    ga_watchdog_enter(&c->watchdog, "MPI start");
    int code = open_mpi(c, e);
    ga_watchdog_leave(&c->watchdog);
    c->watchdog.rank = c->rank;
    if (code < 0) {
        ga_watchdog_close(&c->watchdog);
        return code;
    }
    *out = c;
    return GA_OK;
}

void ga_comm_close(ga_comm *c) {
    if (!c) return;
    ga_watchdog_enter(&c->watchdog, "MPI end");
    MPI_Comm_free(&c->group);
    if (c->own_mpi) MPI_Finalize();
    ga_watchdog_leave(&c->watchdog);
    ga_watchdog_close(&c->watchdog);
}

int ga_comm_rank(const ga_comm *c) {
    return c->rank;
}

int ga_comm_size(const ga_comm *c) {
    return c->size;
}

int ga_comm_local_size(const ga_comm *c) {
    return c->local_size;
}

static int start_sum(ga_comm *c, MPI_Request *request, void *buf, size_t n, ga_dtype t, ga_err *e) {
    MPI_Datatype type;
    switch (t) {
    case GA_F32: type = MPI_FLOAT; break;
    case GA_F64: type = MPI_DOUBLE; break;
    case GA_I32: type = MPI_INT32_T; break;
    case GA_I64: type = MPI_INT64_T; break;
    default:
        return ga_fail(e, GA_BUG, "sum over ranks of %s: F32, F64, I32 or I64 expected",
                       ga_dtype_name(t));
    }
    if (n > INT_MAX)
        return ga_fail(e, GA_BUG,
                       "sum over ranks of %zu elements: at most %d in one bucket expected", n,
                       INT_MAX);
    return check(c, MPI_Iallreduce(MPI_IN_PLACE, buf, (int)n, type, MPI_SUM, c->group, request),
                 "all-reduce", e);
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    MPI_Request request;
    GA_TRY(start_sum(c, &request, buf, n, t, e));
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return poll_until_done(c, &request, "all-reduce", e);
}

int ga_comm_start(ga_comm *c, int request, void *buf, size_t n, ga_dtype t, ga_err *e) {
    if (request < 0 || request >= GA_COMM_REQUESTS || c->requests[request] != MPI_REQUEST_NULL)
        return ga_fail(e, GA_BUG, "request %d: in use, or not in 0..%d", request,
                       GA_COMM_REQUESTS - 1);
    GA_TRY(start_sum(c, &c->requests[request], buf, n, t, e));
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return GA_OK;
}

int ga_comm_wait(ga_comm *c, int request, ga_err *e) {
    if (request < 0 || request >= GA_COMM_REQUESTS)
        return ga_fail(e, GA_BUG, "request %d: not in 0..%d", request, GA_COMM_REQUESTS - 1);
    return poll_until_done(c, &c->requests[request], "all-reduce", e);
}

int ga_comm_progress(ga_comm *c, ga_err *e) {
    int found;
    return check(c, MPI_Iprobe(MPI_ANY_SOURCE, 0, c->group, &found, MPI_STATUS_IGNORE), "progress",
                 e);
}

int ga_comm_small(ga_comm *c, double *values, size_t n, ga_err *e) {
    MPI_Request request;
    GA_TRY(start_sum(c, &request, values, n, GA_F64, e));
    c->counts.small++;
    return poll_until_done(c, &request, "small all-reduce", e);
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    char *at = buf;
    while (bytes > 0) {
        int part = bytes < INT_MAX ? (int)bytes : INT_MAX;
        MPI_Request request;
        GA_TRY(check(c, MPI_Ibcast(at, part, MPI_BYTE, root, c->group, &request), "broadcast", e));
        GA_TRY(poll_until_done(c, &request, "broadcast", e));
        at += part;
        bytes -= (size_t)part;
    }
    return GA_OK;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    MPI_Request request;
    GA_TRY(check(c, MPI_Ibarrier(c->group, &request), "barrier", e));
    return poll_until_done(c, &request, "barrier", e);
}

/* The lowest value over the ranks, and the first rank with it. */
static int lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    struct {
        int value, rank;
    } pair = {value, c->rank};
    MPI_Request request;
    int rc = MPI_Iallreduce(MPI_IN_PLACE, &pair, 1, MPI_2INT, MPI_MINLOC, c->group, &request);
    GA_TRY(check(c, rc, "agreement", e));
    GA_TRY(poll_until_done(c, &request, "agreement", e));
    *low = pair.value;
    *rank = pair.rank;
    return GA_OK;
}

int ga_comm_agree(ga_comm *c, int code, ga_err *e) {
    int low, rank;
    if (code > 0) code = 0;
    GA_TRY(lowest(c, code, &low, &rank, code < 0 ? NULL : e));
    if (code < 0) return code;
    return low == 0 ? GA_OK
                    : ga_fail(e, (ga_status)low,
                              "rank %d failed with code %d; its own line says why", rank, -low);
}

int ga_comm_handshake(ga_comm *c, uint64_t hash, ga_err *e) {
    uint64_t first = hash;
    int low, rank;
    GA_TRY(ga_comm_broadcast(c, &first, sizeof first, 0, e));
    GA_TRY(lowest(c, first == hash ? 0 : -1, &low, &rank, e));
    if (low == 0) return GA_OK;
    return ga_fail(
        e, GA_INPUT,
        "rank %d runs another program, or with other options, than rank 0: start the same one "
        "everywhere",
        rank);
}

void ga_comm_abort(ga_comm *c, int exit_code) {
    if (c->size == 1) return;
    MPI_Abort(c->group, exit_code);
    _exit(exit_code);
}

ga_comm_counts ga_comm_counted(const ga_comm *c) {
    return c->counts;
}
