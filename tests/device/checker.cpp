// checker.cpp: checks every memory access of a kernel while the checker is on. Kernels are compiled with the
// thread sanitizer's instrumentation; these are its hooks. Shadow memory records the last writer and the last
// readers of every four bytes.
//
// Two accesses of one launch are in order if one thread made them, if a barrier of their block lies
// between, or if they are in one warp with __syncwarp between. Two launches are in order if the
// streams, events and waits of the host say so. Anything else that overlaps and writes is a race.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "device.h"

namespace device {

struct Cell {
    uint32_t write_launch, write_block, write_barrier, write_warp;
    uint32_t read_launch, read_block, read_barrier, read_warp;
    uint16_t write_thread, read_thread;
    uint8_t write_mask, read_mask, readers, flags;  // masks: one bit per byte
};
static_assert(sizeof(Cell) == 40, "the shadow is ten times the memory");

namespace {

enum { NOBODY, ONE_THREAD, ONE_WARP, ONE_BLOCK, MANY_BLOCKS };  // Cell::readers
enum { INITIALISED = 15, ATOMIC = 16 };                         // Cell::flags
enum class Kind { read, write, atomic };

struct Access {
    Kind kind;
    bool global;
    const void *counter;  // program counter; null for copies
    Position at;
    uint32_t launch;
};

struct Checker {
    Cell *dynamic = nullptr, *fixed = nullptr;  // shadows of shared memory
    size_t fixed_bytes = 0;
    Allocation last{};
    std::set<std::pair<std::string, const void *>> reported;
    std::map<const void *, std::string> lines;
    uint32_t asked_launch = 0,
             asked_by = 0;  // the last answer of happened_before, kept because most questions repeat
    bool answer = false;
};
Checker &checker() {
    static Checker c;
    return c;
}

bool happened_before(uint32_t launch) {
    Checker &c = checker();
    uint32_t me = current_operation->launch;
    if (c.asked_launch == launch && c.asked_by == me) return c.answer;
    Place p = place_of(launch);
    const Clock &known = current_operation->clock;
    c.asked_launch = launch;
    c.asked_by = me;
    return c.answer = p.lane < known.size() && known[p.lane] >= p.sequence;
}

bool in_order(const Position &now, uint32_t barrier, uint32_t warp_barrier, unsigned thread) {
    return thread == now.thread || barrier < now.barrier ||
           (thread / 32 == now.thread / 32u && warp_barrier < now.warp_barrier);
}

// One report per kind and place; the place of a copy is its operation.
bool is_new(const char *kind, const Access &a) {
    const void *place = a.counter ? a.counter : (const void *)(uintptr_t)a.launch;
    return checker().reported.insert({kind, place}).second;
}

void report_race(const Access &a, const char *order, uint32_t launch, uint32_t block,
                 unsigned thread) {
    if (!is_new("race", a)) return;
    std::string line = a.counter ? " at " + source_line(a.counter) : "";
    if (launch != a.launch)
        report("race", "%s, %s and %s: no wait orders them%s%s", order, name_of(launch),
               name_of(a.launch), line.c_str(), where().c_str());
    else if (block != a.at.block)
        report("race", "%s in global memory, between blocks; the other is block %u%s%s", order,
               block, line.c_str(), where().c_str());
    else
        report("race", "%s in %s memory; the other is thread %u%s%s", order,
               a.global ? "global" : "shared", thread, line.c_str(), where().c_str());
}

// Reports a race of the last write with this access.
bool clashes_with_write(const Cell &c, const Access &a) {
    if (c.write_launch != a.launch)
        return a.global && c.write_launch && !happened_before(c.write_launch);
    if (a.kind == Kind::atomic && c.flags & ATOMIC) return false;
    if (c.write_block != a.at.block) return a.global;
    return !in_order(a.at, c.write_barrier, c.write_warp, c.write_thread);
}

// Reports a race of the last reads with this write.
bool clashes_with_reads(const Cell &c, const Access &a) {
    if (c.read_launch != a.launch)
        return a.global && c.read_launch && !happened_before(c.read_launch);
    if (c.read_block != a.at.block || c.readers == MANY_BLOCKS) return a.global;
    if (c.readers == ONE_THREAD) return !in_order(a.at, c.read_barrier, c.read_warp, c.read_thread);
    bool same_warp = c.readers == ONE_WARP && c.read_thread / 32 == a.at.thread / 32;
    return c.read_barrier >= a.at.barrier && !(same_warp && c.read_warp < a.at.warp_barrier);
}

void note_read(Cell &c, const Access &a, unsigned mask) {
    bool same_launch = c.read_launch == a.launch && c.read_mask;
    if (!same_launch)
        c.readers = ONE_THREAD;
    else if (c.read_block != a.at.block || c.readers == MANY_BLOCKS)
        c.readers = a.global ? MANY_BLOCKS : ONE_THREAD;
    else if (c.read_barrier < a.at.barrier)
        c.readers = ONE_THREAD;
    else if (c.read_thread / 32 != a.at.thread / 32)
        c.readers = ONE_BLOCK;
    else if (c.read_thread != a.at.thread && c.readers == ONE_THREAD)
        c.readers = ONE_WARP;
    c.read_mask = (uint8_t)(same_launch ? c.read_mask | mask : mask);
    c.read_launch = a.launch;
    c.read_block = a.at.block;
    c.read_barrier = a.at.barrier;
    c.read_warp = a.at.warp_barrier;
    c.read_thread = a.at.thread;
}

void note_write(Cell &c, const Access &a, unsigned mask) {
    bool same = c.write_launch == a.launch && c.write_block == a.at.block;
    if (!a.global && !same) c.flags = 0;  // shared memory of an earlier block
    bool again = same && c.write_thread == a.at.thread && c.write_barrier == a.at.barrier;
    c.write_mask = (uint8_t)(again ? c.write_mask | mask : mask);
    c.read_mask &= (uint8_t)~mask;
    c.flags = (uint8_t)((c.flags & INITIALISED) | mask | (a.kind == Kind::atomic ? ATOMIC : 0));
    c.write_launch = a.launch;
    c.write_block = a.at.block;
    c.write_barrier = a.at.barrier;
    c.write_warp = a.at.warp_barrier;
    c.write_thread = a.at.thread;
}

// Whether this read leaves the cell as it is: threads of several warps of this block have read all its bytes since
// the last barrier, and nobody has written since then.
bool is_known_read(const Cell &c, const Access &a, unsigned mask) {
    if (a.kind != Kind::read || c.read_launch != a.launch || c.read_block != a.at.block) return false;
    if (c.read_barrier != a.at.barrier || c.readers != ONE_BLOCK || (c.read_mask & mask) != mask) return false;
    return c.write_launch != a.launch || (c.write_block == a.at.block && c.write_barrier < a.at.barrier);
}

void check_cell(Cell &c, const Access &a, unsigned mask) {
    if (is_known_read(c, a, mask)) return;
    bool fresh = !a.global && (c.write_launch != a.launch || c.write_block != a.at.block);
    unsigned initialised = fresh ? 0 : c.flags & INITIALISED;
    bool uninitialised = a.kind != Kind::write && (initialised & mask) != mask;
    if (uninitialised && a.counter &&
        is_new("uninitialised", a))  // a copy may include gaps
        report("uninitialised read", "%s memory at %s%s", a.global ? "global" : "shared",
               source_line(a.counter).c_str(), where().c_str());
    if (c.write_mask & mask && clashes_with_write(c, a))
        report_race(a, a.kind == Kind::read ? "read after write" : "write after write",
                    c.write_launch, c.write_block, c.write_thread);
    else if (a.kind != Kind::read && c.read_mask & mask && clashes_with_reads(c, a))
        report_race(a, "write after read", c.read_launch, c.read_block, c.read_thread);
    if (a.kind == Kind::read)
        note_read(c, a, mask);
    else
        note_write(c, a, mask);
}

void check_cells(Cell *cells, size_t offset, size_t bytes, const Access &a) {
    for (size_t at = offset; at < offset + bytes;) {
        size_t first = at % 4, last = std::min<size_t>(4, first + (offset + bytes - at));
        check_cell(cells[at / 4], a, (1u << last) - (1u << first));
        at += last - first;
    }
}

[[noreturn]] void fail_access(const char *kind, const std::string &text, const void *counter) {
    report(kind, "%s at %s%s", text.c_str(), source_line(counter).c_str(), where().c_str());
    abandon_launch();
}

const Allocation *allocation_of(uintptr_t address, size_t bytes) {
    Allocation &last = checker().last;
    if (address < last.address || address + bytes > last.address + last.bytes) {
        if (!contains(address, bytes)) return nullptr;
        last = *find(address);
    }
    return &last;
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

void check_access(uintptr_t address, size_t bytes, Kind kind, const void *counter) {
    if (!dev_current || is_private(address)) return;
    const SharedArea &s = shared_area();
    Access a = {kind, false, counter, position(), current_operation->launch};
    size_t offset = address - s.dynamic;
    if (offset < s.dynamic_capacity) {
        if (offset + bytes > s.dynamic_bytes)
            fail_access("out of bounds",
                        "dynamic shared memory, byte " + std::to_string(offset) + " of " +
                            std::to_string(s.dynamic_bytes),
                        counter);
        if (!checker().dynamic) checker().dynamic = new_shadow(s.dynamic_capacity);
        return check_cells(checker().dynamic, offset, bytes, a);
    }
    const Module &m = *s.module;
    offset = address - (uintptr_t)m.shared_begin;
    size_t fixed = (size_t)(m.shared_end - m.shared_begin);
    if (offset < fixed) {
        if (fixed > checker().fixed_bytes) {
            free_shadow(checker().fixed, checker().fixed_bytes);
            checker().fixed = new_shadow(fixed);
            checker().fixed_bytes = fixed;
        }
        return check_cells(checker().fixed, offset, bytes, a);
    }
    if (const Allocation *g = allocation_of(address, bytes)) {
        a.global = true;
        return check_cells(g->shadow, address - g->address, bytes, a);
    }
    if (address < m.begin || address >= m.end)  // a table or a variable of the module
        fail_global(address, bytes, kind != Kind::read, counter);
}

}  // namespace

Cell *new_shadow(size_t bytes) {
    void *p = mmap(nullptr, (bytes / 4 + 1) * sizeof(Cell), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : (Cell *)p;
}

void free_shadow(Cell *cells, size_t bytes) {
    checker().last = {};
    if (cells) munmap(cells, (bytes / 4 + 1) * sizeof(Cell));
}

void touch(uintptr_t address, size_t bytes, bool write) {
    const Allocation *g = switches.check && bytes ? allocation_of(address, bytes) : nullptr;
    if (!g) return;
    Access a = {
        write ? Kind::write : Kind::read, true, nullptr, {~0u, 0, 0, 0}, current_operation->launch};
    check_cells(g->shadow, address - g->address, bytes, a);
}

std::string source_line(const void *counter) {
    Dl_info info;
    auto known = checker().lines.find(counter);
    if (known != checker().lines.end()) return known->second;
    if (!dladdr(counter, &info)) return "an unknown place";
    char command[600], line[300] = "";
    snprintf(command, sizeof command, "addr2line -s -e '%s' %#zx 2>/dev/null", info.dli_fname,
             (size_t)((const char *)counter - (const char *)info.dli_fbase - 1));
    if (FILE *p = popen(command, "r")) {
        if (!fgets(line, sizeof line, p)) line[0] = 0;
        pclose(p);
    }
    line[strcspn(line, " \n")] = 0;
    return checker().lines[counter] = line;
}

}  // namespace device

using namespace device;

void dev_atomic(void *address, unsigned bytes) {
    if (switches.check)
        check_access((uintptr_t)address, bytes, Kind::atomic, __builtin_return_address(0));
}

// ---- functions that g++ calls with -fsanitize=thread and -fsanitize=alignment,bounds
#define COUNTER __builtin_return_address(0)
#define READ(p, n) check_access((uintptr_t)(p), n, Kind::read, COUNTER)
#define WRITE(p, n) check_access((uintptr_t)(p), n, Kind::write, COUNTER)
#define HOOKS(n)                              \
    void __tsan_read##n(void *p) {            \
        READ(p, n);                           \
    }                                         \
    void __tsan_write##n(void *p) {           \
        WRITE(p, n);                          \
    }                                         \
    void __tsan_unaligned_read##n(void *p) {  \
        READ(p, n);                           \
    }                                         \
    void __tsan_unaligned_write##n(void *p) { \
        WRITE(p, n);                          \
    }
extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, unsigned long n) {
    READ(p, n);
}
void __tsan_write_range(void *p, unsigned long n) {
    WRITE(p, n);
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
    report("out of bounds", "index %ld of an array at %s:%u%s", (long)index, m->at.file, m->at.line,
           where().c_str());
    abandon_launch();
}
}
