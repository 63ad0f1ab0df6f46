// tensor: the instructions of tensor cores and of copies to shared memory, from sm_80 on. All PTX is here.

//@ tensor(type, half)
/* -- tensor cores: one function per instruction of PTX */

GA_DEVICE ga_uint32 ga_shared(const void *p) {
    return (ga_uint32)__cvta_generic_to_shared(p);
}

/* Begins a copy of up to 16 bytes to shared memory; zeros fill them up to 16. */
GA_DEVICE void ga_copy_begin(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ga_shared(to)), "l"(from), "r"(bytes)
                 : "memory");
}

/* The copies begun since the last call are a group; the groups of a thread arrive in their order. */
GA_DEVICE void ga_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most N groups of this thread are under way. */
template <int N> GA_DEVICE void ga_copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Four matrices of 8 x 8 as a warp multiplies them; lane l points to row l % 8 of matrix l / 8. */
GA_DEVICE void ga_matrices(ga_uint32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ga_shared(row))
                 : "memory");
}

/* The same, each matrix transposed. */
GA_DEVICE void ga_matrices_turned(ga_uint32 (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(ga_shared(row))
                 : "memory");
}

/* Adds the product of a (16 x 16) and b (16 x 8) to sum (16 x 8), in f32. */
GA_DEVICE void ga_multiply(float (&sum)[4], const ga_uint32 (&a)[4], ga_uint32 b0, ga_uint32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.$half.$half.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Two numbers, each rounded to the nearest $half; `low` has the lower address. */
GA_DEVICE ga_uint32 ga_narrow_pair(float low, float high) {
    ga_uint32 pair;
    asm("cvt.rn.$(half)x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

/* The $half nearest to x. */
GA_DEVICE float ga_rounded(float x) {
    return $(half)_widen({(unsigned short)ga_narrow_pair(x, 0)});
}
