// checker.cpp: checks every memory access of a kernel while the checker is on. Kernels are compiled with the
// thread sanitizer's instrumentation; these are its hooks. Shadow memory records the last writer and the last
// readers of every four bytes.
//
// Two accesses of one launch are in order if one thread made them, if a barrier of their block lies
// between, or if they are in one warp with __syncwarp between. Two launches are in order if the
// streams, events and waits of the host say so. Anything else that overlaps and writes is a race.
//
// Half of a checked run is spent here, most of it with accesses that change nothing: leaves_it() finds them.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include "device.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define NEVER_INLINE __attribute__((noinline))

namespace device {

// The last write or the last reads of four bytes: who and when, as Now has them. The lowest ten bits of `when` are a
// mask, one bit per byte, and the bits below. The shadow of a memory is all its writes, then all its reads: reads that
// change nothing, most accesses, see the second half only.
struct Mark {
    uint64_t who, when;
};

namespace {

struct Cell {
    Mark &write, &read;
};

enum : uint64_t {  // bits of Mark::when
    BYTES = 15,
    INITIALISED = BYTES << 4,  // write: one bit per byte
    ATOMIC = 1 << 8,
    READERS = 7 << 4,  // read
    SETTLED = 1 << 7,  // no read of one thread, warp, block or launch, as the readers are, clashes with the last write
    FOUND = 1 << 8,    // something was reported: every access is checked
};
enum Readers { NOBODY, ONE_THREAD, ONE_WARP, ONE_BLOCK, MANY_BLOCKS };
enum class Kind { read, write, atomic };

constexpr uint64_t LAUNCH = ~0ull << 32;

// Bits of the last reads that must be those of the running thread, FOUND not set and SETTLED set, so that
// one more read by it leaves the cell as it is. By readers.
constexpr struct {
    uint64_t who, when;
} SAME_READERS[8] = {{~0ull, ~0ull},
                     {~0ull, BARRIER | WARP_BARRIER | THREAD | FOUND},
                     {~0ull, BARRIER | WARP_BARRIER | WARP | FOUND | SETTLED},
                     {~0ull, BARRIER | FOUND | SETTLED},
                     {LAUNCH, FOUND | SETTLED}};

size_t cells_of(size_t bytes) {
    return bytes / 4 + 1;
}

struct Area {  // of memory with a shadow
    uintptr_t begin;
    size_t bytes;
    Mark *writes, *reads;
    size_t room[5];  // [n]: offsets below are of accesses of 1 << n bytes that end in it
};
Area area_of(uintptr_t begin, size_t bytes, Mark *shadow) {
    Area a = {begin, bytes, shadow, shadow + cells_of(bytes), {}};
    for (size_t n = 0; n < 5; n++) a.room[n] = bytes >> n ? bytes - (1u << n) + 1 : 0;
    return a;
}

struct Checker {
    Mark *dynamic[CLUSTER_LIMIT] = {}, *fixed = nullptr;  // shadows of shared memory
    size_t fixed_bytes = 0;
    std::set<std::pair<std::string, const void *>> reported;
};
Checker &checker() {
    static Checker c;
    return c;
}

// Of the present launch: static and dynamic shared memory, and by address the areas of global memory last used.
// Between allocations lies more than a page, so that a page is of one area.
constexpr unsigned PAGES = 256;
Area fixed_area, dynamic_area, pages[PAGES];
Area &page_of(uintptr_t address) {
    return pages[address >> 12 & (PAGES - 1)];
}

// Whether all of an operation happened before the running one. Answers are kept: most questions repeat.
struct {
    uint32_t by;
    uint32_t before[64];
} answers;
bool happened_before(uint32_t launch) {
    uint32_t me = current_operation->launch, &known = answers.before[launch % 64];
    if (answers.by != me) {
        answers = {};
        answers.by = me;
    }
    if (known == launch) return true;
    Place p = place_of(launch);
    const Clock &clock = current_operation->clock;
    if (p.lane >= clock.size() || clock[p.lane] < p.sequence) return false;
    known = launch;
    return true;
}

// Bytes of global memory that the present launch reads and writes, each counted once; bytes that boxes bring.
struct {
    uint64_t read, written, boxes;
} traffic;

// How many of these bytes the launch had not touched before; `mark`: the last accesses of their kind.
unsigned fresh_bytes(Mark mark, Now now, uint64_t mask) {
    return (unsigned)__builtin_popcountll((mark.who ^ now.who) & LAUNCH ? mask : mask & ~mark.when);
}

// One report per kind and place; the place of a copy is its operation.
bool is_new(const char *kind, Now now, const void *counter) {
    const void *place = counter ? counter : (const void *)(uintptr_t)(now.who >> 32);
    return checker().reported.insert({kind, place}).second;
}

void report_race(Now now, const void *counter, bool global, const char *order, uint64_t who, uint64_t when) {
    if (!is_new("race", now, counter)) return;
    std::string line = counter ? " at " + source_line(counter) : "";
    uint32_t launch = (uint32_t)(who >> 32), block = (uint32_t)who, thread = (uint32_t)((when & THREAD) >> Now::THREAD);
    if (launch != now.who >> 32)
        report("race", "%s, %s and %s: no wait orders them%s%s", order, name_of(launch),
               name_of((uint32_t)(now.who >> 32)), line.c_str(), where().c_str());
    else if (block != (uint32_t)now.who)
        report("race", "%s in global memory, between blocks; the other is block %u%s%s", order,
               block, line.c_str(), where().c_str());
    else
        report("race", "%s in %s memory; the other is thread %u%s%s", order,
               global ? "global" : "shared", thread, line.c_str(), where().c_str());
}

// Whether the last write and this access are a race.
template <bool global> ALWAYS_INLINE bool clashes_with_write(Cell c, Kind kind, Now now) {
    uint64_t other = c.write.who ^ now.who;
    if (other & LAUNCH) return global && c.write.who >> 32 && !happened_before((uint32_t)(c.write.who >> 32));
    if (kind == Kind::atomic && c.write.when & ATOMIC) return false;
    if (other) return global;
    return !in_order(c.write.when, now.when);
}

// Whether the last reads and this write are a race.
template <bool global> ALWAYS_INLINE bool clashes_with_reads(Cell c, Now now) {
    uint64_t other = c.read.who ^ now.who, readers = (c.read.when & READERS) >> 4;
    if (other & LAUNCH) return global && c.read.who >> 32 && !happened_before((uint32_t)(c.read.who >> 32));
    if (other || readers == MANY_BLOCKS) return global;
    if (readers == ONE_THREAD) return !in_order(c.read.when, now.when);
    bool same_warp = readers == ONE_WARP && !((c.read.when ^ now.when) & WARP);
    return c.read.when >> Now::BARRIER >= now.when >> Now::BARRIER &&
           !(same_warp && (c.read.when & WARP_BARRIER) < (now.when & WARP_BARRIER));
}

// Whether the last write is in order with all of these readers: another launch wrote, or their block did in front of
// its last barrier.
template <bool global> ALWAYS_INLINE bool is_settled(Cell c, uint64_t readers, Now now) {
    if ((c.write.who ^ now.who) & LAUNCH) return !clashes_with_write<global>(c, Kind::read, now);
    return readers != MANY_BLOCKS && c.write.who == now.who && c.write.when >> Now::BARRIER < now.when >> Now::BARRIER;
}

template <bool global> ALWAYS_INLINE void note_read(Cell c, Now now, uint64_t mask, bool found) {
    uint64_t other = c.read.who ^ now.who, readers = (c.read.when & READERS) >> 4;
    uint64_t bits = mask | (c.read.when & (BYTES | FOUND));
    if (global) traffic.read += fresh_bytes(c.read, now, mask);
    if (other & LAUNCH || !(c.read.when & BYTES) || (!global && other))
        readers = ONE_THREAD, bits = mask;
    else if (other || readers == MANY_BLOCKS)
        readers = MANY_BLOCKS;
    else if (c.read.when >> Now::BARRIER < now.when >> Now::BARRIER)
        readers = ONE_THREAD;
    else if ((c.read.when ^ now.when) & WARP)
        readers = ONE_BLOCK;
    else if ((c.read.when ^ now.when) & THREAD && readers == ONE_THREAD)
        readers = ONE_WARP;
    if (found)
        bits |= FOUND;
    else if (is_settled<global>(c, readers, now))
        bits |= SETTLED;
    c.read.who = now.who;
    c.read.when = now.when | readers << 4 | bits;
}

template <bool global> ALWAYS_INLINE void note_write(Cell c, Now now, uint64_t mask, bool atomic) {
    bool same = c.write.who == now.who;
    if (global) traffic.written += fresh_bytes(c.write, now, mask);
    uint64_t bits = mask | mask << 4 | (atomic ? (uint64_t)ATOMIC : 0);
    if (global || same) bits |= c.write.when & INITIALISED;  // shared memory of an earlier block is not initialised
    if (same && !((c.write.when ^ now.when) & (THREAD | BARRIER))) bits |= c.write.when & BYTES;
    c.read.when &= ~(mask | SETTLED);
    c.write.who = now.who;
    c.write.when = now.when | bits;
}

template <bool global> NEVER_INLINE void report_uninitialised(Now now, const void *counter) {
    if (is_new("uninitialised", now, counter))
        report("uninitialised read", "%s memory at %s%s", global ? "global" : "shared",
               source_line(counter).c_str(), where().c_str());
}

template <bool global, Kind kind>
NEVER_INLINE void check_cell(Cell c, uint64_t mask, Now now, const void *counter) {
    bool found = false, fresh = !global && c.write.who != now.who;
    if (fresh && kind == Kind::read && reads_box((size_t)(&c.write - dynamic_area.writes) * 4)) return;
    if (kind != Kind::write && counter && (fresh || mask << 4 & ~c.write.when)) {  // a copy may include gaps
        found = true;
        report_uninitialised<global>(now, counter);
    }
    if (c.write.when & mask && clashes_with_write<global>(c, kind, now)) {
        found = true;
        report_race(now, counter, global, kind == Kind::read ? "read after write" : "write after write", c.write.who,
                    c.write.when);
    } else if (kind != Kind::read && c.read.when & mask && clashes_with_reads<global>(c, now))
        report_race(now, counter, global, "write after read", c.read.who, c.read.when);
    if (kind == Kind::read)
        note_read<global>(c, now, mask, found);
    else
        note_write<global>(c, now, mask, kind == Kind::atomic);
}

// Whether an access of these bytes leaves the cell as it is: the same thread, or another one of all that have read
// them, was here, found nothing, and nobody has written since.
template <Kind kind> ALWAYS_INLINE bool leaves_it(Cell c, uint64_t mask, Now now) {
    if (kind == Kind::atomic) return false;
    if (kind == Kind::write)
        return c.write.who == now.who && (c.write.when & ~(BYTES | INITIALISED)) == now.when &&
               !((mask | mask << 4) & ~c.write.when) && !(c.read.when & mask);
    auto same = SAME_READERS[(c.read.when & READERS) >> 4];
    uint64_t when = c.read.when;
    return !(((c.read.who ^ now.who) & same.who) | ((when ^ (now.when | SETTLED)) & same.when) | (mask & ~when));
}

template <bool global, Kind kind>
ALWAYS_INLINE void check_one(Cell c, uint64_t mask, Now now, const void *counter) {
    if (!leaves_it<kind>(c, mask, now)) check_cell<global, kind>(c, mask, now, counter);
}

template <bool global, Kind kind>
void check_cells(const Area &area, size_t offset, size_t bytes, Now now, const void *counter) {
    for (size_t at = offset; at < offset + bytes;) {
        size_t first = at % 4, last = std::min<size_t>(4, first + (offset + bytes - at));
        check_one<global, kind>({area.writes[at / 4], area.reads[at / 4]}, (1u << last) - (1u << first), now, counter);
        at += last - first;
    }
}

[[noreturn]] void fail_access(const char *kind, const std::string &text, const void *counter) {
    report(kind, "%s at %s%s", text.c_str(), source_line(counter).c_str(), where().c_str());
    abandon_launch();
}

// The area of these bytes, which is kept, or null.
Area *allocated_area(uintptr_t address, size_t bytes) {
    const Allocation *a = contains(address, bytes) ? find(address) : find_pinned(address, bytes);
    if (!a) return nullptr;
    Area &area = page_of(address);
    area = area_of(a->address, a->bytes, a->shadow);
    return &area;
}

[[noreturn]] void fail_global(uintptr_t address, size_t bytes, bool write, const void *counter) {
    const Allocation *a = find(address);
    char text[160];
    if (a)
        snprintf(
            text, sizeof text, "%s of %zu bytes, %zu bytes after the end of an allocation of %zu",
            write ? "write" : "read", bytes, (size_t)(address - a->address - a->bytes), a->bytes);
    else
        snprintf(text, sizeof text, "%s of %zu bytes in front of all allocations",
                 write ? "write" : "read", bytes);
    fail_access("out of bounds", text, counter);
}

// An access that the areas at hand do not hold.
template <Kind kind> NEVER_INLINE void check_elsewhere(uintptr_t address, size_t bytes, const void *counter) {
    if (!dev_current || is_private(address)) return;
    const SharedArea &s = shared_area();
    size_t offset = address - s.dynamic;
    if (offset < s.dynamic_capacity) {
        if (offset + bytes > s.dynamic_bytes)
            fail_access("out of bounds",
                        "dynamic shared memory, byte " + std::to_string(offset) + " of " +
                            std::to_string(s.dynamic_bytes),
                        counter);
        return check_cells<false, kind>(dynamic_area, offset, bytes, running_now, counter);
    }
    offset = address - fixed_area.begin;
    if (offset < fixed_area.bytes && blocks_at_once() > 1)
        fail_access("cluster", "a __shared__ array, which is one for all blocks of a cluster here,", counter);
    if (offset < fixed_area.bytes)
        return check_cells<false, kind>(fixed_area, offset, bytes, running_now, counter);
    if (is_early) refuse_early();
    if (Area *g = allocated_area(address, bytes))
        return check_cells<true, kind>(*g, address - g->begin, bytes, running_now, counter);
    if (address < s.module->begin || address >= s.module->end)  // a table or a variable of the module
        fail_global(address, bytes, kind != Kind::read, counter);
}

// The cells of 1 << log bytes from `offset` on.
template <bool global, Kind kind, unsigned log>
ALWAYS_INLINE void check_aligned(const Area &area, size_t offset, const void *counter) {
    constexpr size_t bytes = 1u << log;
    if (global && is_early) refuse_early();
    Mark *write = &area.writes[offset / 4], *read = &area.reads[offset / 4];
    if (bytes >= 4 && offset % 4 == 0)
        for (size_t i = 0; i < bytes / 4; i++)
            check_one<global, kind>({write[i], read[i]}, BYTES, running_now, counter);
    else if (bytes < 4 && offset % bytes == 0)
        check_one<global, kind>({*write, *read}, ((1u << bytes) - 1) << offset % 4, running_now, counter);
    else
        check_cells<global, kind>(area, offset, bytes, running_now, counter);
}

template <Kind kind, unsigned log> ALWAYS_INLINE void check_access(uintptr_t address, const void *counter) {
    if (address - stacks_begin < STACKS_BYTES) return;
    size_t offset = address - fixed_area.begin;
    if (offset < fixed_area.room[log]) return check_aligned<false, kind, log>(fixed_area, offset, counter);
    const Area &g = page_of(address);
    offset = address - g.begin;
    if (offset < g.room[log]) return check_aligned<true, kind, log>(g, offset, counter);
    offset = address - dynamic_area.begin;
    if (offset < dynamic_area.room[log]) return check_aligned<false, kind, log>(dynamic_area, offset, counter);
    check_elsewhere<kind>(address, 1u << log, counter);
}

Cell dynamic_cell(uintptr_t address) {
    const size_t cell = (address - dynamic_area.begin) / 4;
    return {dynamic_area.writes[cell], dynamic_area.reads[cell]};
}

}  // namespace

void announce(uintptr_t address, size_t bytes, bool write, const void *counter) {
    if (!switches.check || bytes == 0) return;
    if (write)
        check_elsewhere<Kind::write>(address, bytes, counter);
    else
        check_elsewhere<Kind::read>(address, bytes, counter);
}

void unwritten(uintptr_t address, size_t bytes) {
    if (!switches.check) return;
    for (size_t at = 0; at < bytes; at += 4) dynamic_cell(address + at).write.when &= ~INITIALISED;
}

void arrive(uintptr_t address, size_t bytes, Now since, const void *counter) {
    if (!switches.check) return;
    for (size_t at = 0; at < bytes; at += 4) {
        Cell c = dynamic_cell(address + at);
        if (c.write.who == since.who && (c.write.when & ~BYTES) == since.when) continue;
        report_race(running_now, counter, false, "write to where a copy is under way", c.write.who, c.write.when);
        break;
    }
    announce(address, bytes, true, counter);
}

bool touched(uintptr_t address, size_t bytes) {
    for (size_t at = 0; switches.check && at < bytes; at += 4) {
        const Cell c = dynamic_cell(address + at);
        if (c.write.who == running_now.who || c.read.who == running_now.who) return true;
    }
    return false;
}

Mark *new_shadow(size_t bytes, bool written) {
    void *p = mmap(nullptr, 2 * cells_of(bytes) * sizeof(Mark), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Mark *marks = p == MAP_FAILED ? nullptr : (Mark *)p;
    for (size_t i = 0; marks && written && i < cells_of(bytes); i++) marks[i].when = INITIALISED;
    return marks;
}

void free_shadow(Mark *shadow, size_t bytes) {
    for (Area &page : pages) page = {};
    if (shadow) munmap(shadow, 2 * cells_of(bytes) * sizeof(Mark));
}

void check_launch() {
    traffic = {};
    Checker &c = checker();
    const SharedArea &s = shared_area();
    size_t fixed = (size_t)(s.module->shared_end - s.module->shared_begin);
    if (fixed > c.fixed_bytes) {
        free_shadow(c.fixed, c.fixed_bytes);
        c.fixed = new_shadow(fixed);
        c.fixed_bytes = fixed;
    }
    fixed_area = area_of((uintptr_t)s.module->shared_begin, fixed, c.fixed);
    if (blocks_at_once() > 1) memset(fixed_area.room, 0, sizeof fixed_area.room);
}

void check_block(unsigned block) {
    Mark *&shadow = checker().dynamic[block];
    if (!shadow) shadow = new_shadow(SHARED_LIMIT);
    dynamic_area = area_of(shared_area().dynamic, shared_area().dynamic_bytes, shadow);
}

void note_box(size_t bytes) {
    traffic.boxes += bytes;
}

void note_traffic(const char *kernel) {
    FILE *f = switches.traffic.empty() ? nullptr : fopen(switches.traffic.c_str(), "a");
    if (!f) return;
    fprintf(f, "%s %llu %llu %llu\n", kernel, (unsigned long long)traffic.read, (unsigned long long)traffic.written,
            (unsigned long long)traffic.boxes);
    fclose(f);
}

void touch(uintptr_t address, size_t bytes, bool write) {
    Area *g = switches.check && bytes ? allocated_area(address, bytes) : nullptr;
    if (!g) return;
    Now now = {(uint64_t)current_operation->launch << 32 | ~0u, 0};
    if (write)
        check_cells<true, Kind::write>(*g, address - g->begin, bytes, now, nullptr);
    else
        check_cells<true, Kind::read>(*g, address - g->begin, bytes, now, nullptr);
}

}  // namespace device

using namespace device;

// ---- functions that g++ calls with -fsanitize=thread and -fsanitize=alignment,bounds
#define COUNTER __builtin_return_address(0)
#define HOOKS(n, log)                                                 \
    void __tsan_read##n(void *p) {                                    \
        check_access<Kind::read, log>((uintptr_t)p, COUNTER);         \
    }                                                                 \
    void __tsan_write##n(void *p) {                                   \
        check_access<Kind::write, log>((uintptr_t)p, COUNTER);        \
    }                                                                 \
    void __tsan_unaligned_read##n(void *p) {                          \
        check_access<Kind::read, log>((uintptr_t)p, COUNTER);         \
    }                                                                 \
    void __tsan_unaligned_write##n(void *p) {                         \
        check_access<Kind::write, log>((uintptr_t)p, COUNTER);        \
    }
