// driver.cpp: the entry points of libcuda.so.1. Arguments are checked at least as strictly as by the driver;
// dlsym finds no other functions.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "image.h"
#include "streams.h"

using namespace device;

#define ENTRY extern "C" __attribute__((visibility("default")))

namespace {

struct ErrorText {
    int code;
    const char *name, *text;
};
const ErrorText error_texts[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not initiated in this stream"},
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
};

const ErrorText *error_text(int code) {
    for (const ErrorText &e : error_texts)
        if (e.code == code) return &e;
    return nullptr;
}

bool initialised, context, eager;

int range(uint64_t address, size_t bytes, const char *what) {
    if (contains(address, bytes)) return SUCCESS;
    report("argument", "%s: %zu bytes reach outside of device memory", what, bytes);
    return INVALID_VALUE;
}

int pinned(const void *memory, size_t bytes, const char *what) {
    if (find_pinned((uintptr_t)memory, bytes)) return SUCCESS;
    report("argument", "%s: the host memory is not pinned", what);
    return INVALID_VALUE;
}

}  // namespace

ENTRY int cuInit(unsigned flags) {
    MAY_FAIL(UNKNOWN);
    const char *loading = getenv("CUDA_MODULE_LOADING");
    initialised = flags == 0;
    eager = loading && !strcmp(loading, "EAGER");
    return flags ? INVALID_VALUE : SUCCESS;
}
ENTRY int cuDriverGetVersion(int *out) {
    MAY_FAIL(UNKNOWN);
    *out = switches.driver;
    return SUCCESS;
}
ENTRY int cuGetErrorName(int code, const char **out) {
    *out = error_text(code) ? error_text(code)->name : nullptr;
    return *out ? SUCCESS : INVALID_VALUE;
}
ENTRY int cuGetErrorString(int code, const char **out) {
    *out = error_text(code) ? error_text(code)->text : nullptr;
    return *out ? SUCCESS : INVALID_VALUE;
}
ENTRY int cuDeviceGetCount(int *out) {
    MAY_FAIL(UNKNOWN);
    *out = switches.count;
    return initialised ? SUCCESS : NOT_INITIALIZED;
}
ENTRY int cuDeviceGet(int *out, int ordinal) {
    MAY_FAIL(UNKNOWN);
    *out = ordinal;
    return !initialised                               ? NOT_INITIALIZED
           : ordinal < 0 || ordinal >= switches.count ? INVALID_DEVICE
                                                      : SUCCESS;
}
ENTRY int cuDeviceGetName(char *out, int bytes, int) {
    MAY_FAIL(UNKNOWN);
    snprintf(out, (size_t)bytes, "test device sm_%d", switches.arch);
    return SUCCESS;
}
ENTRY int cuDeviceGetAttribute(int *out, unsigned attribute, int) {
    MAY_FAIL(UNKNOWN);
    switch (attribute) {
    case 16:
        *out = 4;
        return SUCCESS;  // multiprocessors: few, so that grids are small
    case 75: *out = switches.arch / 10; return SUCCESS;
    case 76: *out = switches.arch % 10; return SUCCESS;
    case 97: *out = (int)SHARED_LIMIT; return SUCCESS;
    default:
        report("argument", "cuDeviceGetAttribute: %u is not known here", attribute);
        return INVALID_VALUE;
    }
}
ENTRY int cuDevicePrimaryCtxRetain(void **out, int) {
    MAY_FAIL(UNKNOWN);
    context = true;
    *out = &context;
    return SUCCESS;
}
ENTRY int cuDevicePrimaryCtxRelease_v2(int) {
    MAY_FAIL(UNKNOWN);
    context = false;
    return SUCCESS;
}
ENTRY int cuCtxSetCurrent(void *c) {
    MAY_FAIL(UNKNOWN);
    return c == &context ? SUCCESS : INVALID_CONTEXT;
}
ENTRY int cuCtxSynchronize() {
    MAY_FAIL(UNKNOWN);
    return synchronize();
}

