/* comm_nccl.c: the process group of a CUDA program started without MPI. Values of the host (agreement,
 * small sums, the identifier of NCCL's group) go over TCP connections to rank 0, which adds them in
 * the order of the ranks; those of a list of a group to its first rank. device_nccl.c reduces buffers of the
 * device. */
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

/* Ranks that are connected, each of them to the first one: all, or those of a list. */
typedef struct star {
    int rank, size;   /* the place of this rank among them, and how many they are */
    const int *lists; /* of each rank the number of its list; NULL: all ranks are connected */
    int list;
    int *sockets; /* by places; -1: not connected */
} star;

struct ga_comm {
    star stars[GA_GROUPS + 1]; /* 0: all ranks */
    const ga_group *named;     /* those from 1 on */
    int group_count;
    ga_comm_counts counts;
    ga_pulse pulse;
};

/* Header of each message: it shows at once that ranks are at different operations. */
typedef struct header {
    uint32_t operation, type;
    uint64_t bytes;
} header;

typedef struct lowest_value {
    int32_t value, rank;
} lowest_value;

static int take_sockets(star *s, ga_err *e) {
    s->sockets = malloc(sizeof(int) * (size_t)s->size);
    if (!s->sockets) return ga_fail(e, GA_ENVIRONMENT, "no memory for the sockets of %d ranks", s->size);
    for (int i = 0; i < s->size; i++) s->sockets[i] = -1;
    return GA_OK;
}

int ga_comm_open(ga_comm **out, ga_arena *a, const ga_arena *wires, ga_err *e) {
    (void)wires;
    ga_rendezvous r;
    *out = NULL;
    GA_TRY(ga_rendezvous_read(&r, e));
    ga_comm *c = ga_take(a, sizeof *c, 64, e);
    if (!c) return GA_BUG;
    c->stars[0].rank = r.rank;
    c->stars[0].size = r.size;
    GA_TRY(take_sockets(&c->stars[0], e));
    GA_TRY(ga_pulse_open(&c->pulse, true, e));
    int code = ga_rendezvous_connect(&r, c->stars[0].sockets, e);
    if (code == GA_OK) code = ga_pulse_connect(&c->pulse, c, e);
    if (code < 0)
        ga_comm_close(c);
    else
        *out = c;
    return code;
}

void ga_comm_close(ga_comm *c) {
    if (!c) return;
    for (int k = 0; k <= c->group_count; k++) {
        for (int i = 0; i < c->stars[k].size; i++)
            if (c->stars[k].sockets[i] >= 0) close(c->stars[k].sockets[i]);
        free(c->stars[k].sockets);
    }
    ga_pulse_close(&c->pulse);
}

int ga_comm_rank(const ga_comm *c) {
    return c->stars[0].rank;
}

int ga_comm_size(const ga_comm *c) {
    return c->stars[0].size;
}

int ga_comm_local_size(const ga_comm *c) {
    const char *text = getenv("LOCAL_WORLD_SIZE"); /* as torchrun sets it */
    const long local = text ? strtol(text, NULL, 10) : 0;
    return local >= 1 && local <= c->stars[0].size ? (int)local : 1;
}

/* The rank that has this place. */
static int rank_at(const star *s, int place) {
    int rank = 0;
    for (; s->lists; rank++)
        if (s->lists[rank] == s->list && place-- == 0) return rank;
    return place;
}

static int lost(const star *s, int peer, ga_err *e) {
    return ga_fail(
        e, GA_ENVIRONMENT,
        "rank %d: the connection to rank %d is gone: that rank has ended; its own line says why",
        rank_at(s, s->rank), rank_at(s, peer));
}

static int put(const star *s, int peer, const void *data, size_t bytes, ga_err *e) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = send(s->sockets[peer], at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(s, peer, e);
        at += n;
        bytes -= (size_t)n;
    }
    return GA_OK;
}

static int get(const star *s, int peer, void *data, size_t bytes, ga_err *e) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = recv(s->sockets[peer], at, bytes, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lost(s, peer, e);
        at += n;
        bytes -= (size_t)n;
    }
    return GA_OK;
}

