// memory.cpp: device and pinned host memory, filled with NaNs when allocated.
#include <cstdlib>
#include <cstring>
#include <map>

#include "device.h"

namespace device {
namespace {

constexpr size_t MARGIN =
    4096;  // after each allocation, so that a stray access hits no other

struct Memory {
    std::map<uintptr_t, Allocation> allocations;
    std::map<uintptr_t, Allocation> pinned;
    size_t in_use = 0;
};
Memory &memory() {
    static Memory m;
    return m;
}

}  // namespace

int allocate(size_t bytes, uintptr_t *out) {
    void *p = nullptr;
    if (bytes > switches.memory - memory().in_use || posix_memalign(&p, ALIGNMENT, bytes + MARGIN))
        return OUT_OF_MEMORY;
    memset(p, 0xff, bytes);
    *out = (uintptr_t)p;
    memory().in_use += bytes;
    memory().allocations[*out] = {*out, bytes, switches.check ? new_shadow(bytes) : nullptr};
    return SUCCESS;
}

int release(uintptr_t address) {
    auto at = memory().allocations.find(address);
    if (at == memory().allocations.end()) return INVALID_VALUE;
    free_shadow(at->second.shadow, at->second.bytes);
    memory().in_use -= at->second.bytes;
    memory().allocations.erase(at);
    free((void *)address);
    return SUCCESS;
}

const Allocation *find(uintptr_t address) {
    auto at = memory().allocations.upper_bound(address);
    return at == memory().allocations.begin() ? nullptr : &(--at)->second;
}

bool contains(uintptr_t address, size_t bytes) {
    const Allocation *a = find(address);
    return a && address - a->address <= a->bytes && bytes <= a->bytes - (address - a->address);
}

void *allocate_pinned(size_t bytes) {
    void *p = nullptr;
    if (posix_memalign(&p, ALIGNMENT, bytes + MARGIN)) return nullptr;
    memset(p, 0xff, bytes);
    memory().pinned[(uintptr_t)p] = {(uintptr_t)p, bytes, switches.check ? new_shadow(bytes, true) : nullptr};
    return p;
}

bool release_pinned(void *p) {
    auto at = memory().pinned.find((uintptr_t)p);
    if (at == memory().pinned.end()) return false;
    free_shadow(at->second.shadow, at->second.bytes);
    memory().pinned.erase(at);
    free(p);
    return true;
}

const Allocation *find_pinned(uintptr_t address, size_t bytes) {
    auto at = memory().pinned.upper_bound(address);
    if (at == memory().pinned.begin()) return nullptr;
    const Allocation &a = (--at)->second;
    return address - a.address <= a.bytes && bytes <= a.bytes - (address - a.address) ? &a : nullptr;
}

size_t memory_in_use() {
    return memory().in_use;
}

}  // namespace device
