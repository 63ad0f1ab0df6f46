// executor.cpp: runs one launch: blocks one after another, those of a cluster at the same time, a fiber per thread,
// barriers, warp operations. Threads and warps are numbered over all blocks that run at the same time.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device.h"
#include "fiber.h"

dev_thread *dev_current;
dev_block dev_current_block;

namespace device {

Now running_now;
bool is_early;
uintptr_t stacks_begin;

namespace {

enum class State { ready, at_barrier, at_warp, at_object, at_cluster, finished };

struct Rendezvous {  // of the lanes of one warp operation
    unsigned mask, arrived;
    int operation;
    void *records[32];
};
constexpr int RENDEZVOUS = 8;  // groups of one warp that may wait at the same time

struct Fiber : dev_thread {
    State state;
    void *stack_pointer;
    Rendezvous *waits_at;
    int vote;
    unsigned block;
    bool arrived;  // at the barrier of its cluster
    bool early;    // it has not waited for the kernel in front
};

constexpr uint64_t STACK_MARK = 0x5ca1ab1e0ddba11ull;

struct Block {  // one of those that run at the same time
    uint3 index;
    uint64_t who;
    unsigned first, live;  // its first thread, and how many have not ended
    uint32_t barrier;      // barriers passed
    struct {
        unsigned arrived, sum;
        int site, line, vote;
    } meeting;
};

struct Executor {
    SharedArea shared{};
    uintptr_t dynamic;  // shared memory of the first block
    Fiber fibers[THREADS_LIMIT];
    unsigned order[THREADS_LIMIT], threads, all, next, waiting;  // threads of a block, of all; at a cluster's barrier
    Block blocks[CLUSTER_LIMIT];
    unsigned block_count, present;  // present: the block whose shared memory is at hand
    void *main_stack;
    const Launch *launch;
    bool abandoned;
    Rendezvous rendezvous[THREADS_LIMIT / 32][RENDEZVOUS];
    uint32_t warp_barrier[THREADS_LIMIT / 32];
};
Executor x;

Fiber *running() {
    return static_cast<Fiber *>(dev_current);
}

Block &own_block() {
    return x.blocks[running()->block];
}

unsigned live_threads() {
    unsigned live = 0;
    for (unsigned b = 0; b < x.block_count; b++) live += x.blocks[b].live;
    return live;
}

void set_now(const Fiber *f) {
    if (f->block != x.present) {
        enter_block(f->block);
        dev_current_block.index = x.blocks[f->block].index;
    }
    is_early = f->early;
    running_now.when = (uint64_t)x.blocks[f->block].barrier << Now::BARRIER |
                       (uint64_t)x.warp_barrier[f->warp] << Now::WARP_BARRIER | f->linear << Now::THREAD;
}

void switch_to_next(void **save) {
    for (unsigned i = 0; i < x.all; i++) {
        if (x.next >= x.all) {
            x.next = 0;
            shuffle(x.order, x.all);
        }
        Fiber *f = &x.fibers[x.order[x.next++]];
        if (f->state != State::ready) continue;
        set_now(f);
        if (f == dev_current && save == &f->stack_pointer) return;
        dev_current = f;
        dev_switch(save, f->stack_pointer);
        return;
    }
    dev_switch(save, x.main_stack);  // the block is finished or deadlocked
}

void wait(State state) {
    Fiber *f = running();
    f->state = state;
    switch_to_next(&f->stack_pointer);
}

// Opens the barrier once every live thread of the block has arrived; threads that returned do not count.
void open_barrier(Block &b) {
    if (b.meeting.arrived == 0 || b.meeting.arrived != b.live) return;
    int vote = b.meeting.vote, sum = (int)b.meeting.sum;
    int result = vote == DEV_COUNT ? sum : vote == DEV_AND ? sum == (int)b.live : sum != 0;
    b.meeting = {};
    b.barrier++;
    meet(b.first, x.threads);
    for (unsigned i = b.first; i < b.first + x.threads; i++)
        if (x.fibers[i].state == State::at_barrier) {
            x.fibers[i].vote = result;
            x.fibers[i].state = State::ready;
        }
}

// The same of a cluster's barrier. It joins clocks, but orders no plain accesses: arrivals are relaxed.
void open_cluster_barrier() {
    if (x.waiting == 0 || x.waiting != live_threads()) return;
    x.waiting = 0;
    meet(0, x.all);
    for (unsigned i = 0; i < x.all; i++)
        if (x.fibers[i].state == State::at_cluster) x.fibers[i].state = State::ready;
}

void thread_main() {
    x.launch->function->kernel->call(x.launch->arguments);
    if (is_early && !x.abandoned)
        report("dependent", "a thread never waits for the kernel in front%s", where().c_str());
    finish_copies();
    finish_groups();
    running()->state = State::finished;
    Block &b = own_block();
    b.live--;
    finish_arrivals(b.live == 0);
    if (b.live == 0) finish_boxes();
    open_barrier(b);
    open_cluster_barrier();
    void *never_used;
    switch_to_next(&never_used);
    abort();
}

char *stack_bottom(unsigned thread) {
    return (char *)stacks_begin + STACK_BYTES * thread;
}

void start_threads() {
    for (unsigned i = 0; i < x.all; i++) {
        Fiber *f = &x.fibers[i];
        f->state = State::ready;
        f->arrived = false;
        f->early = x.launch->dependent;
        // Staggered: tops that are a power of two apart would compete for the same cache lines.
        f->stack_pointer =
            fiber_start(stack_bottom(i) + STACK_BYTES - 64 - (i & 15) * 128, thread_main);
    }
    forget_copies(x.all);
    forget_groups(x.all);
    forget_arrivals();
    forget_barriers();
    x.next = x.all;  // shuffles before the first switch
    x.waiting = 0;
    unsigned warps = (x.all + 31) / 32;
    memset(x.rendezvous, 0, sizeof x.rendezvous[0] * warps);
    memset(x.warp_barrier, 0, sizeof x.warp_barrier[0] * warps);
}

void report_dead_lock() {
    std::string text;
    int shown = 0;
    for (unsigned i = 0; i < x.all && shown < 3; i++) {
        const Fiber &f = x.fibers[i];
        char line[120] = "";
        if (f.state == State::at_barrier)
            snprintf(line, sizeof line, "; thread %u waits at __syncthreads, line %d", i,
                     x.blocks[f.block].meeting.line);
        else if (f.state == State::at_warp)
            snprintf(line, sizeof line,
                     "; thread %u waits at a warp operation, mask %08x, came %08x", i,
                     f.waits_at->mask, f.waits_at->arrived);
        else if (f.state == State::at_object)
            snprintf(line, sizeof line, "; thread %u waits at an mbarrier, a numbered barrier or for its warpgroup", i);
        else if (f.state == State::at_cluster)
            snprintf(line, sizeof line, "; thread %u waits at the barrier of its cluster", i);
        shown += line[0] != 0;
        text += line;
    }
    dev_current = nullptr;
    const uint3 &first = x.blocks[0].index;
    report("dead lock", "kernel %s, block (%u,%u,%u): %u threads wait for ever%s", x.launch->function->kernel->name,
           first.x, first.y, first.z, live_threads(), text.c_str());
}

// Shared memory starts with NaNs. The checker knows what was written and needs no poison.
void poison_shared(bool first_block) {
    if (switches.check) return;
    const Module *m = x.launch->function->module;
    if (first_block || switches.seed)
        memset(m->shared_begin, 0xff, (size_t)(m->shared_end - m->shared_begin));
    for (unsigned b = 0; b < x.block_count; b++) memset(shared_of(b), 0xff, x.launch->dynamic_bytes);
}

// Runs block number `block`, and those that are in its cluster behind it.
bool run_blocks(uint32_t block, bool first) {
    const unsigned *grid = x.launch->grid;
    for (unsigned b = 0; b < x.block_count; b++, block++)
        x.blocks[b] = {{block % grid[0], block / grid[0] % grid[1], block / (grid[0] * grid[1])},
                       (uint64_t)current_operation->launch << 32 | block, b * x.threads, x.threads, 0, {}};
    x.present = x.block_count;  // none: the first thread enters its own
    start_threads();
    poison_shared(first);
    switch_to_next(&x.main_stack);
    if (live_threads() > 0 && !x.abandoned) report_dead_lock();
    dev_current = nullptr;
    return live_threads() == 0;
}

void prepare_once() {
    if (stacks_begin) return;
    void *stacks = mmap(nullptr, STACKS_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *dynamic = nullptr;
    if (stacks == MAP_FAILED || posix_memalign(&dynamic, 1024, SHARED_LIMIT * CLUSTER_LIMIT)) {
        fprintf(stderr, "device: no host memory for the threads of a block\n");
        abort();
    }
    stacks_begin = (uintptr_t)stacks;
    x.dynamic = x.shared.dynamic = (uintptr_t)dynamic;
    x.shared.dynamic_capacity = SHARED_LIMIT;
}

// Kernels are AVX code, this library is SSE code: while the upper halves of the vector registers are not zero,
// a processor waits at each change from one to the other (measured: five times as long in all). Programs compiled
// with -O0 leave them so.
void clear_upper_halves() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx")) asm volatile("vzeroupper");
#endif
}

void check_stacks() {
    for (unsigned i = 0; i < x.all; i++)
        if (memcmp(stack_bottom(i), &STACK_MARK, sizeof STACK_MARK) != 0)
            return report("stack", "kernel %s: a thread needs more than %zu bytes of stack",
                          x.launch->function->kernel->name, STACK_BYTES);
}

}  // namespace

void run_launch(const Launch &launch) {
    prepare_once();
    clear_upper_halves();
    const unsigned *b = launch.block, *g = launch.grid;
    x.launch = &launch;
    x.abandoned = false;
    x.threads = b[0] * b[1] * b[2];
    x.block_count = std::max(1u, launch.function->kernel->cluster);
    x.all = x.threads * x.block_count;
    x.shared.dynamic_bytes = launch.dynamic_bytes;
    x.shared.module = launch.function->module;
    if (switches.check) check_launch();
    dev_current_block.threads = {b[0], b[1], b[2]};
    dev_current_block.grid = {g[0], g[1], g[2]};
    for (unsigned i = 0; i < x.all; i++) {
        const unsigned n = i % x.threads;
        dev_thread *t = &x.fibers[i];
        *t = {{n % b[0], n / b[0] % b[1], n / (b[0] * b[1])}, i, i % 32, i / 32};
        x.fibers[i].block = i / x.threads;
        x.order[i] = i;
    }
    std::vector<uint32_t> blocks((size_t)g[0] * g[1] * g[2] / x.block_count);
    for (size_t i = 0; i < blocks.size(); i++) blocks[i] = (uint32_t)i * x.block_count;
    shuffle(blocks.data(), (unsigned)blocks.size());
    for (unsigned i = 0; i < x.all; i++) memcpy(stack_bottom(i), &STACK_MARK, sizeof STACK_MARK);
    bool first = true;
    for (uint32_t block : blocks) {
        if (!run_blocks(block, first)) break;
        first = false;
    }
    check_stacks();
    if (switches.check) note_traffic(launch.function->kernel->name);
    x.launch = nullptr;
}

void abandon_launch() {
    void *never_used;
    x.abandoned = true;
    dev_switch(&never_used, x.main_stack);
    abort();
}

void wait_for_object() {
    wait(State::at_object);
}

void pass_barrier() {
    own_block().barrier++;
    set_now(running());
}

void wake_objects() {
    for (unsigned i = 0; i < x.all; i++)
        if (x.fibers[i].state == State::at_object) x.fibers[i].state = State::ready;
}

std::string where() {
    if (!x.launch || !dev_current) return "";
    const uint3 &b = own_block().index, &t = dev_current->index;
    char text[240];
    snprintf(text, sizeof text, ", kernel %s, block (%u,%u,%u), thread (%u,%u,%u)",
             x.launch->function->kernel->name, b.x, b.y, b.z, t.x, t.y, t.z);
    return text;
}

const SharedArea &shared_area() {
    return x.shared;
}

char *shared_of(unsigned block) {
    return (char *)x.dynamic + block * SHARED_LIMIT;
}

unsigned present_block() {
    return x.present;
}

unsigned block_of(unsigned thread) {
    return x.fibers[thread].block;
}

unsigned blocks_at_once() {
    return x.block_count;
}

unsigned threads_at_once() {
    return x.all;
}

void enter_block(unsigned block) {
    x.present = block;
    x.shared.dynamic = (uintptr_t)shared_of(block);
    running_now.who = x.blocks[block].who;
    if (switches.check) check_block(block);
}

bool has_block(unsigned block) {
    return block < x.block_count && x.blocks[block].live > 0;
}

bool is_private(uintptr_t address) {
    return address - stacks_begin < STACKS_BYTES ||
           address - (uintptr_t)&x < sizeof x ||
           address - (uintptr_t)&dev_current_block < sizeof dev_current_block ||
           address - (uintptr_t)&dev_current < sizeof dev_current;
}

}  // namespace device

