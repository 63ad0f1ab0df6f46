/* pairs.c: VDPBF16PS of the processor against the same in plain C (tests/matrix/plain.h), bit by bit, a NaN like any
 * other, for random operands of every kind. Threads that compute flush denormals, and so does this one. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/denormals.h"
#include "runtime/base/rng.h"
#include "tests/matrix/plain.h"

enum { ROUNDS = 20000, LANES = 16 };

/* Exponents around 1, near the lowest and the highest numbers, and any bits at all. */
static const struct kind {
    const char *name;
    unsigned lowest, count; /* exponents; count 0: any bits */
    unsigned sum_lowest;
} KINDS[] = {{"random", 117, 20, 117}, {"small", 52, 24, 0}, {"large", 180, 20, 230}, {"any", 0, 0, 0}};

static uint64_t drawn;

static uint32_t draw(void) { return (uint32_t)(ga_rng(1, 1, drawn++) >> 16); }

static uint32_t number(const struct kind *k, unsigned lowest) {
    return k->count == 0 ? draw() : (draw() & 0x807fffffu) | (lowest + draw() % k->count) << 23;
}

static bool same(float x, float y) { return memcmp(&x, &y, sizeof x) == 0 || (isnan(x) && isnan(y)); }

int main(void) {
    int wrong = 0;
    ga_flush_denormals();
    for (size_t kind = 0; kind < sizeof KINDS / sizeof *KINDS; kind++) {
        const struct kind *k = &KINDS[kind];
        for (int i = 0; i < ROUNDS; i++) {
            uint32_t bits[LANES];
            plain_pairs a, b;
            __m512 sums, found;
            for (int lane = 0; lane < LANES; lane++) {
                a[lane] = number(k, k->lowest) >> 16 | (number(k, k->lowest) & 0xffff0000u);
                b[lane] = number(k, k->lowest) >> 16 | (number(k, k->lowest) & 0xffff0000u);
                bits[lane] = number(k, k->sum_lowest);
            }
            memcpy(&sums, bits, sizeof sums);
            found = sums;
            __asm__("vdpbf16ps %2, %1, %0" : "+v"(found) : "v"(a), "v"(b));
            const __m512 plain = plain_dot(sums, a, b);
            for (int lane = 0; lane < LANES; lane++) {
                if (same(found[lane], plain[lane])) continue;
                if (wrong++ < 4)
                    printf("%s: %a + (%08x) (%08x): %a, in plain C %a\n", k->name, (double)sums[lane], a[lane], b[lane],
                           (double)found[lane], (double)plain[lane]);
            }
        }
    }
    printf("%d wrong\n", wrong);
    return wrong > 0;
}
