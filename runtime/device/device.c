/* device.c: opening a device, its memory, streams, events, launches and graphs. */
#include "device/device_private.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int ga_cuda_check(const ga_device *d, CUresult r, const char *what, ga_err *e) {
    const char *name = NULL, *text = NULL;
    if (r == CUDA_SUCCESS) return 0;
    d->cuda.cuGetErrorName(r, &name);
    d->cuda.cuGetErrorString(r, &text);
    return ga_fail(e, GA_ENVIRONMENT, "device %d: %s: %s (%d): %s", d->facts.ordinal, what,
                   name ? name : "unknown error", r, text ? text : "no text for it in this driver");
}

#define CHECK(what, call) GA_TRY(ga_cuda_check(d, d->cuda.call, what, e))

/* A library as the loader finds it, else from the folders that the toolkit has without being listed for the loader. */
static void *open_library(const char *soname, char *reason, size_t bytes) {
    const char *const folders[] = {"", getenv("CUDA_HOME"), "/usr/local/cuda"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !library; i++) {
        char path[1024];
        if (!folders[i]) continue;
        if (snprintf(path, sizeof path, "%s%s%s", folders[i], *folders[i] ? "/lib64/" : "", soname) < (int)sizeof path)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const char *text = library ? NULL : dlerror();
        if (text && !*reason) snprintf(reason, bytes, "%s", text);
    }
    return library;
}

int ga_library_open(void **library, const char *const *sonames, const char *const *symbols,
                    int count, void (**functions)(void), const char *advice, ga_err *e) {
    char reason[256] = "";
    *library = NULL;
    for (int i = 0; sonames[i] && !*library; i++) *library = open_library(sonames[i], reason, sizeof reason);
    if (!*library)
        return ga_fail(e, GA_ENVIRONMENT, "%s: not found (%s); %s", sonames[0], reason, advice);
    for (int i = 0; i < count; i++) {
        void *symbol = dlsym(*library, symbols[i]);
        if (!symbol)
            return ga_fail(e, GA_ENVIRONMENT, "%s: too old, it has no %s; %s", sonames[0],
                           symbols[i], advice);
        memcpy(&functions[i], &symbol, sizeof symbol);
    }
    return 0;
}

int ga_handles_reserve(ga_handles *h, ga_err *e) {
    if (h->count < h->capacity) return 0;
    int capacity = h->capacity ? 2 * h->capacity : 16;
    void **at = realloc(h->at, (size_t)capacity * sizeof *at);
    if (!at)
        return ga_fail(e, GA_ENVIRONMENT, "out of host memory for %d device handles", capacity);
    h->at = at;
    h->capacity = capacity;
    return 0;
}

void ga_handles_keep(ga_handles *h, void *handle) {
    h->at[h->count++] = handle;
}

/* The rank's number on its host, as its launcher says; 0 without a launcher. Slurm's comes last: mpirun in a batch
 * script inherits the one of the script. */
static int local_rank(int *out, ga_err *e) {
    static const char *const names[] = {"LOCAL_RANK" /* torchrun */, "OMPI_COMM_WORLD_LOCAL_RANK" /* Open MPI */,
                                        "MPI_LOCALRANKID" /* MPICH, Intel MPI */, "SLURM_LOCALID"};
    const char *name = NULL, *text = NULL;
    char *end;
    *out = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && !text; i++) text = getenv(name = names[i]);
    if (!text) return 0;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > 1023)
        return ga_fail(e, GA_INPUT, "%s: found \"%s\", expected a number from 0 to 1023", name, text);
    *out = (int)value;
    return 0;
}

static int choose_ordinal(ga_device *d, int ordinal, ga_err *e) {
    int count = 0, rank;
    CHECK("counting devices", cuDeviceGetCount(&count));
    GA_TRY(local_rank(&rank, e));
    if (ordinal < 0) ordinal = count == 1 ? 0 : rank;
    if (ordinal >= count)
        return ga_fail(
            e, GA_ENVIRONMENT,
            "device %d: this process sees %d; start at most one rank per device, or look at "
            "CUDA_VISIBLE_DEVICES",
            ordinal, count);
    d->facts.ordinal = ordinal;
    return 0;
}

