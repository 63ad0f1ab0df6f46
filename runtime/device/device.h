/* device.h: one CUDA device: its libraries, kernels, memory, streams and graphs.
 *
 * The driver and NVRTC are opened at run time: a program builds and starts without them, and a message
 * names the missing library. Functions return 0 or a negative ga_status with the text in `e`; missing
 * libraries and errors of the driver are GA_ENVIRONMENT. The device owns everything made here, and
 * ga_device_close releases it. One thread uses a device. Only open, load_kernels, arena, pinned,
 * stream, event and capture_end allocate host memory. */
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
    char name[96]; /* as the driver spells it */
    int ordinal;   /* number of the device in the machine */
    int arch;      /* compute capability, 90 = sm_90 */
    int multiprocessors;
    int driver_version; /* 13000 = 13.0 */
    int nvrtc_version;  /* 1000 * major + 10 * minor; 0 before ga_device_load_kernels */
    size_t memory_bytes, memory_free_bytes, shared_bytes_max; /* at open; shared: of one block */
} ga_device_facts;

typedef struct {
    int64_t graph_launches;
    int64_t kernel_launches; /* launched outside graphs */
    int64_t graph_kernels;   /* kernels in the launched graphs */
    int64_t collectives;      /* outside graphs and in launched graphs */
    int64_t collective_bytes; /* of one rank's buffers */
    int64_t allocations;      /* of memory by the driver */
    int64_t device_bytes, pinned_bytes; /* allocated now */
} ga_device_counters;

typedef struct {
    const char *file; /* "kernels.cu", for messages and for GAGEN_KERNELS */
    const char *text; /* CUDA C++, `bytes` long, no terminator needed */
    size_t bytes;
    const char *const *names;   /* kernels to look up */
    const char *const *options; /* for NVRTC, besides architecture and language */
    int name_count, option_count;
    const char *modules; /* folder of what ga_kernels_compile has made, which may be missing */
} ga_kernel_source;

typedef struct {
    unsigned blocks[3], threads[3]; /* 0 counts as 1 */
    unsigned shared_bytes; /* dynamic shared memory, 48 KiB without ga_device_allow_shared */
    bool dependent; /* the kernel waits by itself: behind another one it may be started before that one has ended */
} ga_launch_shape;

/* Opens the driver, device `ordinal` and its primary context. ordinal -1: the rank's number on its host, as the
 * launcher says; 0 without a launcher, or if the process sees a single device. */
int ga_device_open(ga_device **out, int ordinal, ga_err *e);
void ga_device_close(ga_device *d); /* NULL is allowed */
const ga_device_facts *ga_device_get_facts(const ga_device *d);
const ga_device_counters *ga_device_get_counters(const ga_device *d);

/* Compiles the source for this device or reads the module from the cache, loads it, and stores the
 * handle of names[i] in kernels[i]. A text with instructions that one architecture alone has, such as wgmma of
 * sm_90a, is compiled for that one. GAGEN_KERNELS=DIR replaces the text by DIR/file. The cache folder is
 * GAGEN_KERNEL_CACHE (empty: no cache), else gagen in XDG_CACHE_HOME, else gagen in ~/.cache; a folder
 * of another user, or writable by others, is not used, and a failure of the cache is never an error. A
 * text that does not compile is GA_BUG, or GA_INPUT if it came from GAGEN_KERNELS, with the first lines
 * of the log. Called once per device. */
int ga_device_load_kernels(ga_device *d, const ga_kernel_source *s, ga_kernel *kernels, ga_err *e);
/* A kernel of the loaded text by name, or NULL: not all devices have all of them. */
int ga_device_kernel(ga_device *d, const char *name, ga_kernel *out, ga_err *e);
/* Compiles the source for the devices of an architecture, "sm_90" or "sm_90a", and puts the module into the folder
 * s->modules, where ga_device_load_kernels finds it, if text and options are still the same; it then needs no
 * NVRTC. Needs no device. */
int ga_kernels_compile(const ga_kernel_source *s, const char *architecture, ga_err *e);
/* Allows launches of a kernel with up to `bytes` of dynamic shared memory. */
int ga_device_allow_shared(ga_device *d, ga_kernel k, size_t bytes, ga_err *e);

