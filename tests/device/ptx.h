// ptx.h: the instructions that kernels may use as inline PTX, one function each (text.cpp makes the calls): dots of a
// name are underscores, arguments stand in the order of the instruction. Included by shim.h.
#pragma once

// Addresses in shared memory are offsets in the dynamic part.
static inline size_t __cvta_generic_to_shared(const void *p) { return dev_shared_address(p); }

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

// -- 2^x of a float, within 2^-22 of its size on a device; results below 2^-126 are 0
static inline void ptx_ex2_approx_ftz_f32(float &y, float x) { y = x < -126 ? 0 : exp2f(x); }

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
