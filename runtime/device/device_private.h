/* device_private.h: shared by the device*.c files, and gen/host/nvrtc.c for NVRTC. */
#ifndef GA_DEVICE_PRIVATE_H
#define GA_DEVICE_PRIVATE_H
#include "device/cuda_abi.h"
#include "device/device.h"

#define GA_POINTER(result, name, arguments) result(*name) arguments;
typedef struct ga_cuda {
    GA_CUDA_FUNCTIONS(GA_POINTER)
    GA_CUDA_OPTIONAL(GA_POINTER) /* NULL: this driver has it not */
} ga_cuda;
typedef struct ga_nvrtc {
    GA_NVRTC_FUNCTIONS(GA_POINTER)
} ga_nvrtc;
#define GA_SYMBOL_NAME(result, name, arguments) #name,

/* Handles of one kind that ga_device_close releases. */
typedef struct ga_handles {
    void **at;
    int count, capacity;
} ga_handles;

/* Launches and collectives in a graph, or so far in a capture. */
typedef struct ga_tally {
    int64_t kernels, collectives, collective_bytes;
} ga_tally;

struct ga_graph {
    CUgraphExec exec;
    ga_tally holds;
};

struct ga_device {
    ga_cuda cuda;
    ga_nvrtc nvrtc;
    void *cuda_library, *nvrtc_library;
    CUdevice device;
    CUcontext context;
    bool capturing;
    bool dependent;      /* kernels may begin beside the end of the one before them */
    CUstream behind;     /* the stream that had a kernel last, and nothing else since; NULL: none */
    ga_tally captured;
    ga_device_facts facts;
    ga_device_counters counters;
    ga_handles modules, arenas, pinned, streams, events, graphs;
};

/* Makes room for one more handle. Called before the handle is made, so that none leaks if memory is short. */
int ga_handles_reserve(ga_handles *h, ga_err *e);
/* Stores a handle in the place that ga_handles_reserve made. */
void ga_handles_keep(ga_handles *h, void *handle);

enum { GA_KERNEL_PARTS_MAX = 16 };

/* Into how many parts a text of kernels is cut, which are compiled side by side: by its number of kernels alone, so
 * that the same text has the same entries in the cache on each machine. GAGEN_KERNEL_PARTS says another number. */
int ga_kernel_parts(const char *text);
/* A copy of the text in which the kernels of all other parts are blank, line by line. NULL: no memory. */
char *ga_kernel_part(const char *text, size_t bytes, int part, int parts);

/* Opens the first of `sonames` (NULL-ended) that can be opened, by the loader or from lib64 of CUDA_HOME and
 * /usr/local/cuda, and fills `functions` by name. The message names the missing library or function, and ends
 * with `advice`. */
int ga_library_open(void **library, const char *const *sonames, const char *const *symbols,
                    int count, void (**functions)(void), const char *advice, ga_err *e);

/* 0, or GA_ENVIRONMENT with `what` was tried and the driver's name and text of the error. */
int ga_cuda_check(const ga_device *d, CUresult r, const char *what, ga_err *e);

/* Counts one collective of `bytes`, in the graph if a capture is under way. */
void ga_device_count_collective(ga_device *d, size_t bytes);

/* Releases every graph: NCCL hangs if a communicator is destroyed while a graph uses it. */
void ga_device_drop_graphs(ga_device *d);

/* The cache of compiled kernels. A key is a SHA-256 in hexadecimal. */
typedef struct ga_cache_key {
    char text[65];
} ga_cache_key;

/* One part of the data that a key is the hash of. */
typedef struct ga_cache_part {
    const void *data;
    size_t bytes;
} ga_cache_part;

ga_cache_key ga_cache_key_of(const ga_cache_part *parts, int count);
/* Opens the folder, created if missing; -1 if it cannot be opened or is not trusted. */
int ga_cache_open(void);
/* The entry's content, for the caller to free; NULL if it is missing or damaged. */
void *ga_cache_read(int folder, const ga_cache_key *key, size_t *bytes);
/* Best effort: a failure leaves no file behind. */
void ga_cache_write(int folder, const ga_cache_key *key, const void *data, size_t bytes);
#endif
