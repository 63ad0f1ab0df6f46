/* device_nccl.c: NCCL, opened at run time. */
#include "device/device_nccl.h"

#include "device/device_private.h"
#include "device/nccl_abi.h"
#include "ranks/pulse.h"

#include <stdlib.h>

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
    return ga_library_open(&c->library, sonames, symbols, (int)(sizeof symbols / sizeof *symbols),
                           (void (**)(void)) & c->nccl, "install NCCL 2, or train with one rank",
                           e);
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

int ga_nccl_open(ga_nccl **out, ga_device *d, ga_comm *comm, ga_err *e) {
    *out = NULL;
    ga_nccl *c = calloc(1, sizeof *c);
    if (!c) return ga_fail(e, GA_ENVIRONMENT, "out of host memory for NCCL");
    c->device = d;
    c->comm = comm;
    c->rank = ga_comm_rank(comm);
    c->size = ga_comm_size(comm);
    const int code = c->size > 1 ? open_group(c, e) : GA_OK;
    if (code < 0)
        ga_nccl_close(c);
    else
        *out = c;
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
    unsigned type;
    GA_TRY(type_of(t, &type, e));
    if (c->group)
        GA_TRY(check(
            c, c->nccl.ncclAllReduce(pointer(buf), pointer(buf), n, type, ncclSum, c->group, s),
            "all-reduce", e));
    ga_device_count_collective(c->device, n * ga_dtype_bytes(t));
    return GA_OK;
}

/* With one rank its part is the whole array. */
static int copy_part(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t bytes,
                     ga_err *e) {
    return to == from ? GA_OK : ga_device_copy(c->device, s, to, from, bytes, e);
}

int ga_nccl_reduce_scatter(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                           ga_dtype t, ga_err *e) {
    unsigned type;
    GA_TRY(type_of(t, &type, e));
    if (c->group)
        GA_TRY(check(
            c, c->nccl.ncclReduceScatter(pointer(from), pointer(to), n, type, ncclSum, c->group, s),
            "reduce-scatter", e));
    else
        GA_TRY(copy_part(c, s, to, from, n * ga_dtype_bytes(t), e));
    ga_device_count_collective(c->device, n * ga_dtype_bytes(t) * (size_t)c->size);
    return GA_OK;
}

int ga_nccl_all_gather(ga_nccl *c, ga_cuda_stream s, ga_address to, ga_address from, size_t n,
                       ga_dtype t, ga_err *e) {
    unsigned type;
    GA_TRY(type_of(t, &type, e));
    if (c->group)
        GA_TRY(check(c, c->nccl.ncclAllGather(pointer(from), pointer(to), n, type, c->group, s),
                     "all-gather", e));
    else
        GA_TRY(copy_part(c, s, to, from, n * ga_dtype_bytes(t), e));
    ga_device_count_collective(c->device, n * ga_dtype_bytes(t) * (size_t)c->size);
    return GA_OK;
}

int ga_nccl_sync(ga_nccl *c, ga_cuda_stream s, ga_err *e) {
    ncclResult_t later = 0;
    ga_pulse_enter(ga_comm_pulse(c->comm), "collectives on the device");
    int code = ga_device_sync(c->device, s, e);
    ga_pulse_leave(ga_comm_pulse(c->comm));
    if (c->group && code == 0)
        code = check(c, c->nccl.ncclCommGetAsyncError(c->group, &later), "asking", e);
    return code < 0 ? code : check(c, later, "a collective", e);
}
