// kernel_abi.h: the interface of compiled kernels and the device library. C types only: shim.h is read by
// kernels that must not see the standard library's names.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dev_thread {  // the running CUDA thread
    struct uint3 index;
    unsigned linear, lane, warp;
};
struct dev_block {
    struct uint3 index, threads, grid;
};
struct dev_kernel {
    const char *name;
    unsigned bound;  // of __launch_bounds__; 0: none
    int argument_count;
    const unsigned *argument_bytes;
    void (*call)(void **arguments);
};

enum dev_vote { DEV_SYNC, DEV_COUNT, DEV_AND, DEV_OR };
enum dev_warp_operation { DEV_WARP_SYNC, DEV_SHUFFLE, DEV_BALLOT };

extern "C" {
extern struct dev_thread *dev_current;
extern struct dev_block dev_current_block;
void dev_register(const struct dev_kernel *kernel);
void dev_register_shared(char *begin, char *end);
int dev_barrier(int vote, int predicate, int site, int line);
// Each lane of the mask leaves a record; the last lane to arrive computes the results of all.
void dev_warp(unsigned mask, int operation, void *record,
              void (*serve)(void **records, unsigned mask));
void *dev_dynamic_shared(void);
void dev_atomic(void *address, unsigned bytes);  // announces an atomic access
void dev_bad_lane(int lane, unsigned mask);
}
