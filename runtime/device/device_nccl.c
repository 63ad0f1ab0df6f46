/* device_nccl.c: NCCL, opened at run time. */
#include "device/device_nccl.h"

#include "device/device_private.h"
#include "device/nccl_abi.h"
#include "ranks/pulse.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    OLDEST = 21000, /* NCCL 2.10, the first with bf16 */
    SPLITS = 21801  /* the first that makes a communicator of another one */
};

typedef struct nccl_functions {
    GA_NCCL_FUNCTIONS(GA_POINTER)
    GA_NCCL_OPTIONAL(GA_POINTER)
} nccl_functions;

/* The ranks of a list, or all: the place of this rank, and how many they are. */
typedef struct nccl_ranks {
    ncclComm_t comm; /* NULL for one rank */
    int rank, size;
} nccl_ranks;

struct ga_nccl {
    nccl_functions nccl;
    void *library;
    int version;
    ga_device *device;
    ga_comm *comm;
    nccl_ranks groups[GA_GROUPS + 1]; /* 0: all ranks; then those of comm.h */
    int group_count;
};

static int check(const ga_nccl *c, ncclResult_t r, const char *what, ga_err *e) {
    c->device->behind = NULL; /* a collective stands behind the kernels of its stream */
    if (r == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "rank %d: NCCL failed in %s: %s (%d)", c->groups[0].rank, what,
                   c->nccl.ncclGetErrorString(r), r);
}

static int open_library(ga_nccl *c, ga_err *e) {
    static const char *const sonames[] = {"libnccl.so.2", NULL};
    static const char *const symbols[] = {GA_NCCL_FUNCTIONS(GA_SYMBOL_NAME)};
    GA_TRY(ga_library_open(&c->library, sonames, symbols, (int)(sizeof symbols / sizeof *symbols),
                           (void (**)(void)) & c->nccl, "install NCCL 2.10 or newer, or train with one rank", e));
    GA_TRY(check(c, c->nccl.ncclGetVersion(&c->version), "ncclGetVersion", e));
    void *optional = c->version >= SPLITS ? dlsym(c->library, "ncclCommSplit") : NULL;
    memcpy(&c->nccl.ncclCommSplit, &optional, sizeof optional);
    if (c->version >= OLDEST) return GA_OK;
    const int major = c->version < 10000 ? 1000 : 10000; /* 2.8 is 2800, 2.9 is 20900 */
    return ga_fail(e, GA_ENVIRONMENT, "NCCL %d.%d is too old; install NCCL 2.10 or newer, or train with one rank",
                   c->version / major, c->version % major / 100);
}

/* Behind a call in which NCCL waits for all ranks. One that failed ends at once, and its pulse tells the others: they
 * may still wait there, so it would wait for them in vain. */
static int agree_unless_failed(ga_nccl *c, int code, ga_err *e) {
    ga_pulse_leave(ga_comm_pulse(c->comm));
    return code < 0 ? code : ga_comm_agree(c->comm, code, e);
}

/* Connects the ranks of each list of a group by an identifier that its first rank makes. */
static int connect_by_id(ga_nccl *c, int group, ga_err *e) {
    nccl_ranks *g = &c->groups[group];
    ncclUniqueId id = {{0}};
    int code = g->rank == 0 ? check(c, c->nccl.ncclGetUniqueId(&id), "ncclGetUniqueId", e) : GA_OK;
    GA_TRY(ga_comm_agree(c->comm, code, e));
    GA_TRY(ga_comm_broadcast_in(c->comm, group, &id, sizeof id, 0, e));
    ga_pulse_enter(ga_comm_pulse(c->comm), "NCCL's start");
    code = g->size > 1 ? check(c, c->nccl.ncclCommInitRank(&g->comm, g->size, id, g->rank), "ncclCommInitRank", e)
                       : GA_OK;
    return agree_unless_failed(c, code, e);
}

