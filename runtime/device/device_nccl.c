/* device_nccl.c: NCCL, opened at run time. */
#include "device/device_nccl.h"

#include "device/device_private.h"
#include "device/nccl_abi.h"
#include "ranks/pulse.h"

#include <sched.h>
#include <stdlib.h>

enum { OLDEST = 21000 }; /* NCCL 2.10, the first with bf16 */

typedef struct nccl_functions {
    GA_NCCL_FUNCTIONS(GA_POINTER)
} nccl_functions;

struct ga_nccl {
    nccl_functions nccl;
    void *library;
    ga_device *device;
    ga_comm *comm;
    ncclComm_t group; /* NULL for one rank */
    int rank, size;
};

static int check(const ga_nccl *c, ncclResult_t r, const char *what, ga_err *e) {
    if (r == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "rank %d: NCCL failed in %s: %s (%d)", c->rank, what,
                   c->nccl.ncclGetErrorString(r), r);
}

static int open_library(ga_nccl *c, ga_err *e) {
    static const char *const sonames[] = {"libnccl.so.2", NULL};
    static const char *const symbols[] = {GA_NCCL_FUNCTIONS(GA_SYMBOL_NAME)};
    int version = 0;
    GA_TRY(ga_library_open(&c->library, sonames, symbols, (int)(sizeof symbols / sizeof *symbols),
                           (void (**)(void)) & c->nccl, "install NCCL 2.10 or newer, or train with one rank", e));
    GA_TRY(check(c, c->nccl.ncclGetVersion(&version), "ncclGetVersion", e));
    if (version >= OLDEST) return GA_OK;
    const int major = version < 10000 ? 1000 : 10000; /* 2.8 is 2800, 2.9 is 20900 */
    return ga_fail(e, GA_ENVIRONMENT, "NCCL %d.%d is too old; install NCCL 2.10 or newer, or train with one rank",
                   version / major, version % major / 100);
}

/* Ranks agree after each step: one that fails must not leave the others waiting inside NCCL. */
static int open_group(ga_nccl *c, ga_err *e) {
    ncclUniqueId id = {{0}};
    GA_TRY(ga_comm_agree(c->comm, open_library(c, e), e));
    int code = c->rank == 0 ? check(c, c->nccl.ncclGetUniqueId(&id), "ncclGetUniqueId", e) : GA_OK;
    GA_TRY(ga_comm_agree(c->comm, code, e));
    GA_TRY(ga_comm_broadcast(c->comm, &id, sizeof id, 0, e));
    ga_pulse_enter(ga_comm_pulse(c->comm), "NCCL's start");
    code =
        check(c, c->nccl.ncclCommInitRank(&c->group, c->size, id, c->rank), "ncclCommInitRank", e);
    ga_pulse_leave(ga_comm_pulse(c->comm));
    return ga_comm_agree(c->comm, code, e);
}

/* Ends the group without the other ranks: kernels that wait for them end too. */
static void give_up(ga_nccl *c) {
    if (!c->group) return;
    ga_device_drop_graphs(c->device);
    c->nccl.ncclCommAbort(c->group);
    c->group = NULL;
}

int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e) {
    *out = NULL;
    ga_nccl *c = calloc(1, sizeof *c);
    if (!c) return ga_fail(e, GA_ENVIRONMENT, "out of host memory for NCCL");
    c->device = d;
    c->comm = comm;
    c->rank = ga_comm_rank(comm);
    c->size = ga_comm_size(comm);
    const int code = c->size > 1 ? open_group(c, e) : GA_OK;
    if (code < 0) {
        give_up(c);
        ga_nccl_close(c);
    } else {
        *out = c;
    }
    return code;
}

void ga_nccl_close(ga_nccl *c) {
    if (!c) return;
    if (c->group) {
        ga_pulse_enter(ga_comm_pulse(c->comm), "NCCL's end");
        c->device->cuda.cuCtxSynchronize();
        ga_device_drop_graphs(c->device);
        c->nccl.ncclCommDestroy(c->group);
        ga_pulse_leave(ga_comm_pulse(c->comm));
    }
    free(c);
}

int ga_nccl_rank(const ga_nccl *c) {
    return c->rank;
}