static int read_facts(ga_device *d, ga_err *e) {
    ga_device_facts *f = &d->facts;
    int major = 0, minor = 0, shared = 0;
    CHECK("reading its name", cuDeviceGetName(f->name, sizeof f->name, d->device));
    CHECK("reading its architecture",
          cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d->device));
    CHECK("reading its architecture",
          cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d->device));
    CHECK("reading its size",
          cuDeviceGetAttribute(&f->multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                               d->device));
    CHECK("reading its shared memory",
          cuDeviceGetAttribute(&shared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                               d->device));
    f->arch = 10 * major + minor;
    f->shared_bytes_max = (size_t)shared;
    CHECK("reading the driver's version", cuDriverGetVersion(&f->driver_version));
    CHECK("reading its memory", cuMemGetInfo_v2(&f->memory_free_bytes, &f->memory_bytes));
    return 0;
}

static void find_optional(ga_device *d) {
    void *boxes = dlsym(d->cuda_library, "cuTensorMapEncodeTiled");
    void *launch = dlsym(d->cuda_library, "cuLaunchKernelEx");
    memcpy(&d->cuda.cuTensorMapEncodeTiled, &boxes, sizeof boxes);
    memcpy(&d->cuda.cuLaunchKernelEx, &launch, sizeof launch);
}

static int open_device(ga_device *d, int ordinal, ga_err *e) {
    static const char *const sonames[] = {"libcuda.so.1", NULL};
    static const char *const symbols[] = {GA_CUDA_FUNCTIONS(GA_SYMBOL_NAME)};
    GA_TRY(ga_library_open(&d->cuda_library, sonames, symbols,
                           (int)(sizeof symbols / sizeof *symbols), (void (**)(void)) & d->cuda,
                           "install NVIDIA's driver, or generate with --target c", e));
    find_optional(d);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0); /* before 12.3 a capture cannot load what is used first inside it */
    CHECK("starting the driver", cuInit(0));
    GA_TRY(choose_ordinal(d, ordinal, e));
    CHECK("finding it", cuDeviceGet(&d->device, d->facts.ordinal));
    CHECK("opening its context", cuDevicePrimaryCtxRetain(&d->context, d->device));
    CHECK("using its context", cuCtxSetCurrent(d->context));
    GA_TRY(read_facts(d, e));
    const char *dependent = getenv("GAGEN_DEPENDENT");
    if (dependent && strcmp(dependent, "0") != 0 && strcmp(dependent, "1") != 0)
        return ga_fail(e, GA_INPUT, "GAGEN_DEPENDENT: found \"%s\", expected 0 or 1", dependent);
    d->dependent = dependent && *dependent == '1' && d->facts.arch >= 90 && d->facts.driver_version >= 12030 &&
                   d->cuda.cuLaunchKernelEx;
    return 0;
}

int ga_device_open(ga_device **out, int ordinal, ga_err *e) {
    ga_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return ga_fail(e, GA_ENVIRONMENT, "out of host memory for the device");
    int code = open_device(d, ordinal, e);
    if (code < 0)
        ga_device_close(d);
    else
        *out = d;
    return code;
}

void ga_device_drop_graphs(ga_device *d) {
    for (int i = 0; i < d->graphs.count; i++) {
        ga_graph *g = d->graphs.at[i];
        if (g->exec) d->cuda.cuGraphExecDestroy(g->exec);
        free(g);
    }
    d->graphs.count = 0;
}

