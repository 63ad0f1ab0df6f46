/* comm_nccl.c: the process group of a CUDA program started without MPI. Values of the host (agreement,
 * small sums, the identifier of NCCL's group) go over TCP connections to rank 0, which adds them in
 * the order of the ranks; device_nccl.c reduces buffers of the device. */
#include "ranks/comm.h"
#include "ranks/pulse.h"
#include "ranks/rendezvous.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 8192 }; /* most bytes combined at a time */

typedef enum operation { SUM, LARGEST, LOWEST, BROADCAST } operation;

struct ga_comm {
    int rank, size;
    ga_comm_counts counts;
    ga_pulse pulse;
    int sockets[GA_RANKS_MAX];
};

/* Header of each message: it shows at once that ranks are at different operations. */
typedef struct header {
    uint32_t operation, type;
    uint64_t bytes;
} header;

typedef struct lowest_value {
    int32_t value, rank;
} lowest_value;

int ga_comm_open(ga_comm **out, ga_arena *a, const ga_arena *wires, ga_err *e) {
    (void)wires;
    ga_rendezvous r;
    *out = NULL;
    GA_TRY(ga_rendezvous_read(&r, e));
    ga_comm *c = ga_take(a, sizeof *c, 64, e);
    if (!c) return GA_BUG;
    c->rank = r.rank;
    c->size = r.size;
    GA_TRY(ga_pulse_open(&c->pulse, true, e));
    int code = ga_rendezvous_connect(&r, c->sockets, e);
    if (code == GA_OK) code = ga_pulse_connect(&c->pulse, c, e);
    if (code < 0)
        ga_comm_close(c);
    else
        *out = c;
    return code;
}

void ga_comm_close(ga_comm *c) {
    if (!c) return;
    for (int i = 0; i < c->size; i++)
        if (c->sockets[i] >= 0) close(c->sockets[i]);
    ga_pulse_close(&c->pulse);
}

int ga_comm_rank(const ga_comm *c) {
    return c->rank;
}

int ga_comm_size(const ga_comm *c) {
    return c->size;
}

int ga_comm_local_size(const ga_comm *c) {
    const char *text = getenv("LOCAL_WORLD_SIZE"); /* as torchrun sets it */
    const long local = text ? strtol(text, NULL, 10) : 0;
    return local >= 1 && local <= c->size ? (int)local : 1;
}

static int lost(const ga_comm *c, int peer, ga_err *e) {
    return ga_fail(
        e, GA_ENVIRONMENT,
        "rank %d: the connection to rank %d is gone: that rank has ended; its own line says why",
        c->rank, peer);
}

static int put(const ga_comm *c, int peer, const void *data, size_t bytes, ga_err *e) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = send(c->sockets[peer], at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(c, peer, e);
        at += n;
        bytes -= (size_t)n;
    }
    return GA_OK;
}

static int get(const ga_comm *c, int peer, void *data, size_t bytes, ga_err *e) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = recv(c->sockets[peer], at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(c, peer, e);
        at += n;
        bytes -= (size_t)n;
    }
    return GA_OK;
}

/* Receives a header and compares it with this rank's own. */
static int expect(const ga_comm *c, int peer, const header *mine, ga_err *e) {
    header h;
    GA_TRY(get(c, peer, &h, sizeof h, e));
    if (memcmp(&h, mine, sizeof h) == 0) return GA_OK;
    return ga_fail(
        e, GA_BUG,
        "rank %d is at operation %u of %llu bytes, rank %d at operation %u of %llu bytes", c->rank,
        mine->operation, (unsigned long long)mine->bytes, peer, h.operation,
        (unsigned long long)h.bytes);
}

#define ADD(type) \
    for (size_t i = 0; i < bytes / sizeof(type); i++) ((type *)into)[i] += ((const type *)from)[i]

/* Adds `from` to `into`; for LARGEST and LOWEST keeps the larger or lower of both. */
static void combine(const header *h, void *into, const void *from, size_t bytes) {
    if (h->operation == LOWEST) {
        const lowest_value *other = from;
        if (other->value < ((lowest_value *)into)->value) memcpy(into, from, sizeof *other);
    } else if (h->operation == LARGEST) {
        for (size_t i = 0; i < bytes / sizeof(double); i++)
            ((double *)into)[i] = fmax(((double *)into)[i], ((const double *)from)[i]);
    } else if (h->type == GA_F32) {
        ADD(float);
    } else if (h->type == GA_F64) {
        ADD(double);
    } else if (h->type == GA_I32) {
        ADD(int32_t);
    } else {
        ADD(int64_t);
    }
}

/* Combines up to CHUNK bytes: rank 0 does so in the order of the ranks and sends the result to all. */
static int combine_chunk(ga_comm *c, const header *h, char *buf, size_t bytes, ga_err *e) {
    double other[CHUNK / sizeof(double)];
    if (c->rank > 0) {
        GA_TRY(put(c, 0, h, sizeof *h, e));
        GA_TRY(put(c, 0, buf, bytes, e));
        return get(c, 0, buf, bytes, e);
    }
    for (int peer = 1; peer < c->size; peer++) {
        GA_TRY(expect(c, peer, h, e));
        GA_TRY(get(c, peer, other, bytes, e));
        combine(h, buf, other, bytes);
    }
    for (int peer = 1; peer < c->size; peer++) GA_TRY(put(c, peer, buf, bytes, e));
    return GA_OK;
}