// ---- memory
ENTRY int cuMemGetInfo_v2(size_t *free_bytes, size_t *all_bytes) {
    MAY_FAIL(UNKNOWN);
    *free_bytes = switches.memory - memory_in_use();
    *all_bytes = switches.memory;
    return SUCCESS;
}
ENTRY int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
    MAY_FAIL(UNKNOWN);
    uintptr_t address = 0;
    int code = refuse_in_capture();
    if (!code)
        code = !context ? INVALID_CONTEXT : bytes == 0 ? INVALID_VALUE : allocate(bytes, &address);
    *out = address;
    return code;
}
ENTRY int cuMemFree_v2(uint64_t address) {
    MAY_FAIL(UNKNOWN);
    if (capturing()) return refuse_in_capture();
    drain();
    return release(address);
}
ENTRY int cuMemAllocHost_v2(void **out, size_t bytes) {
    MAY_FAIL(UNKNOWN);
    int code = refuse_in_capture();
    *out = code || bytes == 0 ? nullptr : allocate_pinned(bytes);
    return code ? code : *out ? SUCCESS : bytes ? OUT_OF_MEMORY : INVALID_VALUE;
}
ENTRY int cuMemFreeHost(void *p) {
    MAY_FAIL(UNKNOWN);
    drain();
    return release_pinned(p) ? SUCCESS : INVALID_VALUE;
}
// These two copies do not wait for the streams, since a program's streams do not wait for the default stream.
ENTRY int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes) {
    MAY_FAIL(UNKNOWN);
    int code = refuse_in_capture();
    if (!code) code = range(to, bytes, "cuMemcpyHtoD");
    if (!code)
        run_as_host("upload", [=] {
            touch(to, bytes, true);
            memcpy((void *)to, from, bytes);
        });
    return code;
}
ENTRY int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    MAY_FAIL(UNKNOWN);
    int code = refuse_in_capture();
    if (!code) code = range(from, bytes, "cuMemcpyDtoH");
    if (!code)
        run_as_host("download", [=] {
            touch(from, bytes, false);
            memcpy(to, (void *)from, bytes);
        });
    return code ? code : failed() ? LAUNCH_FAILED : SUCCESS;
}
ENTRY int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, CUstream_st *stream) {
    MAY_FAIL(UNKNOWN);
    if (range(to, bytes, "cuMemcpyHtoDAsync") || pinned(from, bytes, "cuMemcpyHtoDAsync"))
        return INVALID_VALUE;
    return submit(stream, "copy to the device", [=] {
        touch((uintptr_t)from, bytes, false);
        touch(to, bytes, true);
        memcpy((void *)to, from, bytes);
    });
}
ENTRY int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, CUstream_st *stream) {
    MAY_FAIL(UNKNOWN);
    if (range(from, bytes, "cuMemcpyDtoHAsync") || pinned(to, bytes, "cuMemcpyDtoHAsync"))
        return INVALID_VALUE;
    return submit(stream, "copy to the host", [=] {
        touch(from, bytes, false);
        touch((uintptr_t)to, bytes, true);
        memcpy(to, (void *)from, bytes);
    });
}
ENTRY int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, CUstream_st *stream) {
    MAY_FAIL(UNKNOWN);
    if (range(to, bytes, "cuMemcpyDtoDAsync") || range(from, bytes, "cuMemcpyDtoDAsync"))
        return INVALID_VALUE;
    if (to < from + bytes && from < to + bytes) {
        report("argument", "cuMemcpyDtoDAsync: the ranges overlap");
        return INVALID_VALUE;
    }
    return submit(stream, "copy on the device", [=] {
        touch(from, bytes, false);
        touch(to, bytes, true);
        memcpy((void *)to, (void *)from, bytes);
    });
}
ENTRY int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, CUstream_st *stream) {
    MAY_FAIL(UNKNOWN);
    if (range(to, bytes, "cuMemsetD8Async")) return INVALID_VALUE;
    return submit(stream, "fill", [=] {
        touch(to, bytes, true);
        memset((void *)to, value, bytes);
    });
}

// ---- modules and launches
static int add_extent(dl_phdr_info *info, size_t, void *module) {
    auto *m = (Module *)module;
    if (info->dlpi_addr == m->begin)
        for (int i = 0; i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_LOAD)
                m->end = std::max(m->end, (uintptr_t)(m->begin + info->dlpi_phdr[i].p_vaddr +
                                                      info->dlpi_phdr[i].p_memsz));
    return 0;
}

