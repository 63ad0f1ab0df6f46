/* device.h: one CUDA device: its libraries, kernels, memory, streams and graphs.
 *
 * The driver and NVRTC are opened at run time, so a program builds and starts without them and says
 * in one sentence what is missing. Functions return 0 or a negative ga_status with the text in `e`;
 * what the machine lacks or reports is GA_ENVIRONMENT. Everything made here belongs to the device
 * and is released by ga_device_close. One thread uses a device. Host memory is allocated by open,
 * load_kernels, arena, pinned, stream, event and capture_end, and by nothing else. */
#ifndef GA_DEVICE_H
#define GA_DEVICE_H
#include "base/ga.h"

typedef struct ga_device ga_device;
typedef struct ga_graph ga_graph;
typedef struct CUfunc_st *ga_kernel;
typedef struct CUstream_st *ga_cuda_stream;
typedef struct CUevent_st *ga_event;
typedef uint64_t ga_address; /* of device memory; 0 is none; arithmetic in bytes */

typedef struct {
    char name[96]; /* as the driver gives it */
    int ordinal;   /* which device of the machine */
    int arch;      /* compute capability, 90 = sm_90 */
    int multiprocessors;
    int driver_version; /* 13000 = 13.0 */
    int nvrtc_version;  /* 1000 * major + 10 * minor; 0 until kernels were compiled or looked up */
    size_t memory_bytes, memory_free_bytes, shared_bytes_max; /* at open; shared: of one block */
} ga_device_facts;

typedef struct {
    int64_t graph_launches;
    int64_t kernel_launches; /* launched one by one, outside of graphs */
    int64_t graph_kernels;   /* kernels that the launched graphs held */
    int64_t collectives;      /* direct and in launched graphs */
    int64_t collective_bytes; /* of one rank's buffers */
    int64_t allocations;      /* calls that asked the driver for memory */
    int64_t device_bytes, pinned_bytes; /* held now */
} ga_device_counters;

typedef struct {
    const char *file; /* "kernels.cu", for messages and for GAGEN_KERNELS */
    const char *text; /* CUDA C++, `bytes` long, no terminator needed */
    size_t bytes;
    const char *const *names;   /* kernels to look up */
    const char *const *options; /* for NVRTC, beside architecture and language */
    int name_count, option_count;
} ga_kernel_source;

typedef struct {
    unsigned blocks[3], threads[3]; /* 0 counts as 1 */
    unsigned shared_bytes; /* dynamic shared memory, 48 KiB without ga_device_allow_shared */
} ga_launch_shape;

/* Opens the driver, device `ordinal` and its primary context. ordinal -1: LOCAL_RANK, or 0 without
 * one (also where the process is shown a single device). */
int ga_device_open(ga_device **out, int ordinal, ga_err *e);
void ga_device_close(ga_device *d); /* NULL is allowed */
const ga_device_facts *ga_device_get_facts(const ga_device *d);
const ga_device_counters *ga_device_get_counters(const ga_device *d);

/* Compiles the source for this device (or takes it from the cache), loads it and puts the handles
 * of names[i] in kernels[i]. GAGEN_KERNELS=DIR takes DIR/file instead of the text. The cache is
 * GAGEN_KERNEL_CACHE (empty: none), else gagen in XDG_CACHE_HOME, else in ~/.cache; a folder that
 * is another user's or writable by others is not used, and a failing cache is never an error. A
 * text that does not compile is GA_BUG with the first lines of the log, or GA_INPUT if it came from
 * GAGEN_KERNELS. Once per device. */
int ga_device_load_kernels(ga_device *d, const ga_kernel_source *s, ga_kernel *kernels, ga_err *e);
/* Lets a kernel be launched with up to `bytes` of dynamic shared memory. */
int ga_device_allow_shared(ga_device *d, ga_kernel k, size_t bytes, ga_err *e);

int ga_device_arena(ga_device *d, size_t bytes, ga_address *out, ga_err *e); /* 256-byte aligned */
int ga_device_pinned(ga_device *d, size_t bytes, void **out, ga_err *e);     /* host memory */
int ga_device_stream(ga_device *d, ga_cuda_stream *out, ga_err *e); /* waits for no other stream */
int ga_device_event(ga_device *d, ga_event *out, ga_err *e);

/* At once: they wait for the whole device first and for the copy. Any host memory. */
int ga_device_upload(ga_device *d, ga_address to, const void *from, size_t bytes, ga_err *e);
int ga_device_download(ga_device *d, void *to, ga_address from, size_t bytes, ga_err *e);
/* In stream order; pinned host memory, to be left alone until the stream has passed the copy. */
int ga_device_send(ga_device *d, ga_cuda_stream s, ga_address to, const void *from, size_t n, ga_err *e);
int ga_device_fetch(ga_device *d, ga_cuda_stream s, void *to, ga_address from, size_t n, ga_err *e);
int ga_device_copy(ga_device *d, ga_cuda_stream s, ga_address to, ga_address from, size_t n, ga_err *e);
int ga_device_fill(ga_device *d, ga_cuda_stream s, ga_address to, uint8_t value, size_t n, ga_err *e);

/* args[i] points to the i-th argument of the kernel; copied before the call returns. */
int ga_device_launch(ga_device *d, ga_cuda_stream s, ga_kernel k, const ga_launch_shape *shape,
                     void **args, ga_err *e);
/* An event stands for what its stream held when it was recorded. wait: s goes on after it;
 * wait_host: the caller waits for it; sync: the caller waits for all of s. */
int ga_device_record(ga_device *d, ga_event ev, ga_cuda_stream s, ga_err *e);
int ga_device_wait(ga_device *d, ga_cuda_stream s, ga_event ev, ga_err *e);
int ga_device_wait_host(ga_device *d, ga_event ev, ga_err *e);
int ga_device_sync(ga_device *d, ga_cuda_stream s, ga_err *e);

/* What is sent to `s` (and to streams that wait for its events) between begin and end is recorded,
 * not done; forked streams must be joined to `s` before the end. Nothing may wait on the host. */
int ga_device_capture_begin(ga_device *d, ga_cuda_stream s, ga_err *e);
int ga_device_capture_end(ga_device *d, ga_cuda_stream s, ga_graph **out, ga_err *e);
int ga_device_graph_launch(ga_device *d, ga_graph *g, ga_cuda_stream s, ga_err *e);
#endif