extern "C" {
HOOKS(1, 0)
HOOKS(2, 1)
HOOKS(4, 2)
HOOKS(8, 3)
HOOKS(16, 4)
void __tsan_read_range(void *p, unsigned long n) {
    check_elsewhere<Kind::read>((uintptr_t)p, n, COUNTER);
}
void __tsan_write_range(void *p, unsigned long n) {
    check_elsewhere<Kind::write>((uintptr_t)p, n, COUNTER);
}
void dev_atomic(void *address, unsigned bytes) {
    if (switches.check) check_elsewhere<Kind::atomic>((uintptr_t)address, bytes, COUNTER);
}
void __tsan_init() {
}
void __tsan_func_entry(void *) {
}
void __tsan_func_exit() {
}

struct SourceLocation {
    const char *file;
    unsigned line, column;
};
struct TypeMismatch {
    SourceLocation at;
    void *type;
    unsigned char log_alignment, kind;
};
struct OutOfBounds {
    SourceLocation at;
    void *array_type, *index_type;
};

void __ubsan_handle_type_mismatch_v1(TypeMismatch *m, uintptr_t p) {
    unsigned alignment = 1u << m->log_alignment;
    if (!(p & (alignment - 1))) return;
    report("misaligned", "an address that ends in %#zx is not a multiple of %u at %s:%u%s",
           (size_t)(p & 255), alignment, m->at.file, m->at.line, where().c_str());
    abandon_launch();
}

void __ubsan_handle_out_of_bounds(OutOfBounds *m, uintptr_t index) {
    report("out of bounds", "index %ld of an array at %s:%u%s", (long)index, m->at.file, m->at.line, where().c_str());
    abandon_launch();
}
}