/* The same out of the communicator of all ranks, which splits by the numbers of the lists. */
static int split_all(ga_nccl *c, int group, ga_err *e) {
    enum { NO_COLOR = -1 };
    nccl_ranks *g = &c->groups[group];
    const int color = g->size > 1 ? ga_comm_list(c->comm, group) : NO_COLOR;
    ga_pulse_enter(ga_comm_pulse(c->comm), "NCCL's start");
    const int code = check(c, c->nccl.ncclCommSplit(c->groups[0].comm, color, g->rank, &g->comm, NULL),
                           "ncclCommSplit", e);
    return agree_unless_failed(c, code, e);
}

static int open_groups(ga_nccl *c, ga_err *e) {
    GA_TRY(ga_comm_agree(c->comm, open_library(c, e), e));
    for (int k = 0; k < c->group_count; k++)
        GA_TRY(k > 0 && c->nccl.ncclCommSplit ? split_all(c, k, e) : connect_by_id(c, k, e));
    return GA_OK;
}

/* Ends the groups without the other ranks: kernels that wait for them end too. */
static void give_up(ga_nccl *c) {
    ga_device_drop_graphs(c->device);
    for (int k = c->group_count - 1; k >= 0; k--) {
        if (c->groups[k].comm) c->nccl.ncclCommAbort(c->groups[k].comm);
        c->groups[k].comm = NULL;
    }
}

int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e) {
    *out = NULL;
    ga_nccl *c = calloc(1, sizeof *c);
    if (!c) return ga_fail(e, GA_ENVIRONMENT, "out of host memory for NCCL");
    c->device = d;
    c->comm = comm;
    c->groups[0].rank = ga_comm_rank(comm);
    c->groups[0].size = ga_comm_size(comm);
    for (c->group_count = 1; ga_comm_group(comm, c->group_count); c->group_count++) {
        c->groups[c->group_count].rank = ga_comm_group_rank(comm, c->group_count);
        c->groups[c->group_count].size = ga_comm_group_size(comm, c->group_count);
    }
    const int code = c->groups[0].size > 1 ? open_groups(c, e) : GA_OK;
    if (code < 0) {
        if (c->groups[0].comm) give_up(c);
        ga_nccl_close(c);
    } else {
        *out = c;
    }
    return code;
}

void ga_nccl_close(ga_nccl *c) {
    if (!c) return;
    if (c->groups[0].comm) {
        ga_pulse_enter(ga_comm_pulse(c->comm), "NCCL's end");
        c->device->cuda.cuCtxSynchronize();
        ga_device_drop_graphs(c->device);
        for (int k = c->group_count - 1; k >= 0; k--)
            if (c->groups[k].comm) c->nccl.ncclCommDestroy(c->groups[k].comm);
        ga_pulse_leave(ga_comm_pulse(c->comm));
    }
    free(c);
}

int ga_nccl_rank(const ga_nccl *c) {
    return c->groups[0].rank;
}

int ga_nccl_size(const ga_nccl *c) {
    return c->groups[0].size;
}

static int type_of(ga_dtype t, unsigned *out, ga_err *e) {
    switch (t) {
    case GA_F32: *out = ncclFloat32; return GA_OK;
    case GA_F64: *out = ncclFloat64; return GA_OK;
    case GA_BF16: *out = ncclBfloat16; return GA_OK;
    case GA_F16: *out = ncclFloat16; return GA_OK;
    case GA_I64: *out = ncclInt64; return GA_OK;
    default:
        return ga_fail(e, GA_BUG, "collective on %s: no such type in NCCL's part",
                       ga_dtype_name(t));
    }
}

static void *pointer(ga_address a) {
    return (void *)(uintptr_t)a;
}

static int all_reduce(ga_nccl *c, int group, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e) {
    const nccl_ranks *g = &c->groups[group];
    unsigned type = 0;
    GA_TRY(type_of(t, &type, e));
    if (g->comm)
        GA_TRY(check(c, c->nccl.ncclAllReduce(pointer(buf), pointer(buf), n, type, ncclSum, g->comm, s), "all-reduce",
                     e));
    if (group == 0 || g->size > 1) ga_device_count_collective(c->device, n * ga_dtype_bytes(t));
    return GA_OK;
}

