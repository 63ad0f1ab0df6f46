// ptx.h: the instructions that kernels may use as inline PTX, one function each (text.cpp makes the calls): dots of a
// name are underscores, arguments stand in the order of the instruction. Included by shim.h.
#pragma once

// Addresses in shared memory are offsets in the dynamic part.
static inline size_t __cvta_generic_to_shared(const void *p) { return dev_shared_address(p); }

// -- sm_90: kernels that begin before the one in front of them has ended
static inline void ptx_griddepcontrol_wait() { dev_wait_for_kernel(); }
static inline void ptx_griddepcontrol_launch_dependents() {}

// -- copies to shared memory that go on beside the thread (tensor.cpp)
static inline void ptx_cp_async_cg_shared_global(unsigned to, const void *from, int bytes, int there) {
    dev_copy_async(to, from, bytes, there);
}
static inline void ptx_cp_async_commit_group() { dev_copy_commit(); }
static inline void ptx_cp_async_wait_group(int groups) { dev_copy_wait(groups); }

// -- two floats as a pair of 16 bits, each rounded to nearest, ties to even
static inline void ptx_cvt_rn_bf16x2_f32(unsigned &d, float high, float low) {
    d = dev_narrow_bf16(low) | dev_narrow_bf16(high) << 16;
}
static inline void ptx_cvt_rn_f16x2_f32(unsigned &d, float high, float low) {
    d = dev_narrow_f16(low) | dev_narrow_f16(high) << 16;
}

// -- 16 bits as a float
static inline void ptx_cvt_f32_f16(float &x, unsigned short h) { x = dev_widen_f16(h); }

// -- 2^x of a float, within 2^-22 of its size on a device; results below 2^-126 are 0
static inline void ptx_ex2_approx_ftz_f32(float &y, float x) { y = x < -126 ? 0 : exp2f(x); }

// -- 1 / x of a float, as close
static inline void ptx_rcp_approx_ftz_f32(float &y, float x) {
    y = fabsf(x) > 0x1p126f ? copysignf(0, x) : 1 / x;
}

// -- of a whole warp: four matrices of 8 x 8 from shared memory; d (16 x 8) = a (16 x 16) b (16 x 8) + c
#define DEV_MATRICES_OF(name, operation, serve)                                                            \
    static inline void ptx_ldmatrix_sync_aligned_m8n8_x4_##name(unsigned &r0, unsigned &r1, unsigned &r2,  \
                                                                unsigned &r3, unsigned row) {              \
        dev_matrices_record r = {{}, row};                                                                 \
        dev_read_row(row);                                                                                 \
        dev_warp(0xffffffffu, operation, &r, serve);                                                       \
        r0 = r.out[0], r1 = r.out[1], r2 = r.out[2], r3 = r.out[3];                                        \
    }
DEV_MATRICES_OF(shared_b16, DEV_MATRICES, dev_serve_matrices)
DEV_MATRICES_OF(trans_shared_b16, DEV_MATRICES_TURNED, dev_serve_matrices_turned)