using namespace device;

int dev_barrier(int vote, int predicate, int site, int line) {
    auto &m = own_block().meeting;
    if (m.arrived == 0) {
        m.site = site;
        m.line = line;
        m.vote = vote;
    } else if (m.site != site) {
        report("barrier", "threads of one block meet at different __syncthreads, lines %d and %d%s",
               m.line, line, where().c_str());
        abandon_launch();
    }
    m.arrived++;
    m.sum += (unsigned)predicate;
    Fiber *f = running();
    f->state = State::at_barrier;
    open_barrier(own_block());
    switch_to_next(&f->stack_pointer);
    return f->vote;
}

void dev_wait_for_kernel(void) {
    running()->early = is_early = false;
}

void device::refuse_early() {
    report("dependent", "global memory before the wait for the kernel in front%s", where().c_str());
    abandon_launch();
}

void dev_cluster_arrive(void) {
    if (running()->arrived) report("barrier", "arrives twice at the barrier of its cluster%s", where().c_str());
    running()->arrived = true;
}

// Arrival and wait stand together in kernels: what stands between them would count as in front of both.
void dev_cluster_wait(void) {
    Fiber *f = running();
    if (!f->arrived) report("barrier", "waits for its cluster without an arrival%s", where().c_str());
    f->arrived = false;
    f->state = State::at_cluster;
    x.waiting++;
    open_cluster_barrier();
    switch_to_next(&f->stack_pointer);
}