int ga_device_arena(ga_device *d, size_t bytes, ga_address *out, ga_err *e); /* 256-byte aligned */
int ga_device_pinned(ga_device *d, size_t bytes, void **out, ga_err *e);     /* host memory */
int ga_device_stream(ga_device *d, ga_cuda_stream *out, ga_err *e); /* waits for no other stream */
int ga_device_event(ga_device *d, ga_event *out, ga_err *e);

/* Memory of the driver for a moment: *out is 0 if there is none. It waits for all work before it goes back. */
int ga_device_borrow(ga_device *d, size_t bytes, ga_address *out, ga_err *e);
void ga_device_give_back(ga_device *d, ga_address memory);

/* Synchronous: they wait for all work of the device, then for the copy. Any host memory. */
int ga_device_upload(ga_device *d, ga_address to, const void *from, size_t bytes, ga_err *e);
int ga_device_download(ga_device *d, void *to, ga_address from, size_t bytes, ga_err *e);
/* Rows of `bytes` that begin `apart` bytes from each other on the device; in `to` they lie behind each other. */
int ga_device_download_rows(ga_device *d, void *to, ga_address from, size_t rows, size_t bytes, size_t apart,
                            ga_err *e);
/* In stream order; host memory must be pinned, and unused until the stream has done the copy. */
int ga_device_send(ga_device *d, ga_cuda_stream s, ga_address to, const void *from, size_t n, ga_err *e);
int ga_device_fetch(ga_device *d, ga_cuda_stream s, void *to, ga_address from, size_t n, ga_err *e);
int ga_device_copy(ga_device *d, ga_cuda_stream s, ga_address to, ga_address from, size_t n, ga_err *e);
int ga_device_fill(ga_device *d, ga_cuda_stream s, ga_address to, uint8_t value, size_t n, ga_err *e);

/* args[i] points to the i-th argument of the kernel; copied before the call returns. A dependent kernel behind another
 * one, with nothing else between them in its stream, is launched programmatically from sm_90 and a driver for CUDA 12.3
 * on, if GAGEN_DEPENDENT is 1. */
int ga_device_launch(ga_device *d, ga_cuda_stream s, ga_kernel k, const ga_launch_shape *shape,
                     void **args, ga_err *e);
/* An event marks the work in its stream when it is recorded. wait: stream s waits for the event;
 * wait_host: the caller waits for it; sync: the caller waits for all work of s. */
int ga_device_record(ga_device *d, ga_event ev, ga_cuda_stream s, ga_err *e);
int ga_device_wait(ga_device *d, ga_cuda_stream s, ga_event ev, ga_err *e);
int ga_device_wait_host(ga_device *d, ga_event ev, ga_err *e);
int ga_device_sync(ga_device *d, ga_cuda_stream s, ga_err *e);

/* Milliseconds from one event to another; waits for both. */
int ga_device_elapsed(ga_device *d, ga_event from, ga_event to, float *ms, ga_err *e);

/* How a kernel copies boxes of a matrix: what the driver makes of a ga_matrix, an argument of kernels. */
typedef struct ga_boxes {
    _Alignas(64) uint64_t opaque[16];
} ga_boxes;
typedef struct ga_matrix {
    ga_address at;                 /* a multiple of 16 */
    ga_dtype type;                 /* GA_BF16, GA_F16 */
    int64_t columns, rows, stride; /* elements from row to row, a multiple of 8 */
    int64_t sheets;                /* as many matrices behind each other, a kernel names one; 0: it is one alone */
    int box_columns, box_rows;     /* at most 64 and 256; rows of 128 bytes with their chunks swapped */
} ga_matrix;
bool ga_device_has_boxes(const ga_device *d);
int ga_device_boxes(ga_device *d, ga_boxes *out, const ga_matrix *m, ga_err *e);

/* Work sent to `s`, and to streams that wait for its events, between begin and end is recorded in a
 * graph and not executed. Forked streams must be joined to `s` before the end; the host must not wait
 * meanwhile. */
int ga_device_capture_begin(ga_device *d, ga_cuda_stream s, ga_err *e);
int ga_device_capture_end(ga_device *d, ga_cuda_stream s, ga_graph **out, ga_err *e);
int ga_device_graph_launch(ga_device *d, ga_graph *g, ga_cuda_stream s, ga_err *e);
#endif
