// kernel_abi.h: the interface of compiled kernels and the device library. C types only: shim.h is read by
// kernels that must not see the standard library's names.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dev_thread {  // the running CUDA thread
    struct uint3 index;
    unsigned linear, lane, warp;  // linear, warp: of all blocks of a cluster
};
struct dev_block {
    struct uint3 index, threads, grid;
};
struct dev_kernel {
    const char *name;
    unsigned bound;    // of __launch_bounds__; 0: none
    unsigned cluster;  // blocks, of __cluster_dims__; 0: none
    int argument_count;
    const unsigned *argument_bytes;
    void (*call)(void **arguments);
};

enum dev_vote { DEV_SYNC, DEV_COUNT, DEV_AND, DEV_OR };
enum dev_warp_operation {
    DEV_WARP_SYNC,
    DEV_SHUFFLE,
    DEV_BALLOT,
    DEV_MATCH,
    DEV_MATRICES,
    DEV_MATRICES_TURNED,
    DEV_PRODUCT_BF16,
    DEV_PRODUCT_F16
};

struct dev_matrices_record {
    unsigned out[4], row;  // row: its address in shared memory
};
struct dev_product_record {
    float d[4];
    unsigned a[4], b[2];
};

extern "C" {
extern struct dev_thread *dev_current;
extern struct dev_block dev_current_block;
void dev_register(const struct dev_kernel *kernel);
void dev_register_shared(char *begin, char *end);
int dev_barrier(int vote, int predicate, int site, int line);
void dev_numbered_barrier(int number, int threads);
// Each lane of the mask leaves a record; the last lane to arrive computes the results of all.
void dev_warp(unsigned mask, int operation, void *record,
              void (*serve)(void **records, unsigned mask));
void *dev_dynamic_shared(void);
void dev_atomic(void *address, unsigned bytes);  // announces an atomic access
void dev_global(const void *at);  // an instruction for global memory reaches this place
void dev_bad_lane(int lane, unsigned mask);
void dev_wait_for_kernel(void);  // the one in front of this one has ended
// The barrier of a cluster, and what a thread does in the shared memory of other blocks of it (cluster.cpp).
void dev_cluster_arrive(void);
void dev_cluster_wait(void);
unsigned dev_cluster_address(unsigned at, unsigned block);
void dev_cluster_object_arrive(unsigned at);
void dev_cluster_box(unsigned to, const void *map, int column, int row, unsigned object, unsigned blocks);
// Copies beside a kernel, fragments and products of a warp (tensor.cpp).
unsigned dev_shared_address(const void *p);
void dev_copy_async(unsigned to, const void *from, int bytes, int there);
void dev_copy_commit(void);
void dev_copy_wait(int groups);
void dev_read_row(unsigned row);
void dev_serve_matrices(void **records, unsigned mask);
void dev_serve_matrices_turned(void **records, unsigned mask);
void dev_serve_product_bf16(void **records, unsigned mask);
void dev_serve_product_f16(void **records, unsigned mask);
unsigned dev_narrow_bf16(float x);
unsigned dev_narrow_f16(float x);
float dev_widen_f16(unsigned h);
// Barriers in shared memory, copies of boxes, products of warpgroups, of sm_90a (hopper.cpp).
void dev_object_init(unsigned at, int arrivals);
void dev_object_fence(void);
void dev_object_arrive(unsigned at, int bytes);
int dev_object_wait(unsigned at, int parity);
void dev_box(unsigned to, const void *map, int column, int row, int sheet, unsigned object);
void dev_group_fence(void);
void dev_group_commit(void);
void dev_group_wait(int groups);
void dev_group_registers(int count);
// The factors of a product of a warpgroup: a by its descriptor, or in registers; half: 0 bf16, 1 f16.
struct dev_group_factors {
    unsigned long long a, b;
    unsigned wide;  // columns
    int half, registers, adds, a_turned, b_turned;
};
// d: wide / 2 floats of this thread; registers: its four pairs of a, or null.
void dev_group_product(float *d, const unsigned *registers, const dev_group_factors &of);
}