/* Receives a header and compares it with this rank's own. */
static int expect(const star *s, int peer, const header *mine, ga_err *e) {
    header h;
    GA_TRY(get(s, peer, &h, sizeof h, e));
    if (memcmp(&h, mine, sizeof h) == 0) return GA_OK;
    return ga_fail(
        e, GA_BUG,
        "rank %d is at operation %u of %llu bytes, rank %d at operation %u of %llu bytes", rank_at(s, s->rank),
        mine->operation, (unsigned long long)mine->bytes, rank_at(s, peer), h.operation,
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

/* Combines up to CHUNK bytes: the first rank does so in the order of the ranks and sends the result to all. */
static int combine_chunk(const star *s, const header *h, char *buf, size_t bytes, ga_err *e) {
    double other[CHUNK / sizeof(double)];
    if (s->rank > 0) {
        GA_TRY(put(s, 0, h, sizeof *h, e));
        GA_TRY(put(s, 0, buf, bytes, e));
        return get(s, 0, buf, bytes, e);
    }
    for (int peer = 1; peer < s->size; peer++) {
        GA_TRY(expect(s, peer, h, e));
        GA_TRY(get(s, peer, other, bytes, e));
        combine(h, buf, other, bytes);
    }
    for (int peer = 1; peer < s->size; peer++) GA_TRY(put(s, peer, buf, bytes, e));
    return GA_OK;
}

static int combine_all(ga_comm *c, int group, operation op, ga_dtype t, void *buf, size_t bytes,
                       const char *what, ga_err *e) {
    const star *s = &c->stars[group];
    header h = {op, t, bytes};
    int code = GA_OK;
    if (s->size == 1) return GA_OK;
    ga_pulse_enter(&c->pulse, what);
    for (size_t at = 0; at < bytes && code == GA_OK; at += CHUNK)
        code = combine_chunk(s, &h, (char *)buf + at, bytes - at < CHUNK ? bytes - at : CHUNK, e);
    ga_pulse_leave(&c->pulse);
    return code;
}

static int sum(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, const char *what, ga_err *e) {
    if (t != GA_F32 && t != GA_F64 && t != GA_I32 && t != GA_I64)
        return ga_fail(e, GA_BUG, "sum over ranks of %s: F32, F64, I32 or I64 expected",
                       ga_dtype_name(t));
    return combine_all(c, group, SUM, t, buf, n * ga_dtype_bytes(t), what, e);
}

int ga_comm_all_reduce(ga_comm *c, void *buf, size_t n, ga_dtype t, ga_err *e) {
    return ga_comm_all_reduce_in(c, 0, buf, n, t, e);
}

int ga_comm_all_reduce_in(ga_comm *c, int group, void *buf, size_t n, ga_dtype t, ga_err *e) {
    GA_TRY(sum(c, group, buf, n, t, "all-reduce", e));
    if (group > 0 && c->stars[group].size == 1) return GA_OK;
    c->counts.collectives++;
    c->counts.bytes += (int64_t)(n * ga_dtype_bytes(t));
    return GA_OK;
}

/* Completes before it returns: large buffers, worth overlapping, are on the device, and so are all other kinds. */
int ga_comm_start(ga_comm *c, int request, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, request, e));
    if (x->kind != GA_ALL_REDUCE || x->wire != x->type)
        return ga_fail(e, GA_BUG, "exchange %d: the host has all-reduces alone, in the type of the values", request);
    return ga_comm_all_reduce_in(c, x->group, x->values, (size_t)x->n, x->type, e);
}

int ga_comm_wait(ga_comm *c, int request, ga_err *e) {
    (void)c, (void)request, (void)e;
    return GA_OK;
}

int ga_comm_small(ga_comm *c, double *values, size_t n, size_t largest, ga_err *e) {
    const size_t sums = n - largest;
    c->counts.small++;
    GA_TRY(sum(c, 0, values, sums, GA_F64, "small all-reduce", e));
    return combine_all(c, 0, LARGEST, GA_F64, values + sums, largest * sizeof(double), "small all-reduce", e);
}

static int broadcast(const star *s, void *buf, size_t bytes, int root, ga_err *e) {
    header h = {BROADCAST, (uint32_t)root, bytes};
    if (s->rank == root && root > 0) {
        GA_TRY(put(s, 0, &h, sizeof h, e));
        return put(s, 0, buf, bytes, e);
    }
    if (s->rank > 0) {
        GA_TRY(expect(s, 0, &h, e));
        return get(s, 0, buf, bytes, e);
    }
    if (root > 0) {
        GA_TRY(expect(s, root, &h, e));
        GA_TRY(get(s, root, buf, bytes, e));
    }
    for (int peer = 1; peer < s->size; peer++) {
        if (peer == root) continue;
        GA_TRY(put(s, peer, &h, sizeof h, e));
        GA_TRY(put(s, peer, buf, bytes, e));
    }
    return GA_OK;
}

