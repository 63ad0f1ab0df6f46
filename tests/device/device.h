// device.h: the interfaces between the parts of the device library. One OS thread uses the
// library, so its state is one set of plain globals; ranks are processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel_abi.h"

struct CUstream_st;

namespace device {

enum Error {  // numbers of cuda.h
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_IMAGE = 200,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    UNKNOWN = 999,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    INVALID_CLUSTER_SIZE = 912
};

struct Switches {  // read from the environment when the library is loaded
    bool check, lazy, clock;
    unsigned seed;  // 0: no shuffling
    int arch, count, driver;  // driver: the CUDA that it is for, 13000 = 13.0
    int nccl, nccl_fails;     // its version; the collective at which it fails, 0: none
    size_t memory;
    double timeout;
    std::string compiler, traffic;  // traffic: a file for the bytes of each launch, or empty
    std::string collectives;        // a file for those that rank 0 makes, or empty
    std::string failing;            // the function of which a call fails
    int fails;                      // which one, counted from 1, 0: none
    bool stays;                     // so do all calls behind it, of any function
    std::string calls;              // a file for the names of calls, or empty
};
extern Switches switches;

// The first line of each function that a program may call: it fails, by the switches, without doing anything.
bool fails(const char *name);
#define MAY_FAIL(error) \
    if (fails(__func__)) return error
unsigned random_below(unsigned n);  // 0 while the seed is 0
template <class T> void shuffle(T *at, unsigned n) {
    if (switches.seed)
        for (unsigned k = n; k > 1; k--) std::swap(at[k - 1], at[random_below(k)]);
}

// Findings: one line each on stderr; the next synchronisation then fails for good.
void report(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
std::string source_line(const void *program_counter);
bool failed();
double seconds();

// ---- memory.cpp
constexpr size_t ALIGNMENT = 256;
struct Mark;
struct Allocation {
    uintptr_t address;
    size_t bytes;
    Mark *shadow;  // two per 4 bytes; only with the checker
};
int allocate(size_t bytes, uintptr_t *out);
int release(uintptr_t address);
const Allocation *find(uintptr_t address);  // the last one that starts at or below, or null
bool contains(uintptr_t address, size_t bytes);
void *allocate_pinned(size_t bytes);
bool release_pinned(void *memory);
const Allocation *find_pinned(uintptr_t address, size_t bytes);  // host memory with all these bytes, or null
size_t memory_in_use();

// ---- streams.cpp: operations with dependencies, done when ready
using Clock = std::vector<uint32_t>;  // per lane, the last operation known to be done
void join(Clock &into, const Clock &other);
struct Operation {
    std::function<void()> run;
    std::vector<std::shared_ptr<Operation>> waits_for;
    bool done = false;
    double ended = 0;  // seconds(), once it is done
    std::string what;
    Clock clock;      // the operations that happened before it, and itself
    uint32_t launch;  // number of the operation, for the checker
    struct Communicator *communicator = nullptr;
};
using OperationPointer = std::shared_ptr<Operation>;
extern Operation *current_operation;
struct Place {
    uint32_t lane, sequence;
};
Place place_of(uint32_t launch);
const char *name_of(uint32_t launch);
int submit(CUstream_st *stream, const std::string &what, std::function<void()> run,
           Communicator *communicator = nullptr);
void drain();
bool capturing();
extern bool hung;  // a kernel waits for a rank that is gone, until its communicator is aborted
bool graph_holds(const Communicator *communicator);
struct Communicator {  // as streams.cpp sees it: its collectives stay in order
    OperationPointer last;
};

// ---- executor.cpp
struct Function;
struct Module {
    void *library = nullptr;
    std::vector<Function *> functions;  // handed out
    std::vector<const dev_kernel *> kernels;
    char *shared_begin = nullptr, *shared_end = nullptr;  // static shared memory of all its kernels
    uintptr_t begin = 0, end = 0;
};
struct Function {
    const dev_kernel *kernel;
    Module *module;
    bool loaded = false;  // it has been on the device: at its first launch, or with its module
    size_t dynamic_limit = 48 << 10;
};
constexpr size_t SHARED_LIMIT = 232448;
constexpr unsigned THREADS_LIMIT = 1024;  // of a block, and of a cluster
constexpr unsigned CLUSTER_LIMIT = 8;     // blocks
struct Launch {
    const Function *function;
    unsigned grid[3], block[3];
    size_t dynamic_bytes;
    void **arguments;
    bool dependent;  // it may begin before the kernel in front of it has ended
};
void run_launch(const Launch &launch);
[[noreturn]] void
abandon_launch();     // called by a kernel's access: ends the launch
void wait_for_object();  // the running thread waits until objects in shared memory change, and looks again
void wake_objects();
void pass_barrier();  // the running thread is the last one at a barrier of its block
// Blocks of a cluster, by their numbers in it. The present block is that of the running thread, or one that it has
// entered.
unsigned present_block();
void enter_block(unsigned block);
bool has_block(unsigned block);          // it is there and has threads that have not ended
char *shared_of(unsigned block);         // its dynamic shared memory
unsigned block_of(unsigned thread);
unsigned blocks_at_once(), threads_at_once();  // those that run at the same time
std::string where();  // ", kernel k, block (0,0,0), thread (1,0,0)", or nothing outside of a kernel
extern Module *loading;

// ---- checker.cpp
#define DEV_OWN __attribute__((visibility("hidden")))  // reached without a table
struct Now {        // of the running thread, packed as the checker keeps it
    uint64_t who;   // launch, block: 32 bits each
    uint64_t when;  // barriers passed: 24 bits, those of its warp: 20, thread: 10, zeros: 10
    enum { THREAD = 10, WARP_BARRIER = 20, BARRIER = 40 };  // first bits
};
constexpr uint64_t BARRIER = ~0ull << Now::BARRIER, THREAD = 1023ull << Now::THREAD,
                   WARP = THREAD & ~(31ull << Now::THREAD),
                   WARP_BARRIER = (1ull << Now::BARRIER) - (1ull << Now::WARP_BARRIER);
inline bool in_order(uint64_t before, uint64_t when) {  // two accesses of one block
    uint64_t other = before ^ when;
    return !(other & THREAD) || before >> Now::BARRIER < when >> Now::BARRIER ||
           (!(other & WARP) && (before & WARP_BARRIER) < (when & WARP_BARRIER));
}
extern DEV_OWN Now running_now;
extern DEV_OWN bool is_early;  // the running thread may be beside the kernel in front of its own
void refuse_early();           // it touches global memory
constexpr size_t STACK_BYTES = 64 << 10;  // committed when touched
constexpr size_t STACKS_BYTES = STACK_BYTES * THREADS_LIMIT;
extern DEV_OWN uintptr_t stacks_begin;
void check_launch();                    // a kernel starts
void check_block(unsigned block);       // this one is the present one
void note_box(size_t bytes);            // a copy of a box has begun, to one block or to several
void note_traffic(const char *kernel);  // and has ended
Mark *new_shadow(size_t bytes, bool written = false);  // written: the host may have done so
void free_shadow(Mark *shadow, size_t bytes);
bool is_private(uintptr_t address);  // of the executor: stacks and indices
struct SharedArea {
    uintptr_t dynamic;
    size_t dynamic_bytes, dynamic_capacity;
    Module *module;
};
const SharedArea &shared_area();
void touch(uintptr_t address, size_t bytes, bool write);  // by a copy, a fill or a collective
void announce(uintptr_t address, size_t bytes, bool write, const void *counter);  // by the running thread
void unwritten(uintptr_t address, size_t bytes);  // of dynamic shared memory: a copy to it is under way
void arrive(uintptr_t address, size_t bytes, Now since, const void *counter);  // the copy that is under way since then

bool touched(uintptr_t address, size_t bytes);  // whether threads of this block read or wrote this shared memory

// ---- tensor.cpp
void forget_copies(unsigned threads);
void finish_copies();  // of the running thread, which ends
uintptr_t shared_place(unsigned address, size_t bytes, const char *what);  // of an address of PTX
inline float of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline float of_bf16(unsigned bits) {
    return of_bits(bits << 16);
}
// With the exponent 112 too small a float's bits are those of 16 bits, also below the normal ones; the top one is not finite.
inline float of_f16(unsigned bits) {
    const uint32_t size = (bits & 0x7fff) << 13, sign = (bits & 0x8000) << 16;
    if (size >= 31u << 23) return of_bits(sign | size | 255u << 23);
    return of_bits(sign | size) * 0x1p112f;
}

// ---- cluster.cpp
void forget_arrivals();
void finish_arrivals(bool last);  // the running thread ends, the last one of its block or not

// ---- barriers.cpp
void forget_barriers();

// ---- hopper.cpp
struct Moment {
    unsigned by;    // a thread, or THREADS_LIMIT + the number of an mbarrier: what its copies bring
    uint32_t time;  // of its own clock
    uint64_t when;  // barriers passed, as Now has them
};
Moment now();
bool is_before(const Moment &m);  // whether it came before what the running thread does now
void forget_groups(unsigned threads);
void finish_groups();  // of the running thread, which ends
void finish_boxes();   // of the present block, which ends
// A map as cuTensorMapEncodeTiled leaves it in its 128 bytes here; lengths in elements of 2 bytes.
struct Map {
    const char *base;
    uint64_t width, height, sheets, row_bytes, sheet_bytes;
    uint32_t box_width, box_height, swizzled, magic;
};
constexpr uint32_t MAP_MAGIC = 0x70616d74;
// Whether a box brought what the running thread reads at this offset of dynamic shared memory; notes that it does.
bool reads_box(size_t offset);
unsigned begin_box(unsigned to, const void *map, int column, int row, int sheet, unsigned object, const void *counter);
void meet(unsigned first, unsigned count);  // threads first .. first + count - 1 pass a barrier together

}  // namespace device
