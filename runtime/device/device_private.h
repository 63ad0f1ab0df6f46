/* device_private.h: what the device*.c files share, and nobody else sees. */
#ifndef GA_DEVICE_PRIVATE_H
#define GA_DEVICE_PRIVATE_H
#include "device/cuda_abi.h"
#include "device/device.h"

#define GA_POINTER(result, name, arguments) result(*name) arguments;
typedef struct ga_cuda {
    GA_CUDA_FUNCTIONS(GA_POINTER)
} ga_cuda;
typedef struct ga_nvrtc {
    GA_NVRTC_FUNCTIONS(GA_POINTER)
} ga_nvrtc;
#define GA_SYMBOL_NAME(result, name, arguments) #name,

/* Everything of one kind that a device has to release. */
typedef struct ga_handles {
    void **at;
    int count, capacity;
} ga_handles;

/* Launches and collectives that a graph holds, or that a capture under way has seen. */
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
    CUmodule module;
    bool capturing;
    ga_tally captured;
    ga_device_facts facts;
    ga_device_counters counters;
    ga_handles arenas, pinned, streams, events, graphs;
};

/* Opens the first of `sonames` (NULL-ended) and fills `functions` by name. The message says what is
 * missing and `advice`. */
int ga_library_open(void **library, const char *const *sonames, const char *const *symbols,
                    int count, void (**functions)(void), const char *advice, ga_err *e);

/* 0, or GA_ENVIRONMENT with what was tried and the driver's name and text of the error. */
int ga_cuda_check(const ga_device *d, CUresult r, const char *what, ga_err *e);

/* Counts one collective of `bytes`, in the graph if a capture is under way. */
void ga_device_count_collective(ga_device *d, size_t bytes);

/* Releases every graph: NCCL hangs if a communicator is destroyed while a graph holds it. */
void ga_device_drop_graphs(ga_device *d);

/* The cache of compiled kernels. A key is a SHA-256 in hexadecimal. */
typedef struct ga_cache_key {
    char text[65];
} ga_cache_key;

/* One part of what a key covers. */
typedef struct ga_cache_part {
    const void *data;
    size_t bytes;
} ga_cache_part;

ga_cache_key ga_cache_key_of(const ga_cache_part *parts, int count);
/* Opens the folder, made if it does not exist; -1 if there is none that can be trusted. */
int ga_cache_open(void);
/* The entry's content, to be freed, or NULL if it is not there or damaged. */
void *ga_cache_read(int folder, const ga_cache_key *key, size_t *bytes);
/* Best effort: a failure leaves no file behind. */
void ga_cache_write(int folder, const ga_cache_key *key, const void *data, size_t bytes);
#endif