#define DEV_PRODUCT_OF(type, operation)                                                                           \
    static inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_##type##_##type##_f32(                           \
        float &d0, float &d1, float &d2, float &d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,           \
        unsigned b0, unsigned b1, float c0, float c1, float c2, float c3) {                                       \
        dev_product_record r = {{c0, c1, c2, c3}, {a0, a1, a2, a3}, {b0, b1}};                                    \
        dev_warp(0xffffffffu, operation, &r, dev_serve_product_##type);                                           \
        d0 = r.d[0], d1 = r.d[1], d2 = r.d[2], d3 = r.d[3];                                                       \
    }
DEV_PRODUCT_OF(bf16, DEV_PRODUCT_BF16)
DEV_PRODUCT_OF(f16, DEV_PRODUCT_F16)

// -- sm_90a: barriers in shared memory (mbarrier)
static inline void ptx_mbarrier_init_shared__cta_b64(unsigned at, int arrivals) { dev_object_init(at, arrivals); }
static inline void ptx_fence_mbarrier_init_release_cluster() { dev_object_fence(); }
static inline void ptx_mbarrier_arrive_shared__cta_b64(unsigned long long &, unsigned at) { dev_object_arrive(at, 0); }
static inline void ptx_mbarrier_arrive_expect_tx_shared__cta_b64(unsigned long long &, unsigned at, int bytes) {
    dev_object_arrive(at, bytes);
}
static inline void ptx_mbarrier_try_wait_parity_shared__cta_b64(bool &open, unsigned at, int parity) {
    open = dev_object_wait(at, parity);
}
static inline void ptx_selp_u32(unsigned &d, unsigned yes, unsigned no, bool p) { d = p ? yes : no; }

// -- boxes of a matrix, copied beside the thread
static inline void ptx_prefetch_tensormap(const void *) {}
static inline void ptx_cp_async_bulk_tensor_2d_shared__cluster_global_tile_mbarrier__complete_tx__bytes(
    unsigned to, const void *map, int column, int row, unsigned object) {
    dev_box(to, map, column, row, 0, object);
}
static inline void ptx_cp_async_bulk_tensor_3d_shared__cluster_global_tile_mbarrier__complete_tx__bytes(
    unsigned to, const void *map, int column, int row, int sheet, unsigned object) {
    dev_box(to, map, column, row, sheet, object);
}

static inline void ptx_barrier_cta_sync(int number, int threads) { dev_numbered_barrier(number, threads); }

// -- clusters: an address in the shared memory of a block of the cluster, an arrival there, a box for several blocks
constexpr struct dev_nothing {
} _{};  // where an instruction leaves a result that nobody reads
static inline void ptx_barrier_cluster_arrive_relaxed() { dev_cluster_arrive(); }
static inline void ptx_barrier_cluster_wait_acquire() { dev_cluster_wait(); }
static inline void ptx_mapa_shared__cluster_u32(unsigned &to, unsigned at, unsigned block) {
    to = dev_cluster_address(at, block);
}
static inline void ptx_mbarrier_arrive_shared__cluster_b64(dev_nothing, unsigned at) {
    dev_cluster_object_arrive(at);
}
static inline void
ptx_cp_async_bulk_tensor_2d_shared__cluster_global_tile_mbarrier__complete_tx__bytes_multicast__cluster(
    unsigned to, const void *map, int column, int row, unsigned object, unsigned short blocks) {
    dev_cluster_box(to, map, column, row, object, blocks);
}

// -- products of a warpgroup: 64 rows, 256, 192, 128 or 64 columns, of which a thread has half as many sums
static inline void ptx_wgmma_fence_sync_aligned() { dev_group_fence(); }
static inline void ptx_wgmma_commit_group_sync_aligned() { dev_group_commit(); }
static inline void ptx_wgmma_wait_group_sync_aligned(int groups) { dev_group_wait(groups); }
static inline void ptx_setmaxnreg_inc_sync_aligned_u32(int count) { dev_group_registers(count); }
static inline void ptx_setmaxnreg_dec_sync_aligned_u32(int count) { dev_group_registers(-count); }
#define DEV_SUMS_4(p) float &p##0, float &p##1, float &p##2, float &p##3
#define DEV_SUMS_16(p) DEV_SUMS_4(p##0), DEV_SUMS_4(p##1), DEV_SUMS_4(p##2), DEV_SUMS_4(p##3)
#define DEV_SUMS_64(p) DEV_SUMS_16(p##0), DEV_SUMS_16(p##1), DEV_SUMS_16(p##2), DEV_SUMS_16(p##3)
#define DEV_SUMS_32(p) DEV_SUMS_16(p##0), DEV_SUMS_16(p##1)
#define DEV_SUMS_96(p) DEV_SUMS_64(p##0), DEV_SUMS_32(p##1)
#define DEV_SUMS_128(p) DEV_SUMS_64(p##0), DEV_SUMS_64(p##1)
// By descriptors of both operands, and with a in registers; `last`: the last of their sums.
#define DEV_GROUP_PRODUCT(type, half, wide, sums, last)                                                             \
    static inline void ptx_wgmma_mma_async_sync_aligned_m64n##wide##k16_f32_##type##_##type(                        \
        sums, unsigned long long a, unsigned long long b, int adds, int a_sign, int b_sign, int a_turned,           \
        int b_turned) {                                                                                             \
        if (&last != &d0000 + wide / 2 - 1 || a_sign != 1 || b_sign != 1) __builtin_trap();                         \
        dev_group_product(&d0000, nullptr, {a, b, wide, half, 0, adds, a_turned, b_turned});                        \
    }                                                                                                               \
    static inline void ptx_wgmma_mma_async_sync_aligned_m64n##wide##k16_f32_##type##_##type(                        \
        sums, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned long long b, int adds, int a_sign,       \
        int b_sign, int b_turned) {                                                                                 \
        const unsigned registers[4] = {a0, a1, a2, a3};                                                             \
        if (&last != &d0000 + wide / 2 - 1 || a_sign != 1 || b_sign != 1) __builtin_trap();                         \
        dev_group_product(&d0000, registers, {0, b, wide, half, 1, adds, 0, b_turned});                             \
    }
#define DEV_GROUP_PRODUCTS(type, half)                                  \
    DEV_GROUP_PRODUCT(type, half, 256, DEV_SUMS_128(d), d1333)          \
    DEV_GROUP_PRODUCT(type, half, 192, DEV_SUMS_96(d), d1133)           \
    DEV_GROUP_PRODUCT(type, half, 128, DEV_SUMS_64(d0), d0333)          \
    DEV_GROUP_PRODUCT(type, half, 64, DEV_SUMS_32(d0), d0133)
DEV_GROUP_PRODUCTS(bf16, 0)
DEV_GROUP_PRODUCTS(f16, 1)