static void release_all(ga_device *d) {
    d->cuda.cuCtxSynchronize();
    ga_device_drop_graphs(d);
    for (int i = 0; i < d->events.count; i++) d->cuda.cuEventDestroy_v2(d->events.at[i]);
    for (int i = 0; i < d->streams.count; i++) d->cuda.cuStreamDestroy_v2(d->streams.at[i]);
    for (int i = 0; i < d->pinned.count; i++) d->cuda.cuMemFreeHost(d->pinned.at[i]);
    for (int i = 0; i < d->arenas.count; i++) d->cuda.cuMemFree_v2((uintptr_t)d->arenas.at[i]);
    for (int i = 0; i < d->modules.count; i++) d->cuda.cuModuleUnload(d->modules.at[i]);
    d->cuda.cuDevicePrimaryCtxRelease_v2(d->device);
}

void ga_device_close(ga_device *d) {
    if (!d) return;
    if (d->context) release_all(d);
    free(d->modules.at);
    free(d->graphs.at);
    free(d->events.at);
    free(d->streams.at);
    free(d->pinned.at);
    free(d->arenas.at);
    free(d); /* the libraries stay open: the driver has threads and exit handlers of its own */
}

const ga_device_facts *ga_device_get_facts(const ga_device *d) {
    return &d->facts;
}

const ga_device_counters *ga_device_get_counters(const ga_device *d) {
    return &d->counters;
}

int ga_device_arena(ga_device *d, size_t bytes, ga_address *out, ga_err *e) {
    CUdeviceptr address = 0;
    *out = 0;
    if (bytes == 0) return ga_fail(e, GA_BUG, "device arena of 0 bytes");
    GA_TRY(ga_handles_reserve(&d->arenas, e));
    CUresult r = d->cuda.cuMemAlloc_v2(&address, bytes);
    if (r == CUDA_ERROR_OUT_OF_MEMORY) {
        size_t free_bytes = 0, all_bytes = 0;
        d->cuda.cuMemGetInfo_v2(&free_bytes, &all_bytes);
        return ga_fail(
            e, GA_ENVIRONMENT,
            "device %d (%s): an arena of %zu bytes does not fit, %zu of %zu are free; use fewer "
            "rows per batch, or memory { recompute = ... }",
            d->facts.ordinal, d->facts.name, bytes, free_bytes, all_bytes);
    }
    GA_TRY(ga_cuda_check(d, r, "allocating an arena", e));
    ga_handles_keep(&d->arenas, (void *)(uintptr_t)address);
    d->counters.allocations++;
    d->counters.device_bytes += (int64_t)bytes;
    *out = address;
    return 0;
}

int ga_device_pinned(ga_device *d, size_t bytes, void **out, ga_err *e) {
    *out = NULL;
    if (bytes == 0) return ga_fail(e, GA_BUG, "pinned memory of 0 bytes");
    GA_TRY(ga_handles_reserve(&d->pinned, e));
    CHECK("allocating pinned host memory", cuMemAllocHost_v2(out, bytes));
    ga_handles_keep(&d->pinned, *out);
    d->counters.allocations++;
    d->counters.pinned_bytes += (int64_t)bytes;
    return 0;
}

int ga_device_borrow(ga_device *d, size_t bytes, ga_address *out, ga_err *e) {
    CUdeviceptr address = 0;
    const CUresult r = d->cuda.cuMemAlloc_v2(&address, bytes);
    *out = r == CUDA_SUCCESS ? address : 0;
    return r == CUDA_ERROR_OUT_OF_MEMORY ? 0 : ga_cuda_check(d, r, "borrowing memory", e);
}

void ga_device_give_back(ga_device *d, ga_address memory) {
    d->cuda.cuCtxSynchronize();
    d->cuda.cuMemFree_v2(memory);
}

int ga_device_stream(ga_device *d, ga_cuda_stream *out, ga_err *e) {
    *out = NULL;
    GA_TRY(ga_handles_reserve(&d->streams, e));
    CHECK("making a stream", cuStreamCreate(out, CU_STREAM_NON_BLOCKING));
    ga_handles_keep(&d->streams, *out);
    return 0;
}