int ga_comm_broadcast(ga_comm *c, void *buf, size_t bytes, int root, ga_err *e) {
    return ga_comm_broadcast_in(c, 0, buf, bytes, root, e);
}

int ga_comm_broadcast_in(ga_comm *c, int group, void *buf, size_t bytes, int root, ga_err *e) {
    ga_pulse_enter(&c->pulse, "broadcast");
    int code = broadcast(&c->stars[group], buf, bytes, root, e);
    ga_pulse_leave(&c->pulse);
    return code;
}

/* === groups ============================================================================================= */

/* The ranks of the own list, not connected yet. */
static star list_of(const ga_comm *c, const ga_group *g) {
    star s = {.lists = g->lists, .list = g->lists[c->stars[0].rank]};
    for (int rank = 0; rank < c->stars[0].size; rank++) {
        s.rank += g->lists[rank] == s.list && rank < c->stars[0].rank;
        s.size += g->lists[rank] == s.list;
    }
    return s;
}

/* Connects the ranks of each list of a group to its first one, which tells all ranks where it listens. */
static int connect_lists(ga_comm *c, star *s, ga_err *e) {
    ga_rendezvous own = {.rank = s->rank, .size = s->size};
    int listener = -1, code = s->rank == 0 ? ga_rendezvous_listen_anywhere(&own, &listener, e) : GA_OK;
    GA_TRY(ga_comm_agree(c, code, e));
    for (int rank = 0; rank < c->stars[0].size; rank++) {
        bool first = true;
        for (int before = 0; before < rank; before++) first = first && s->lists[before] != s->lists[rank];
        ga_rendezvous told = own;
        if (first) GA_TRY(ga_comm_broadcast(c, &told, sizeof told, rank, e));
        if (first && s->lists[rank] == s->list) own = told;
    }
    own.rank = s->rank;
    code = s->rank == 0 ? ga_rendezvous_gather(&own, listener, s->sockets, e)
                        : ga_rendezvous_join(&own, s->sockets, e);
    return ga_comm_agree(c, code, e);
}

int ga_comm_divide(ga_comm *c, const ga_group *groups, int count, ga_err *e) {
    if (count > GA_GROUPS) return ga_fail(e, GA_BUG, "%d groups of ranks: at most %d expected", count, GA_GROUPS);
    c->named = groups;
    for (int k = 1; k <= count; k++) {
        c->stars[k] = list_of(c, &groups[k - 1]);
        GA_TRY(take_sockets(&c->stars[k], e));
        c->group_count = k;
        GA_TRY(connect_lists(c, &c->stars[k], e));
    }
    return GA_OK;
}

int ga_comm_group_rank(const ga_comm *c, int group) {
    return c->stars[group].rank;
}

int ga_comm_group_size(const ga_comm *c, int group) {
    return c->stars[group].size;
}

const ga_group *ga_comm_group(const ga_comm *c, int group) {
    return group >= 1 && group <= c->group_count ? &c->named[group - 1] : NULL;
}

int ga_comm_barrier(ga_comm *c, ga_err *e) {
    int32_t nothing = 0;
    return sum(c, 0, &nothing, 1, GA_I32, "barrier", e);
}

int ga_comm_lowest(ga_comm *c, int value, int *low, int *rank, ga_err *e) {
    lowest_value all = {value, c->stars[0].rank};
    GA_TRY(combine_all(c, 0, LOWEST, GA_I32, &all, sizeof all, "agreement", e));
    *low = all.value;
    *rank = all.rank;
    return GA_OK;
}

/* The other ranks notice at their next message that the connection is closed. */
void ga_comm_abort(ga_comm *c, int exit_code) {
    const star *all = &c->stars[0];
    if (all->size == 1) return;
    ga_pulse_fail(&c->pulse, exit_code);
    for (int i = 0; i < all->size; i++)
        if (all->sockets[i] >= 0) shutdown(all->sockets[i], SHUT_RDWR);
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
    return c->stars[0].size > 1 ? &c->pulse : NULL;
}