int ga_nccl_all_reduce(ga_nccl *c, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e) {
    return all_reduce(c, 0, s, buf, n, t, e);
}

int ga_nccl_small(ga_nccl *c, ga_cuda_stream s, ga_address values, size_t n, size_t largest, ga_err *e) {
    ncclComm_t all = c->groups[0].comm;
    void *sums = pointer(values), *maxima = pointer(values + (n - largest) * sizeof(double));
    if (all && n > largest)
        GA_TRY(check(c, c->nccl.ncclAllReduce(sums, sums, n - largest, ncclFloat64, ncclSum, all, s),
                     "small sum", e));
    if (all && largest > 0)
        GA_TRY(check(c, c->nccl.ncclAllReduce(maxima, maxima, largest, ncclFloat64, ncclMax, all, s),
                     "small sum", e));
    ga_device_count_collective(c->device, 0);
    return GA_OK;
}

int ga_nccl_gather_equal(ga_nccl *c, ga_cuda_stream s, ga_address all, size_t n, ga_dtype t, ga_err *e) {
    const nccl_ranks *g = &c->groups[0];
    const ga_address own = all + (ga_address)g->rank * n * ga_dtype_bytes(t);
    unsigned type = 0;
    GA_TRY(type_of(t, &type, e));
    if (g->comm)
        GA_TRY(check(c, c->nccl.ncclAllGather(pointer(own), pointer(all), n, type, g->comm, s), "all-gather", e));
    ga_device_count_collective(c->device, n * ga_dtype_bytes(t));
    return GA_OK;
}

/* === exchanges by cuts ================================================================================== */

typedef struct exchange {
    ga_nccl *c;
    const nccl_ranks *ranks; /* of the exchange's group */
    ga_cuda_stream s;
    const ga_exchange *x;
    ga_address values, own; /* own: the own cut of a gather */
    unsigned type;
} exchange;

static int64_t cut(const exchange *k, int rank) {
    return ga_cut(k->x, rank, k->ranks->size);
}

static void *element(const exchange *k, int64_t i) {
    return pointer(k->values + (ga_address)i * ga_dtype_bytes(k->x->type));
}

/* Element i of the own cut, as a gather sends it. */
static void *own_element(const exchange *k, int64_t i) {
    return pointer(k->own + (ga_address)(i - cut(k, k->ranks->rank)) * ga_dtype_bytes(k->x->type));
}

/* Elements of each rank, if all have as many and the last one maybe more; 0: they have not. */
static int64_t equal_part(const exchange *k) {
    const int64_t each = cut(k, 1);
    for (int rank = 1; rank < k->ranks->size; rank++)
        if (cut(k, rank) != rank * each) return 0;
    return cut(k, k->ranks->size) - cut(k, k->ranks->size - 1) < each ? 0 : each;
}

/* Elements from .. from + n - 1 are summed to a rank, or come from that rank. */
static int with_rank(const exchange *k, int rank, int64_t from, int64_t n, ga_err *e) {
    const ga_nccl *c = k->c;
    void *at = element(k, from);
    if (n == 0) return GA_OK;
    if (k->x->kind == GA_REDUCE_SCATTER)
        return check(c, c->nccl.ncclReduce(at, at, (size_t)n, k->type, ncclSum, rank, k->ranks->comm, k->s),
                     "reduce", e);
    const void *from_here = rank == k->ranks->rank ? own_element(k, from) : at;
    return check(c, c->nccl.ncclBroadcast(from_here, at, (size_t)n, k->type, rank, k->ranks->comm, k->s),
                 "broadcast", e);
}

