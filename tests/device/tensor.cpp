// tensor.cpp: copies beside a kernel, fragments and products of a warp, as PTX describes them. A copy lands as late as
// it may: when its thread waits for it, or ends. Until then NaNs lie there, which the checker takes as unwritten.
#include <cmath>
#include <cstring>

#include "device.h"

namespace device {
namespace {

struct Copy {
    uintptr_t to;
    const void *from;
    size_t there;  // bytes; zeros for the rest of COPY
    Now since;
    const void *counter;
};
constexpr size_t COPY = 16;

struct Copies {  // of a thread
    std::vector<std::vector<Copy>> groups;  // committed, the oldest first
    std::vector<Copy> open;
};
Copies copies[THREADS_LIMIT];

uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void land(const std::vector<Copy> &group) {
    for (const Copy &c : group) {
        arrive(c.to, COPY, c.since, c.counter);
        memset((void *)c.to, 0, COPY);
        memcpy((void *)c.to, c.from, c.there);
    }
}

void serve_matrices(void **records, bool turned) {
    unsigned short tile[4][8][8];
    for (int l = 0; l < 32; l++)
        memcpy(tile[l / 8][l % 8],
               (void *)shared_place(((dev_matrices_record *)records[l])->row, sizeof tile[0][0], "ldmatrix"),
               sizeof tile[0][0]);
    for (int l = 0; l < 32; l++)
        for (int q = 0; q < 4; q++) {
            const int row = l / 4, column = l % 4 * 2;
            const unsigned low = turned ? tile[q][column][row] : tile[q][row][column];
            const unsigned high = turned ? tile[q][column + 1][row] : tile[q][row][column + 1];
            ((dev_matrices_record *)records[l])->out[q] = low | high << 16;
        }
}

// Eight columns of a product. Sums of a column have their own order in each lane, so the bits are those of plain loops.
typedef float Columns __attribute__((vector_size(32)));

// Lane l has rows l / 4 and l / 4 + 8 of a and d, columns l % 4 * 2 and the one behind of d; of b it has column l / 4.
template <float (*widen)(unsigned)> void serve_product(void **records) {
    float a[16][16];
    Columns b[16];
    for (int l = 0; l < 32; l++) {
        const auto *r = (dev_product_record *)records[l];
        const int g = l / 4, t = l % 4 * 2;
        for (int e = 0; e < 2; e++) {
            auto half = [&](unsigned pair) { return widen(pair >> 16 * e & 0xffff); };
            a[g][t + e] = half(r->a[0]), a[g + 8][t + e] = half(r->a[1]);
            a[g][t + 8 + e] = half(r->a[2]), a[g + 8][t + 8 + e] = half(r->a[3]);
            b[t + e][g] = half(r->b[0]), b[t + 8 + e][g] = half(r->b[1]);
        }
    }
    for (int i = 0; i < 16; i++) {
        Columns sums = {};
        for (int k = 0; k < 16; k++) sums += a[i][k] * b[k];
        for (int j = 0; j < 8; j++) ((dev_product_record *)records[i % 8 * 4 + j / 2])->d[i / 8 * 2 + j % 2] += sums[j];
    }
}

}  // namespace

uintptr_t shared_place(unsigned address, size_t bytes, const char *what) {
    const SharedArea &s = shared_area();
    if (address % bytes) report("misaligned", "%s of %zu bytes at byte %u%s", what, bytes, address, where().c_str());
    if (address + bytes <= s.dynamic_bytes) return s.dynamic + address;
    report("out of bounds", "%s: dynamic shared memory, byte %u of %zu%s", what, address, s.dynamic_bytes,
           where().c_str());
    abandon_launch();
}

void forget_copies(unsigned threads) {
    for (unsigned i = 0; i < threads; i++) copies[i] = {};
}

void finish_copies() {
    Copies &c = copies[dev_current->linear];
    for (const auto &group : c.groups) land(group);
    land(c.open);
}

}  // namespace device

using namespace device;

unsigned dev_shared_address(const void *p) {
    const SharedArea &s = shared_area();
    const size_t offset = (uintptr_t)p - s.dynamic;
    if (offset < s.dynamic_bytes) return (unsigned)offset;
    report("out of bounds", "an address that is not in dynamic shared memory is converted%s", where().c_str());
    abandon_launch();
}

void dev_copy_async(unsigned to, const void *from, int bytes, int there) {
    const void *counter = __builtin_return_address(0);
    const uintptr_t place = shared_place(to, COPY, "cp.async");
    if (bytes != (int)COPY || there < 0 || there > bytes || (uintptr_t)from % COPY)
        report("misaligned", "cp.async of %d of %d bytes from an address that ends in %#zx%s", there, bytes,
               (size_t)((uintptr_t)from & 255), where().c_str());
    announce((uintptr_t)from, (size_t)there, false, counter);
    announce(place, COPY, true, counter);
    unwritten(place, COPY);
    memset((void *)place, 0xff, COPY);
    copies[dev_current->linear].open.push_back({place, from, (size_t)there, running_now, counter});
}

void dev_copy_commit(void) {
    Copies &c = copies[dev_current->linear];
    c.groups.push_back(std::move(c.open));
    c.open = {};
}

void dev_copy_wait(int groups) {
    Copies &c = copies[dev_current->linear];
    while ((int)c.groups.size() > groups) {
        land(c.groups.front());
        c.groups.erase(c.groups.begin());
    }
}

void dev_read_row(unsigned row) {
    announce(shared_place(row, 16, "ldmatrix"), 16, false, __builtin_return_address(0));
}

void dev_serve_matrices(void **records, unsigned) {
    serve_matrices(records, false);
}
void dev_serve_matrices_turned(void **records, unsigned) {
    serve_matrices(records, true);
}
void dev_serve_product_bf16(void **records, unsigned) {
    serve_product<of_bf16>(records);
}
void dev_serve_product_f16(void **records, unsigned) {
    serve_product<of_f16>(records);
}

unsigned dev_narrow_bf16(float x) {
    const uint32_t bits = bits_of(x);
    if (std::isnan(x)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

float dev_widen_f16(unsigned h) {
    const float size = (h & 0x7c00) == 0x7c00 ? (h & 0x3ff ? NAN : INFINITY)
                       : h & 0x7c00           ? ldexpf((float)(0x400 | (h & 0x3ff)), (int)(h >> 10 & 31) - 25)
                                              : ldexpf((float)(h & 0x3ff), -24);
    return h & 0x8000 ? -size : size;
}

// To the nearest, of two equally near ones to the even one. Below 2^-14 the steps are those of floats from 1/2 on.
unsigned dev_narrow_f16(float x) {
    if (std::isnan(x)) return 0x7fff;
    const uint32_t sign = bits_of(x) >> 16 & 0x8000, size = bits_of(fabsf(x));
    if (fabsf(x) >= 65520) return sign | 0x7c00;
    if (fabsf(x) < 0x1p-14f) return sign | (bits_of(fabsf(x) + 0.5f) - bits_of(0.5f));
    return sign | (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
}