// The kernels find this library's functions only if its symbols are global.
static bool publish_own_symbols() {
    Dl_info own;
    return dladdr((void *)publish_own_symbols, &own) &&
           dlopen(own.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

ENTRY int cuModuleLoadData(Module **out, const void *image) {
    MAY_FAIL(UNKNOWN);
    auto *header = (const Image *)image;
    if (int refused = refuse_in_capture()) return refused;
    if (memcmp(header->magic, IMAGE_MAGIC, sizeof header->magic) != 0 ||
        header->stamp != image_stamp() || header->cuda > switches.driver / 1000 || !publish_own_symbols())
        return INVALID_IMAGE;
    int file = memfd_create("kernels", 0);
    if (file < 0 || write(file, header + 1, header->bytes) != (ssize_t)header->bytes)
        return OUT_OF_MEMORY;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), file);  // kept open for addr2line
    auto *m = loading = new Module;
    m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!m->library) {
        fprintf(stderr, "device: %s\n", dlerror());
        delete m;
        return INVALID_IMAGE;
    }
    link_map *map;
    dlinfo(m->library, RTLD_DI_LINKMAP, &map);
    m->begin = m->end = map->l_addr;
    dl_iterate_phdr(add_extent, m);
    *out = m;
    return SUCCESS;
}
ENTRY int cuModuleUnload(Module *m) {
    MAY_FAIL(UNKNOWN);
    drain();
    dlclose(m->library);
    for (Function *f : m->functions) delete f;
    delete m;
    return SUCCESS;
}
ENTRY int cuModuleGetFunction(Function **out, Module *m, const char *name) {
    MAY_FAIL(UNKNOWN);
    for (const dev_kernel *k : m->kernels)
        if (!strcmp(k->name, name)) {
            *out = new Function{k, m, eager};
            m->functions.push_back(*out);
            return SUCCESS;
        }
    return NOT_FOUND;
}
ENTRY int cuFuncSetAttribute(Function *f, unsigned attribute, int value) {
    MAY_FAIL(UNKNOWN);
    if (attribute != 8 || value < 0 || (size_t)value > SHARED_LIMIT) return INVALID_VALUE;
    f->dynamic_limit = (size_t)value;
    return SUCCESS;
}

// Drivers before 12.3 cannot load a kernel inside a capture.
static int load(Function *f) {
    if (!f->loaded && capturing() && switches.driver < 12030) {
        report("argument", "kernel %s: loaded lazily inside a capture by a driver for CUDA %d.%d", f->kernel->name,
               switches.driver / 1000, switches.driver % 1000 / 10);
        return refuse_in_capture();
    }
    f->loaded = true;
    return SUCCESS;
}

static int check_launch(const Function *f, const unsigned *grid, const unsigned *block,
                        size_t dynamic) {
    size_t threads = (size_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535 ||
        grid[0] > 0x7fffffff || !threads || threads > THREADS_LIMIT || block[2] > 64 ||
        (uint64_t)grid[0] * grid[1] * grid[2] > 0xffffffff) {
        report("argument", "kernel %s: a grid of (%u,%u,%u) blocks of (%u,%u,%u) threads cannot be",
               f->kernel->name, grid[0], grid[1], grid[2], block[0], block[1], block[2]);
        return INVALID_VALUE;
    }
    if (f->kernel->bound && threads > f->kernel->bound) {
        report("argument", "kernel %s: %zu threads in a block, __launch_bounds__ says %u",
               f->kernel->name, threads, f->kernel->bound);
        return LAUNCH_OUT_OF_RESOURCES;
    }
    const unsigned cluster = f->kernel->cluster;
    if (cluster && (switches.arch < 90 || cluster > CLUSTER_LIMIT || grid[0] % cluster || threads % 32 ||
                    threads * cluster > THREADS_LIMIT)) {
        report("argument", "kernel %s: %u blocks of %zu threads in clusters of %u cannot be", f->kernel->name, grid[0],
               threads, cluster);
        return INVALID_CLUSTER_SIZE;
    }
    if (dynamic > f->dynamic_limit) {
        report("argument", "kernel %s: %zu bytes of dynamic shared memory, allowed are %zu",
               f->kernel->name, dynamic, f->dynamic_limit);
        return INVALID_VALUE;
    }
    return SUCCESS;
}

struct Arguments {  // copied at the launch, as by the driver; each at a multiple of 64 bytes, as maps of boxes need
    struct alignas(64) Line {
        char bytes[64];
    };
    std::vector<std::vector<Line>> values;
    std::vector<void *> pointers;
};

static int launch(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned dynamic, CUstream_st *stream,
                         void **arguments, void **extra, bool dependent) {
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    if (!f || extra || (f->kernel->argument_count && !arguments)) return INVALID_VALUE;
    if (int code = check_launch(f, grid, block, dynamic)) return code;
    if (int code = load(f)) return code;
    auto a = std::make_shared<Arguments>();
    for (int i = 0; i < f->kernel->argument_count; i++) {
        a->values.emplace_back(f->kernel->argument_bytes[i] / 64 + 1);
        memcpy(a->values.back().data(), arguments[i], f->kernel->argument_bytes[i]);
    }
    for (auto &v : a->values) a->pointers.push_back(v.data());
    return submit(stream, std::string("kernel ") + f->kernel->name, [=] {
        run_launch({f, {gx, gy, gz}, {bx, by, bz}, dynamic, a->pointers.data(), dependent});
    });
}

