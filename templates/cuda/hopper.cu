// hopper: what sm_90a adds to tensor cores: gates in shared memory, copies of boxes by one thread, products of 128
// threads that read shared memory by descriptors. All PTX is here.

//@ gates(type, half)
/* -- sm_90a: one function per instruction of PTX */

/* How boxes of a matrix are copied, as the driver describes it to the device (CUtensorMap). */
struct __align__(64) ga_boxes {
    ga_uint64 opaque[16];
};

/* A gate (mbarrier) opens when all its arrivals and the bytes that these expect are there, then begins its next phase;
 * its phases are 0, 1, 0, 1, ... */
GA_DEVICE void ga_gate_init(ga_uint64 *gate, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(ga_shared(gate)), "r"(arrivals) : "memory");
}

/* Makes gates known to copies, too. */
GA_DEVICE void ga_gates_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

GA_DEVICE void ga_gate_arrive(ga_uint64 *gate) {
    ga_uint64 state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(ga_shared(gate)) : "memory");
}

/* Arrives, and lets the gate wait for these bytes of copies. */
GA_DEVICE void ga_gate_expect(ga_uint64 *gate, int bytes) {
    ga_uint64 state;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(ga_shared(gate)), "r"(bytes)
                 : "memory");
}

GA_DEVICE bool ga_gate_opens(ga_uint64 *gate, int phase) {
    ga_uint32 open;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(open)
                 : "r"(ga_shared(gate)), "r"(phase)
                 : "memory");
    return open;
}

/* Waits until this phase is over. */
GA_DEVICE void ga_gate_wait(ga_uint64 *gate, int phase) {
    while (!ga_gate_opens(gate, phase)) {
    }
}

//@ copies(type, half)
/* Begins the copy of a box, the one that starts at this column and row; zeros outside of the matrix. */
GA_DEVICE void ga_box(void *to, const ga_boxes &from, ga_uint64 *gate, int column, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(ga_shared(to)),
                 "l"(&from), "r"(column), "r"(row), "r"(ga_shared(gate))
                 : "memory");
}

/* The same of one of several matrices behind each other. */
GA_DEVICE void ga_sheet_box(void *to, const ga_boxes &from, ga_uint64 *gate, int column, int row, int sheet) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(ga_shared(to)),
                 "l"(&from), "r"(column), "r"(row), "r"(sheet), "r"(ga_shared(gate))
                 : "memory");
}

GA_DEVICE void ga_boxes_soon(const ga_boxes &boxes) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&boxes) : "memory");
}

//@ clusters(type, half)
/* Waits for all threads of the blocks of a cluster. Hands over no writes but those that ga_gates_ready speaks of. */
GA_DEVICE void ga_cluster_wait() {
    asm volatile("{ barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire; }" ::: "memory");
}

/* Arrives at this gate of a block of the cluster. Products that are over have read what they read, so the arrival hands
 * over no writes, and needs no fence for the cluster. */
GA_DEVICE void ga_gate_arrive(ga_uint64 *gate, int block) {
    ga_uint32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(ga_shared(gate)), "r"(block));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
}

/* Begins the copy of a box to this place of the first BLOCKS blocks of the cluster, each of which has this gate. */
template <int BLOCKS> GA_DEVICE void ga_box_to(void *to, const ga_boxes &from, ga_uint64 *gate, int column, int row) {
    if (BLOCKS == 1)
        ga_box(to, from, gate, column, row);
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(ga_shared(to)),
                     "l"(&from), "r"(column), "r"(row), "r"(ga_shared(gate)), "h"((unsigned short)((1 << BLOCKS) - 1))
                     : "memory");
}

//@ groups(type, half)
/* Products of a warpgroup go on beside it: begin stands between other uses of their registers and them, those up to a
 * commit are a group, and wait lets at most N groups go on. */
GA_DEVICE void ga_group_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

GA_DEVICE void ga_group_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N> GA_DEVICE void ga_group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Waits for THREADS threads of the block at the barrier of this number, 1 to 15. */
template <int NUMBER, int THREADS> GA_DEVICE void ga_threads_wait() {
    asm volatile("barrier.cta.sync %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}

/* The registers of a thread from now on: the warpgroup that copies leaves its own to those that multiply. */
template <int N> GA_DEVICE void ga_registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> GA_DEVICE void ga_registers_less() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Describes an operand to a product: rows of 128 bytes whose chunks are swapped, groups of eight rows 1024 bytes apart.
 * A turned one has `panel` bytes from 64 neighbours to the next 64. */
GA_DEVICE ga_uint64 ga_operand(const ga_byte *at, int panel) {
    return (ga_shared(at) & 0x3ffff) >> 4 | (ga_uint64)(panel >> 4) << 16 | (ga_uint64)(1024 >> 4) << 32 |
           (ga_uint64)1 << 62;
}

/* Uses of these registers before here are over; those behind see what products left there. */
template <int N> GA_DEVICE void ga_settle(float (&d)[N][4]) {
#pragma unroll
    for (int v = 0; v < N; v++)
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[v][e])::"memory");
}

//@ products(half, eights, wide, first, names, registers)
/* Begins to add the product of a (64 x 16) and b (16 x $wide) to the first $eights sums of a warpgroup, in f32. Warp w
 * has rows 16 w on; of eight columns v a lane has sums as ga_multiply leaves them. */
template <bool A_TURNED, bool B_TURNED, int EIGHTS>
GA_DEVICE void ga_group_multiply_$wide(float (&d)[EIGHTS][4], ga_uint64 a, ga_uint64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n$(wide)k16.f32.$half.$half "
        $names
        "%$(first[1]), %$(first[2]), 1, 1, 1, %$(first[3]), %$(first[4]);"
        : $registers
        : "l"(a), "l"(b), "n"((int)A_TURNED), "n"((int)B_TURNED));
}

//@ head_products(half, eights, wide, first, names, registers)
/* Begins the product of a (64 x 16) and b (16 x $wide), the terms of both being neighbours, and adds it to the sums of
 * a warpgroup, or to 0. */
template <bool ADDS> GA_DEVICE void ga_group_dots(float (&d)[$eights][4], ga_uint64 a, ga_uint64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n$(wide)k16.f32.$half.$half "
        $names
        "%$(first[1]), %$(first[2]), %$(first[3]), 1, 1, 0, 0;"
        : $registers
        : "l"(a), "l"(b), "n"((int)ADDS));
}

/* The same with a in registers, as ga_multiply has it, and b turned; it adds. */
GA_DEVICE void ga_group_add(float (&d)[$eights][4], const ga_uint32 (&a)[4], ga_uint64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n$(wide)k16.f32.$half.$half "
        $names
        "{%$(first[1]), %$(first[2]), %$(first[3]), %$(first[4])}, %$(first[5]), 1, 1, 1, 1;"
        : $registers
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