int ga_device_event(ga_device *d, ga_event *out, ga_err *e) {
    *out = NULL;
    GA_TRY(ga_handles_reserve(&d->events, e));
    CHECK("making an event", cuEventCreate(out, CU_EVENT_DEFAULT));
    ga_handles_keep(&d->events, *out);
    return 0;
}

/* Synchronizes again after the copy: a copy from pageable memory may still run when the driver returns,
 * and non-blocking streams do not wait for it. */
int ga_device_upload(ga_device *d, ga_address to, const void *from, size_t bytes, ga_err *e) {
    if (bytes == 0) return 0;
    CHECK("waiting before an upload", cuCtxSynchronize());
    CHECK("uploading", cuMemcpyHtoD_v2(to, from, bytes));
    CHECK("waiting for an upload", cuCtxSynchronize());
    return 0;
}

int ga_device_download(ga_device *d, void *to, ga_address from, size_t bytes, ga_err *e) {
    if (bytes == 0) return 0;
    CHECK("waiting before a download", cuCtxSynchronize());
    CHECK("downloading", cuMemcpyDtoH_v2(to, from, bytes));
    return 0;
}

int ga_device_download_rows(ga_device *d, void *to, ga_address from, size_t rows, size_t bytes, size_t apart,
                            ga_err *e) {
    for (size_t i = 0; i < rows; i++)
        GA_TRY(ga_device_download(d, (char *)to + i * bytes, from + i * apart, bytes, e));
    return 0;
}

int ga_device_send(ga_device *d, ga_cuda_stream s, ga_address to, const void *from, size_t n,
                   ga_err *e) {
    d->behind = NULL;
    if (n > 0) CHECK("sending to the device", cuMemcpyHtoDAsync_v2(to, from, n, s));
    return 0;
}

int ga_device_fetch(ga_device *d, ga_cuda_stream s, void *to, ga_address from, size_t n, ga_err *e) {
    d->behind = NULL;
    if (n > 0) CHECK("fetching from the device", cuMemcpyDtoHAsync_v2(to, from, n, s));
    return 0;
}

int ga_device_copy(ga_device *d, ga_cuda_stream s, ga_address to, ga_address from, size_t n, ga_err *e) {
    d->behind = NULL;
    if (n > 0) CHECK("copying on the device", cuMemcpyDtoDAsync_v2(to, from, n, s));
    return 0;
}

int ga_device_fill(ga_device *d, ga_cuda_stream s, ga_address to, uint8_t value, size_t n, ga_err *e) {
    d->behind = NULL;
    if (n > 0) CHECK("filling device memory", cuMemsetD8Async(to, value, n, s));
    return 0;
}

static unsigned at_least_one(unsigned n) {
    return n ? n : 1;
}

int ga_device_launch(ga_device *d, ga_cuda_stream s, ga_kernel k, const ga_launch_shape *shape,
                     void **args, ga_err *e) {
    const unsigned b[3] = {at_least_one(shape->blocks[0]), at_least_one(shape->blocks[1]),
                           at_least_one(shape->blocks[2])};
    const unsigned t[3] = {at_least_one(shape->threads[0]), at_least_one(shape->threads[1]),
                           at_least_one(shape->threads[2])};
    if (d->dependent && shape->dependent && d->behind == s) {
        CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value = 1};
        const CUlaunchConfig launch = {b[0], b[1], b[2], t[0], t[1], t[2], shape->shared_bytes, s, &early, 1};
        CHECK("launching a kernel", cuLaunchKernelEx(&launch, k, args, NULL));
    } else {
        CHECK("launching a kernel",
              cuLaunchKernel(k, b[0], b[1], b[2], t[0], t[1], t[2], shape->shared_bytes, s, args, NULL));
    }
    d->behind = s;
    if (d->capturing)
        d->captured.kernels++;
    else
        d->counters.kernel_launches++;
    return 0;
}

void ga_device_count_collective(ga_device *d, size_t bytes) {
    if (d->capturing) {
        d->captured.collectives++;
        d->captured.collective_bytes += (int64_t)bytes;
    } else {
        d->counters.collectives++;
        d->counters.collective_bytes += (int64_t)bytes;
    }
}