static int combine_all(ga_comm *c, operation op, ga_dtype t, void *buf, size_t bytes,
                       const char *what, ga_err *e) {
    header h = {op, t, bytes};
    int code = GA_OK;
    if (c->size == 1) return GA_OK;
    ga_pulse_enter(&c->pulse, what);
    for (size_t at = 0; at < bytes && code == GA_OK; at += CHUNK)
        code = combine_chunk(c, &h, (char *)buf + at, bytes - at < CHUNK ? bytes - at : CHUNK, e);
    ga_pulse_leave(&c->pulse);
    return code;
}

static int sum(ga_comm *c, void *buf, size_t n, ga_dtype t, const char *what, ga_err *e) {
    if (t != GA_F32 && t != GA_F64 && t != GA_I32 && t != GA_I64)
        return ga_fail(e, GA_BUG, "sum over ranks of %s: F32, F64, I32 or I64 expected",
                       ga_dtype_name(t));
    return combine_all(c, SUM, t, buf, n * ga_dtype_bytes(t), what, e);
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    GA_TRY(sum(c, buf, n, t, "all-reduce", e));
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return GA_OK;
}

/* Completes before it returns: large buffers, worth overlapping, are on the device, and so are all other kinds. */
int ga_comm_start(ga_comm *c, int request, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, request, e));
    if (x->kind != GA_ALL_REDUCE || x->wire != x->type)
        return ga_fail(e, GA_BUG, "exchange %d: the host has all-reduces alone, in the type of the values", request);
    return ga_comm_all_reduce(c, x->values, (size_t)x->n, x->type, e);
}

int ga_comm_wait(ga_comm *c, int request, ga_err *e) {
    (void)c, (void)request, (void)e;
    return GA_OK;
}

int ga_comm_small(ga_comm *c, double *values, size_t n, size_t largest, ga_err *e) {
    const size_t sums = n - largest;
    c->counts.small++;
    GA_TRY(sum(c, values, sums, GA_F64, "small all-reduce", e));
    return combine_all(c, LARGEST, GA_F64, values + sums, largest * sizeof(double), "small all-reduce", e);
}

static int broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    header h = {BROADCAST, (uint32_t)root, bytes};
    if (c->rank == root && root > 0) {
        GA_TRY(put(c, 0, &h, sizeof h, e));
        return put(c, 0, buf, bytes, e);
    }
    if (c->rank > 0) {
        GA_TRY(expect(c, 0, &h, e));
        return get(c, 0, buf, bytes, e);
    }
    if (root > 0) {
        GA_TRY(expect(c, root, &h, e));
        GA_TRY(get(c, root, buf, bytes, e));
    }
    for (int peer = 1; peer < c->size; peer++) {
        if (peer == root) continue;
        GA_TRY(put(c, peer, &h, sizeof h, e));
        GA_TRY(put(c, peer, buf, bytes, e));
    }
    return GA_OK;
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    ga_pulse_enter(&c->pulse, "broadcast");
    int code = broadcast(c, buf, bytes, root, e);
    ga_pulse_leave(&c->pulse);
    return code;
}

/* Programs for devices have no groups beside that of all ranks. */
int ga_comm_divide(ga_comm *c, const ga_group *groups, int count, ga_err *e) {
    (void)c, (void)groups;
    return count == 0 ? GA_OK : ga_fail(e, GA_BUG, "%d groups of ranks: this engine has none", count);
}

int ga_comm_group_rank(const ga_comm *c, int group) {
    return group == 0 ? c->rank : 0;
}

int ga_comm_group_size(const ga_comm *c, int group) {
    return group == 0 ? c->size : 1;
}

const ga_group *ga_comm_group(const ga_comm *c, int group) {
    (void)c, (void)group;
    return NULL;
}

int ga_comm_all_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_err *e) {
    return group == 0 ? ga_comm_all_reduce(c, buf, n, t, e) : GA_OK;
}

int ga_comm_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int root, ga_err *e) {
    return group == 0 ? ga_comm_broadcast(c, buf, bytes, root, e) : GA_OK;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    int32_t nothing = 0;
    return sum(c, &nothing, 1, GA_I32, "barrier", e);
}

int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    lowest_value all = {value, c->rank};
    GA_TRY(combine_all(c, LOWEST, GA_I32, &all, sizeof all, "agreement", e));
    *low = all.value;
    *rank = all.rank;
    return GA_OK;
}

/* The other ranks notice at their next message that the connection is closed. */
void ga_comm_abort(ga_comm *c, int exit_code) {
    if (c->size == 1) return;
    ga_pulse_fail(&c->pulse, exit_code);
    for (int i = 0; i < c->size; i++)
        if (c->sockets[i] >= 0) shutdown(c->sockets[i], SHUT_RDWR);
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
    return c->size > 1 ? &c->pulse : NULL;
}