int ga_nccl_size(const ga_nccl *c) {
    return c->size;
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

int ga_nccl_all_reduce(ga_nccl *c, ga_cuda_stream s, ga_address buf, size_t n, ga_dtype t, ga_err *e) {
    unsigned type = 0;
    GA_TRY(type_of(t, &type, e));
    if (c->group)
        GA_TRY(check(
            c, c->nccl.ncclAllReduce(pointer(buf), pointer(buf), n, type, ncclSum, c->group, s),
            "all-reduce", e));
    ga_device_count_collective(c->device, n * ga_dtype_bytes(t));
    return GA_OK;
}

int ga_nccl_small(ga_nccl *c, ga_cuda_stream s, ga_address values, size_t n, size_t largest, ga_err *e) {
    void *sums = pointer(values), *maxima = pointer(values + (n - largest) * sizeof(double));
    if (c->group && n > largest)
        GA_TRY(check(c, c->nccl.ncclAllReduce(sums, sums, n - largest, ncclFloat64, ncclSum, c->group, s),
                     "small sum", e));
    if (c->group && largest > 0)
        GA_TRY(check(c, c->nccl.ncclAllReduce(maxima, maxima, largest, ncclFloat64, ncclMax, c->group, s),
                     "small sum", e));
    ga_device_count_collective(c->device, 0);
    return GA_OK;
}

/* === exchanges by cuts ================================================================================== */

typedef struct exchange {
    ga_nccl *c;
    ga_cuda_stream s;
    const ga_exchange *x;
    ga_address values, own; /* own: the own cut of a gather */
    unsigned type;
} exchange;

static int64_t cut(const exchange *k, int rank) {
    return ga_cut(k->x, rank, k->c->size);
}

static void *element(const exchange *k, int64_t i) {
    return pointer(k->values + (ga_address)i * ga_dtype_bytes(k->x->type));
}

/* Element i of the own cut, as a gather sends it. */
static void *own_element(const exchange *k, int64_t i) {
    return pointer(k->own + (ga_address)(i - cut(k, k->c->rank)) * ga_dtype_bytes(k->x->type));
}

/* Elements of each rank, if all have as many and the last one maybe more; 0: they have not. */
static int64_t equal_part(const exchange *k) {
    const int64_t each = cut(k, 1);
    for (int rank = 1; rank < k->c->size; rank++)
        if (cut(k, rank) != rank * each) return 0;
    return cut(k, k->c->size) - cut(k, k->c->size - 1) < each ? 0 : each;
}

/* Elements from .. from + n - 1 are summed to a rank, or come from that rank. */
static int with_rank(const exchange *k, int rank, int64_t from, int64_t n, ga_err *e) {
    const ga_nccl *c = k->c;
    void *at = element(k, from);
    if (n == 0) return GA_OK;
    if (k->x->kind == GA_REDUCE_SCATTER)
        return check(c, c->nccl.ncclReduce(at, at, (size_t)n, k->type, ncclSum, rank, c->group, k->s), "reduce", e);
    const void *from_here = rank == c->rank ? own_element(k, from) : at;
    return check(c, c->nccl.ncclBroadcast(from_here, at, (size_t)n, k->type, rank, c->group, k->s), "broadcast", e);
}

/* The first size * each elements, each rank's part in its place. */
static int with_all(const exchange *k, int64_t each, ga_err *e) {
    const ga_nccl *c = k->c;
    void *all = element(k, 0), *own = element(k, c->rank * each);
    if (k->x->kind == GA_REDUCE_SCATTER)
        return check(c, c->nccl.ncclReduceScatter(all, own, (size_t)each, k->type, ncclSum, c->group, k->s),
                     "reduce-scatter", e);
    own = own_element(k, c->rank * each);
    return check(c, c->nccl.ncclAllGather(own, all, (size_t)each, k->type, c->group, k->s), "all-gather", e);
}

static int by_cuts(const exchange *k, ga_err *e) {
    const int last = k->c->size - 1;
    const int64_t each = equal_part(k), equal = each * k->c->size;
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
    exchange k = {c, s, x, values, own, 0};
    GA_TRY(ga_exchange_check(x, 0, e));
    GA_TRY(type_of(x->type, &k.type, e));
    if (x->shard || x->wire != x->type)
        return ga_fail(e, GA_BUG, "exchange on the device: expected no shard, and parts in the type of the values");
    if (x->kind == GA_ALL_REDUCE) return ga_nccl_all_reduce(c, s, values, (size_t)x->n, x->type, e);
    if (c->group && x->n > 0) GA_TRY(by_cuts(&k, e));
    if (!c->group && own != values)
        GA_TRY(ga_device_copy(c->device, s, values, own, (size_t)x->n * ga_dtype_bytes(x->type), e));
    ga_device_count_collective(c->device, (size_t)ga_exchange_bytes(x));
    return GA_OK;
}

int ga_nccl_exchange(ga_nccl *c, ga_cuda_stream s, ga_address values, const ga_exchange *x, ga_err *e) {
    const ga_address own = values + (ga_address)ga_cut(x, c->rank, c->size) * ga_dtype_bytes(x->type);
    return ga_nccl_gather(c, s, values, own, x, e);
}

static int check_group(const ga_nccl *c, ga_err *e) {
    ncclResult_t later = 0;
    GA_TRY(check(c, c->nccl.ncclCommGetAsyncError(c->group, &later), "asking", e));
    return check(c, later, "a collective", e);
}

/* Waits for the stream, and looks again and again whether a collective has failed: its kernel would never end. */
static int wait_for_group(const ga_nccl *c, ga_cuda_stream s, ga_err *e) {
    CUresult r;
    while ((r = c->device->cuda.cuStreamQuery(s)) == CUDA_ERROR_NOT_READY) {
        GA_TRY(check_group(c, e));
        sched_yield(); /* as the driver's own wait does: a nap would come to each cycle */
    }
    GA_TRY(ga_cuda_check(c->device, r, "waiting for collectives", e));
    return check_group(c, e);
}

int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e) {
    if (!c->group) return ga_device_sync(c->device, s, e);
    ga_pulse_enter(ga_comm_pulse(c->comm), "collectives on the device");
    const int code = wait_for_group(c, s, e);
    if (code < 0) give_up(c);
    ga_pulse_leave(ga_comm_pulse(c->comm));
    return code;
}