/* The first size * each elements, each rank's part in its place. */
static int with_all(const exchange *k, int64_t each, ga_err *e) {
    const ga_nccl *c = k->c;
    void *all = element(k, 0), *own = element(k, k->ranks->rank * each);
    if (k->x->kind == GA_REDUCE_SCATTER)
        return check(c, c->nccl.ncclReduceScatter(all, own, (size_t)each, k->type, ncclSum, k->ranks->comm, k->s),
                     "reduce-scatter", e);
    own = own_element(k, k->ranks->rank * each);
    return check(c, c->nccl.ncclAllGather(own, all, (size_t)each, k->type, k->ranks->comm, k->s), "all-gather", e);
}

static int by_cuts(const exchange *k, ga_err *e) {
    const int last = k->ranks->size - 1;
    const int64_t each = equal_part(k), equal = each * k->ranks->size;
    if (each > 0) {
        GA_TRY(with_all(k, each, e));
        return with_rank(k, last, equal, k->x->n - equal, e);
    }
    GA_TRY(check(k->c, k->c->nccl.ncclGroupStart(), "a group", e));
    for (int rank = 0; rank <= last; rank++)
        GA_TRY(with_rank(k, rank, cut(k, rank), cut(k, rank + 1) - cut(k, rank), e));
    return check(k->c, k->c->nccl.ncclGroupEnd(), "a group", e);
}

int ga_nccl_gather(ga_nccl *c, ga_cuda_stream s, ga_address values, ga_address own, const ga_exchange *x, ga_err *e) {
    GA_TRY(ga_exchange_check(x, 0, e));
    exchange k = {c, &c->groups[x->group], s, x, values, own, 0};
    GA_TRY(type_of(x->type, &k.type, e));
    if (x->shard || x->wire != x->type)
        return ga_fail(e, GA_BUG, "exchange on the device: expected no shard, and parts in the type of the values");
    if (x->kind == GA_ALL_REDUCE) return all_reduce(c, x->group, s, values, (size_t)x->n, x->type, e);
    if (k.ranks->comm && x->n > 0) GA_TRY(by_cuts(&k, e));
    if (!k.ranks->comm && own != values)
        GA_TRY(ga_device_copy(c->device, s, values, own, (size_t)x->n * ga_dtype_bytes(x->type), e));
    if (x->group == 0 || k.ranks->size > 1) ga_device_count_collective(c->device, (size_t)ga_exchange_bytes(x));
    return GA_OK;
}

int ga_nccl_exchange(ga_nccl *c, ga_cuda_stream s, ga_address values, const ga_exchange *x, ga_err *e) {
    const nccl_ranks *g = &c->groups[x->group];
    const int64_t first = ga_cut(x, g->rank, g->size);
    return ga_nccl_gather(c, s, values, values + (ga_address)first * ga_dtype_bytes(x->type), x, e);
}

static int check_groups(const ga_nccl *c, ga_err *e) {
    for (int k = 0; k < c->group_count; k++) {
        ncclResult_t later = 0;
        if (!c->groups[k].comm) continue;
        GA_TRY(check(c, c->nccl.ncclCommGetAsyncError(c->groups[k].comm, &later), "asking", e));
        GA_TRY(check(c, later, "a collective", e));
    }
    return GA_OK;
}

/* Waits for the stream, and looks again and again whether a collective has failed: its kernel would never end. */
static int wait_for_groups(const ga_nccl *c, ga_cuda_stream s, ga_err *e) {
    CUresult r;
    while ((r = c->device->cuda.cuStreamQuery(s)) == CUDA_ERROR_NOT_READY) {
        GA_TRY(check_groups(c, e));
        sched_yield(); /* as the driver's own wait does: a nap would come to each cycle */
    }
    GA_TRY(ga_cuda_check(c->device, r, "waiting for collectives", e));
    return check_groups(c, e);
}

int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e) {
    if (!c->groups[0].comm) return ga_device_sync(c->device, s, e);
    ga_pulse_enter(ga_comm_pulse(c->comm), "collectives on the device");
    const int code = wait_for_groups(c, s, e);
    if (code < 0) give_up(c);
    ga_pulse_leave(ga_comm_pulse(c->comm));
    return code;
}