int ga_device_record(ga_device *d, ga_event ev, ga_cuda_stream s, ga_err *e) {
    d->behind = NULL;
    CHECK("recording an event", cuEventRecord(ev, s));
    return 0;
}

int ga_device_wait(ga_device *d, ga_cuda_stream s, ga_event ev, ga_err *e) {
    d->behind = NULL;
    CHECK("making a stream wait", cuStreamWaitEvent(s, ev, 0));
    return 0;
}

int ga_device_wait_host(ga_device *d, ga_event ev, ga_err *e) {
    CHECK("waiting for an event", cuEventSynchronize(ev));
    return 0;
}

int ga_device_elapsed(ga_device *d, ga_event from, ga_event to, float *ms, ga_err *e) {
    GA_TRY(ga_device_wait_host(d, to, e));
    CHECK("reading a time", cuEventElapsedTime(ms, from, to));
    return 0;
}

bool ga_device_has_boxes(const ga_device *d) {
    return d->cuda.cuTensorMapEncodeTiled != NULL;
}

int ga_device_boxes(ga_device *d, ga_boxes *out, const ga_matrix *m, ga_err *e) {
    const uint64_t extents[3] = {(uint64_t)m->columns, (uint64_t)m->rows, (uint64_t)m->sheets};
    const uint64_t strides[2] = {2 * (uint64_t)m->stride, 2 * (uint64_t)(m->stride * m->rows)};
    const unsigned box[3] = {(unsigned)m->box_columns, (unsigned)m->box_rows, 1}, steps[3] = {1, 1, 1};
    const unsigned axes = m->sheets > 0 ? 3 : 2;
    const unsigned type =
        m->type == GA_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    CHECK("describing the boxes of a matrix",
          cuTensorMapEncodeTiled((CUtensorMap *)out, type, axes, (void *)(uintptr_t)m->at, extents, strides, box,
                                 steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return 0;
}

int ga_device_sync(ga_device *d, ga_cuda_stream s, ga_err *e) {
    CHECK("waiting for a stream", cuStreamSynchronize(s));
    return 0;
}

int ga_device_capture_begin(ga_device *d, ga_cuda_stream s, ga_err *e) {
    d->behind = NULL;
    if (d->capturing) return ga_fail(e, GA_BUG, "capture begun inside a capture");
    CHECK("beginning a capture", cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    d->capturing = true;
    d->captured = (ga_tally){0};
    return 0;
}

int ga_device_capture_end(ga_device *d, ga_cuda_stream s, ga_graph **out, ga_err *e) {
    d->behind = NULL;
    CUgraph graph = NULL;
    *out = NULL;
    d->capturing = false;
    CHECK("ending a capture", cuStreamEndCapture(s, &graph));
    ga_graph *g = calloc(1, sizeof *g);
    int code =
        g ? ga_handles_reserve(&d->graphs, e) : ga_fail(e, GA_ENVIRONMENT, "out of host memory for a graph");
    if (code == 0)
        code = ga_cuda_check(d, d->cuda.cuGraphInstantiateWithFlags(&g->exec, graph, 0),
                             "instantiating a graph", e);
    d->cuda.cuGraphDestroy(graph);
    if (code < 0) {
        free(g);
        return code;
    }
    g->holds = d->captured;
    ga_handles_keep(&d->graphs, g);
    *out = g;
    return 0;
}

int ga_device_graph_launch(ga_device *d, ga_graph *g, ga_cuda_stream s, ga_err *e) {
    d->behind = NULL;
    CHECK("launching a graph", cuGraphLaunch(g->exec, s));
    d->counters.graph_launches++;
    d->counters.graph_kernels += g->holds.kernels;
    d->counters.collectives += g->holds.collectives;
    d->counters.collective_bytes += g->holds.collective_bytes;
    return 0;
}
