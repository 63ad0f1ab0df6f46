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

// Lane l has rows l / 4 and l / 4 + 8 of a and d, columns l % 4 * 2 and the one behind of d; of b it has column l / 4.
void serve_product(void **records, float (*widen)(unsigned)) {
    float a[16][16], b[16][8];
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
    for (int l = 0; l < 32; l++) {
        auto *r = (dev_product_record *)records[l];
        for (int e = 0; e < 4; e++) {
            const int i = l / 4 + e / 2 * 8, j = l % 4 * 2 + e % 2;
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += a[i][k] * b[k][j];
            r->d[e] += sum;
        }
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

float of_bf16(unsigned bits) {
    float x;
    bits <<= 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float of_f16(unsigned bits) {
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    const float size = exponent == 31  ? fraction ? NAN : INFINITY
                       : exponent == 0 ? ldexpf((float)fraction, -24)
                                       : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits >> 15 ? -size : size;
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
    serve_product(records, of_bf16);
}
void dev_serve_product_f16(void **records, unsigned) {
    serve_product(records, of_f16);
}

unsigned dev_narrow_bf16(float x) {
    unsigned bits;
    if (std::isnan(x)) return 0x7fff;
    memcpy(&bits, &x, sizeof bits);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

unsigned dev_narrow_f16(float x) {
    if (std::isnan(x)) return 0x7fff;
    const unsigned sign = std::signbit(x) ? 0x8000 : 0;
    const float size = fabsf(x);
    if (size >= 65520) return sign | 0x7c00;
    const int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
    const unsigned steps = (unsigned)nearbyintf(ldexpf(size, 10 - exponent));  // of 2^(exponent - 10); 1024: the next
    return sign | (size < 0x1p-14f ? steps : ((unsigned)(exponent + 15) << 10) + steps - 1024);
}