// A number too large would be an order that there is not; from the last one on a race is reported too many.
static void pass_warp_barrier(const Fiber *f) {
    if (x.warp_barrier[f->warp] < (1u << (Now::BARRIER - Now::WARP_BARRIER)) - 1) x.warp_barrier[f->warp]++;
    set_now(f);
    meet(f->warp * 32, std::min(32u, x.all - f->warp * 32));
}

static Rendezvous *find_rendezvous(unsigned warp, unsigned lane, unsigned mask, int operation) {
    Rendezvous *all = x.rendezvous[warp];
    for (int i = 0; i < RENDEZVOUS; i++)
        if (all[i].arrived && all[i].mask == mask && all[i].operation == operation &&
            !(all[i].arrived >> lane & 1))
            return &all[i];
    for (int i = 0; i < RENDEZVOUS; i++)
        if (!all[i].arrived) {
            all[i].mask = mask;
            all[i].operation = operation;
            return &all[i];
        }
    return nullptr;
}

void dev_warp(unsigned mask, int operation, void *record, void (*serve)(void **, unsigned)) {
    Fiber *f = running();
    unsigned lane = f->lane, warp = f->warp, lanes = std::min(32u, x.all - warp * 32);
    if (lanes < 32) mask &= (1u << lanes) - 1;
    if (!(mask >> lane & 1)) {
        report("warp", "lane %u takes part with mask %08x, which does not name it%s", lane, mask,
               where().c_str());
        mask |= 1u << lane;
    }
    Rendezvous *r = find_rendezvous(warp, lane, mask, operation);
    if (!r) {
        report("warp", "more than %d groups of a warp wait at once%s", RENDEZVOUS, where().c_str());
        return;
    }
    r->records[lane] = record;
    r->arrived |= 1u << lane;
    if (r->arrived != mask) {
        f->waits_at = r;
        wait(State::at_warp);
        return;
    }
    serve(r->records, mask);
    if (operation == DEV_WARP_SYNC)  // the only one that orders memory
        pass_warp_barrier(f);
    r->arrived = 0;
    for (unsigned other = 0; other < 32; other++)
        if (other != lane && mask >> other & 1) x.fibers[warp * 32 + other].state = State::ready;
}

void *dev_dynamic_shared(void) {
    return (void *)x.shared.dynamic;
}

void dev_bad_lane(int lane, unsigned mask) {
    report("warp", "a shuffle reads lane %d, which is not in mask %08x%s", lane, mask,
           where().c_str());
}

void dev_global(const void *at) {
    const SharedArea &s = shared_area();
    const char *place = (const char *)at;
    if ((uintptr_t)at - s.dynamic >= s.dynamic_capacity &&
        (place < s.module->shared_begin || place >= s.module->shared_end))
        return;
    report("address space", "an instruction for global memory is given a place in shared memory%s", where().c_str());
    abandon_launch();
}

Module *device::loading;
void dev_register(const dev_kernel *kernel) {
    loading->kernels.push_back(kernel);
}
void dev_register_shared(char *begin, char *end) {
    loading->shared_begin = begin;
    loading->shared_end = end;
}