ENTRY int cuLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned dynamic, CUstream_st *stream, void **arguments, void **extra) {
    MAY_FAIL(UNKNOWN);
    return launch(f, gx, gy, gz, bx, by, bz, dynamic, stream, arguments, extra, false);
}

struct Attribute {
    unsigned id;
    alignas(8) int value;
    char rest[60];
};
struct LaunchConfig {
    unsigned grid[3], block[3], dynamic;
    CUstream_st *stream;
    const Attribute *attributes;
    unsigned count;
};

// The one attribute is that of a launch beside the end of the kernel in front of it, which nothing else may be.
ENTRY int cuLaunchKernelEx(const LaunchConfig *c, Function *f, void **arguments, void **extra) {
    MAY_FAIL(UNKNOWN);
    const bool dependent = c->count == 1 && c->attributes->id == 6 && c->attributes->value == 1;
    if (c->count > 1 || (c->count == 1 && !dependent) || (dependent && switches.arch < 90)) return INVALID_VALUE;
    if (dependent && !is_behind_kernel(c->stream)) {
        report("dependent", "kernel %s: what stands in front of it is not one kernel alone", f->kernel->name);
        return INVALID_VALUE;
    }
    return launch(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->dynamic, c->stream,
                  arguments, extra, dependent);
}

// ---- streams, events, graphs
ENTRY int cuStreamCreate(CUstream_st **out, unsigned flags) {
    MAY_FAIL(UNKNOWN);
    if (int refused = refuse_in_capture()) return refused;
    if (flags != 1) {
        report("argument", "cuStreamCreate: only CU_STREAM_NON_BLOCKING is modelled");
        return INVALID_VALUE;
    }
    return stream_create(out);
}
ENTRY int cuStreamDestroy_v2(CUstream_st *s) {
    MAY_FAIL(UNKNOWN);
    return stream_destroy(s);
}
ENTRY int cuStreamSynchronize(CUstream_st *s) {
    MAY_FAIL(UNKNOWN);
    return stream_synchronize(s);
}
ENTRY int cuStreamQuery(CUstream_st *s) {
    MAY_FAIL(UNKNOWN);
    return stream_query(s);
}
ENTRY int cuStreamWaitEvent(CUstream_st *s, CUevent_st *e, unsigned flags) {
    MAY_FAIL(UNKNOWN);
    return flags ? INVALID_VALUE : stream_wait(s, e);
}
ENTRY int cuEventCreate(CUevent_st **out, unsigned) {
    MAY_FAIL(UNKNOWN);
    *out = new CUevent_st;
    return SUCCESS;
}
ENTRY int cuEventDestroy_v2(CUevent_st *e) {
    MAY_FAIL(UNKNOWN);
    delete e;
    return SUCCESS;
}
ENTRY int cuEventRecord(CUevent_st *e, CUstream_st *s) {
    MAY_FAIL(UNKNOWN);
    return event_record(e, s);
}
ENTRY int cuEventSynchronize(CUevent_st *e) {
    MAY_FAIL(UNKNOWN);
    return event_synchronize(e);
}
ENTRY int cuEventElapsedTime(float *out, CUevent_st *from, CUevent_st *to) {
    MAY_FAIL(UNKNOWN);
    if (!from->operation || !to->operation) return INVALID_HANDLE;
    if (!from->operation->done || !to->operation->done) return NOT_READY;
    // nothing here takes the time of a device
    *out = switches.clock ? (float)(1e3 * (to->operation->ended - from->operation->ended)) : 0;
    return SUCCESS;
}
ENTRY int cuStreamBeginCapture_v2(CUstream_st *s, unsigned mode) {
    MAY_FAIL(UNKNOWN);
    return mode > 2 ? INVALID_VALUE : capture_begin(s);
}
ENTRY int cuStreamEndCapture(CUstream_st *s, CUgraph_st **out) {
    MAY_FAIL(UNKNOWN);
    return capture_end(s, out);
}
ENTRY int cuGraphInstantiateWithFlags(CUgraphExec_st **out, CUgraph_st *g,
                                      unsigned long long flags) {
    MAY_FAIL(UNKNOWN);
    return flags || !g ? INVALID_VALUE : graph_instantiate(out, g);
}
ENTRY int cuGraphLaunch(CUgraphExec_st *x, CUstream_st *s) {
    MAY_FAIL(UNKNOWN);
    return graph_launch(x, s);
}
ENTRY int cuGraphExecDestroy(CUgraphExec_st *x) {
    MAY_FAIL(UNKNOWN);
    return graph_exec_destroy(x);
}
ENTRY int cuGraphDestroy(CUgraph_st *g) {
    MAY_FAIL(UNKNOWN);
    delete g;
    return SUCCESS;
}
