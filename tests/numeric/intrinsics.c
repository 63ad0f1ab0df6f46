/* intrinsics.c: each intrinsic of AVX-512, AVX512-BF16 and AMX that templates use against values worked out by hand: the
 * instructions of the processor, or those in plain C (tests/matrix). As in threads that compute, denormals are flushed.
 * Prints what is wrong, and how much. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <immintrin.h>

#include "runtime/base/denormals.h"
#include "runtime/base/ga.h"

typedef union lanes {
    __m512 floats;
    __m512d doubles;
    __m512i whole;
    __m512bh pairs;
    float f[16];
    double d[8];
    int32_t n[16];
    uint32_t w[16];
    uint16_t h[32];
} lanes;

static int wrong;

static void is(const char *what, int lane, double found, double expected) {
    if (found == expected || (isnan(found) && isnan(expected))) return;
    wrong++;
    printf("%s: lane %d: %a, expected %a\n", what, lane, found, expected);
}

static void multiply_adds(void) {
    const float a = 1 + 0x1p-12f;
    const double b = 1 + 0x1p-27;
    lanes x, y, z;
    for (int i = 0; i < 16; i++) x.f[i] = (float)i, y.f[i] = 3, z.f[i] = (float)-i;
    x.f[1] = y.f[1] = a, z.f[1] = -(1 + 0x1p-11f); /* a rounded product would leave 0 */
    x.f[2] = INFINITY, y.f[2] = 0;
    x.f[9] = 0x1p100f, y.f[9] = 0x1p100f, z.f[9] = -INFINITY;
    x.f[10] = 0x1.fffffep127f, y.f[10] = 2, z.f[10] = -0x1.fffffep127f; /* the product alone would be infinite */
    z.floats = _mm512_fmadd_ps(x.floats, y.floats, z.floats);
    for (int i = 0; i < 16; i++)
        is("fmadd_ps", i, z.f[i], i == 1 ? 0x1p-24 : i == 2 ? NAN : i == 9 ? -INFINITY : i == 10 ? 0x1.fffffep127 : 2 * i);
    for (int i = 0; i < 8; i++) x.d[i] = i, y.d[i] = 3, z.d[i] = -i;
    x.d[5] = y.d[5] = b, z.d[5] = -(1 + 0x1p-26);
    z.doubles = _mm512_fmadd_pd(x.doubles, y.doubles, z.doubles);
    for (int i = 0; i < 8; i++) is("fmadd_pd", i, z.d[i], i == 5 ? 0x1p-54 : 2 * i);
}

/* Lanes of a are 100 + number, those of b 200 + number. Bits of an index above those that count are set. */
static void permutations(void) {
    lanes a, b, index, found;
    const uint32_t mask = 0x8000ff05;
    for (int i = 0; i < 16; i++) a.w[i] = 100 + i, b.w[i] = 200 + i, index.w[i] = 0xffffffe0 | (31 - 2 * i % 32);
    found.whole = _mm512_permutex2var_epi32(a.whole, index.whole, b.whole);
    for (int i = 0; i < 16; i++) {
        const int from = 31 - 2 * i % 32;
        is("permutex2var_epi32", i, found.w[i], from < 16 ? 100 + from : 200 + from - 16);
    }
    for (int i = 0; i < 32; i++) a.h[i] = 100 + i, b.h[i] = 200 + i, index.h[i] = 0xffe0 | (31 - i);
    found.whole = _mm512_permutexvar_epi16(index.whole, a.whole);
    for (int i = 0; i < 32; i++) is("permutexvar_epi16", i, found.h[i], 100 + 31 - i);
    found.whole = _mm512_maskz_permutexvar_epi16(mask, index.whole, a.whole);
    for (int i = 0; i < 32; i++) is("maskz_permutexvar_epi16", i, found.h[i], mask >> i & 1 ? 100 + 31 - i : 0);
    for (int i = 0; i < 32; i++) index.h[i] = 0xffc0 | (63 - 2 * i);
    found.whole = _mm512_maskz_permutex2var_epi16(mask, a.whole, index.whole, b.whole);
    for (int i = 0; i < 32; i++) {
        const int from = 63 - 2 * i;
        is("maskz_permutex2var_epi16", i, found.h[i], !(mask >> i & 1) ? 0 : from < 32 ? 100 + from : 200 + from - 32);
    }
}

/* The instructions that copy and spread lines of convolutions. */
static void lines(void) {
    const uint32_t mask = 0x8000ff05;
    lanes a, b, index, found;
    union {
        __m256i whole;
        uint32_t w[8];
        uint16_t h[16];
    } half;
    for (int i = 0; i < 16; i++) a.w[i] = 100 + i, b.w[i] = 200 + i, index.w[i] = 0xffffffe0 | (31 - 2 * i % 32);
    found.whole = _mm512_maskz_permutex2var_epi32(0xff05, a.whole, index.whole, b.whole);
    for (int i = 0; i < 16; i++) {
        const int from = 31 - 2 * i % 32;
        is("maskz_permutex2var_epi32", i, found.w[i], !(mask >> i & 1) ? 0 : from < 16 ? 100 + from : 200 + from - 16);
    }
    for (int i = 0; i < 32; i++) b.h[i] = (uint16_t)(mask >> i & 1 ? 0x8000 + i : 0x7fff - i);
    is("movepi16_mask", 0, (double)_mm512_movepi16_mask(b.whole), mask);
    for (int i = 0; i < 16; i++) half.h[i] = (uint16_t)(65000 + i);
    found.whole = _mm512_inserti64x4(a.whole, half.whole, 1);
    for (int i = 0; i < 8; i++) is("inserti64x4", i, found.w[i], a.w[i]);
    for (int i = 16; i < 32; i++) is("inserti64x4", i, found.h[i], 65000 + i - 16);
    for (int i = 0; i < 16; i++) a.w[i] = 0xabcd0000u + (unsigned)i;
    half.whole = _mm512_cvtepi32_epi16(a.whole);
    for (int i = 0; i < 16; i++) is("cvtepi32_epi16", i, half.h[i], i);
    half.whole = _mm512_cvtepi64_epi32(a.whole);
    for (int i = 0; i < 8; i++) is("cvtepi64_epi32", i, half.w[i], a.w[2 * i]);
    found.whole = _mm512_cvtepu32_epi64(half.whole);
    for (int i = 0; i < 16; i++) is("cvtepu32_epi64", i, found.w[i], i % 2 ? 0 : a.w[i]);
    found.whole = _mm512_maskz_loadu_epi32(0x8105, &a);
    for (int i = 0; i < 16; i++) is("512_maskz_loadu_epi32", i, found.w[i], 0x8105 >> i & 1 ? a.w[i] : 0);
    half.whole = _mm256_maskz_loadu_epi32(0x85, &a);
    for (int i = 0; i < 8; i++) is("256_maskz_loadu_epi32", i, half.w[i], 0x85 >> i & 1 ? a.w[i] : 0);
}

static void masked_stores(void) {
    lanes a, found;
    union {
        __m256i whole;
        uint32_t w[8];
        uint16_t h[16];
    } half, to;
    for (int i = 0; i < 32; i++) a.h[i] = (uint16_t)(1000 + i);
    memcpy(&half, &a, sizeof half);
    memset(&found, 0, sizeof found), _mm512_mask_storeu_epi16(&found, 0x80010005, a.whole);
    for (int i = 0; i < 32; i++) is("512_mask_storeu_epi16", i, found.h[i], 0x80010005 >> i & 1 ? a.h[i] : 0);
    memset(&found, 0, sizeof found), _mm512_mask_storeu_epi32(&found, 0x8105, a.whole);
    for (int i = 0; i < 16; i++) is("512_mask_storeu_epi32", i, found.w[i], 0x8105 >> i & 1 ? a.w[i] : 0);
    memset(&to, 0, sizeof to), _mm256_mask_storeu_epi16(&to, 0x8105, half.whole);
    for (int i = 0; i < 16; i++) is("256_mask_storeu_epi16", i, to.h[i], 0x8105 >> i & 1 ? half.h[i] : 0);
    memset(&to, 0, sizeof to), _mm256_mask_storeu_epi32(&to, 0x85, half.whole);
    for (int i = 0; i < 8; i++) is("256_mask_storeu_epi32", i, to.w[i], 0x85 >> i & 1 ? half.w[i] : 0);
}

static void masks_and_halves(void) {
    lanes x;
    union {
        __m256i whole;
        uint16_t h[16];
        uint32_t w[8];
    } half;
    for (int i = 0; i < 16; i++) x.n[i] = i;
    x.n[1] = INT32_MIN, x.n[4] = -1, x.n[15] = -7, x.n[7] = INT32_MAX;
    is("movepi32_mask", 0, _mm512_movepi32_mask(x.whole), 1 << 1 | 1 << 4 | 1 << 15);
    for (int i = 0; i < 32; i++) x.h[i] = 65535 - i;
    half.whole = _mm512_castsi512_si256(x.whole);
    for (int i = 0; i < 16; i++) is("castsi512_si256", i, half.h[i], 65535 - i);
    x.whole = _mm512_cvtepu16_epi32(half.whole);
    for (int i = 0; i < 16; i++) is("cvtepu16_epi32", i, x.w[i], 65535 - i);
    union {
        __m128i whole;
        uint16_t h[8];
    } quarter;
    for (int i = 0; i < 8; i++) quarter.h[i] = (uint16_t)(65535 - i);
    half.whole = _mm256_cvtepu16_epi32(quarter.whole);
    for (int i = 0; i < 8; i++) is("256_cvtepu16_epi32", i, half.w[i], 65535 - i);
    for (int i = 0; i < 16; i++) half.h[i] = (uint16_t)(65535 - i);
    x.whole = _mm512_castsi256_si512(half.whole);
    for (int i = 0; i < 16; i++) is("castsi256_si512", i, x.h[i], 65535 - i);
}

static void exponents(void) {
    static const struct {
        float a, b, rest, scaled;
    } cases[16] = {
        {1, 0, 0, 1}, {1.5f, 3, 0, 12}, {1, -0x1.000002p-2f, 0x1.7ffffep-1f, 0.5f}, {1.5f, -0.25f, 0.75f, 0.75f},
        {-3, -2.5f, 0.5f, -0.375f}, {1, -0x1p-40f, 0x1.fffffep-1f, 0.5f}, {1, 127.5f, 0.5f, 0x1p127f},
        {1, 128, 0, INFINITY}, {1, -126, 0, 0x1p-126f}, {1, -127, 0, 0}, /* a denormal */ {0x1p100f, -200, 0, 0x1p-100f}, {1, -INFINITY, 0, 0},
        {NAN, -INFINITY, 0, 0}, {1, INFINITY, 0, INFINITY}, {1, NAN, NAN, NAN}, {NAN, 1, 0, NAN},
    };
    lanes a, b;
    for (int i = 0; i < 16; i++) a.f[i] = cases[i].a, b.f[i] = cases[i].b;
    a.floats = _mm512_scalef_ps(a.floats, b.floats);
    for (int i = 0; i < 16; i++) is("scalef_ps", i, a.f[i], cases[i].scaled);
    b.floats = _mm512_reduce_ps(b.floats, 1);
    for (int i = 0; i < 16; i++) is("reduce_ps", i, b.f[i], cases[i].rest);
}

/* Elements that a mask leaves out lie on a page that cannot be read. */
static void loads(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0) {
        wrong++;
        printf("no memory\n");
        return;
    }
    uint16_t *h = (uint16_t *)(memory + page) - 7;
    float *f = (float *)(memory + page) - 5;
    lanes x, at;
    union {
        __m256i whole;
        uint16_t h[16];
    } half;
    for (int i = 0; i < 7; i++) h[i] = (uint16_t)(60000 + i);
    x.whole = _mm512_maskz_loadu_epi16(0x5b, h);
    for (int i = 0; i < 32; i++) is("512_maskz_loadu_epi16", i, x.h[i], 0x5b >> i & 1 ? 60000 + i : 0);
    half.whole = _mm256_maskz_loadu_epi16(0x5b, h);
    for (int i = 0; i < 16; i++) is("256_maskz_loadu_epi16", i, half.h[i], 0x5b >> i & 1 ? 60000 + i : 0);
    for (int i = -9; i < 5; i++) f[i] = (float)(i + 0.5);
    x.floats = _mm512_maskz_loadu_ps(0x16, f);
    for (int i = 0; i < 16; i++) is("maskz_loadu_ps", i, x.f[i], 0x16 >> i & 1 ? i + 0.5 : 0);
    for (int i = 0; i < 16; i++) at.n[i] = i < 14 ? 4 - i : -9;
    _mm512_stream_si512((void *)&x, at.whole);
    _mm_sfence();
    for (int i = 0; i < 16; i++) is("stream_si512", i, x.n[i], at.n[i]);
    x.whole = _mm512_i32gather_epi32(at.whole, f, sizeof *f);
    for (int i = 0; i < 16; i++) is("i32gather_epi32", i, x.f[i], at.n[i] + 0.5);
    for (int i = 0; i < 16; i++) x.f[i] = -100 - i, at.n[i] = i < 14 ? 4 - i : 1000;
    x.floats = _mm512_mask_i32gather_ps(x.floats, 0x2fdb, at.whole, f, sizeof *f);
    for (int i = 0; i < 16; i++) is("mask_i32gather_ps", i, x.f[i], 0x2fdb >> i & 1 ? 4 - i + 0.5 : -100 - i);
    munmap(memory, 2 * page);
}

/* Bits of f32, and those of the bf16 that they are rounded to. */
static void narrow(void) {
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        {0x3f808000, 0x3f80}, /* halfway: to the even number, below and above */
        {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82},
        {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81}, /* next to halfway */
        {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80}, {0x7f7fffff, 0x7f80}, {0xff7fffff, 0xff80}, /* to an infinity */
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, /* infinities */
        {0x7f800001, 0x7fc0}, {0xff812345, 0xffc1}, {0x7fc00000, 0x7fc0}, {0xffffffff, 0xffff}, /* NaN: quiet */
        {0x00012345, 0x0000}, {0x807fffff, 0x8000}, {0x00800000, 0x0080}, {0x80800000, 0x8080}, /* denormals: zeros */
        {0x00000000, 0x0000}, {0x80000000, 0x8000},
    };
    enum { COUNT = sizeof cases / sizeof *cases };
    lanes low, high, found;
    for (int i = 0; i < 16; i++) low.w[i] = cases[i % COUNT].from, high.w[i] = cases[(i + 16) % COUNT].from;
    found.pairs = _mm512_cvtne2ps_pbh(high.floats, low.floats);
    for (int i = 0; i < 32; i++) is("cvtne2ps_pbh", i, found.h[i], cases[i % COUNT].to);
}

static uint32_t pair(float odd, float even) {
    lanes x = {.f = {odd, even}};
    return (x.w[0] & 0xffff0000) | x.w[1] >> 16;
}

static void products_of_pairs(void) {
    lanes sum, a, b;
    for (int i = 0; i < 16; i++) sum.f[i] = (float)i, a.w[i] = pair(2, 3), b.w[i] = pair(5, (float)-i);
    sum.f[1] = 0x1p24f, a.w[1] = pair(1, 0x1p12f), b.w[1] = pair(1, -0x1p12f); /* odd: 1 is rounded off; even: 0 is left */
    sum.f[2] = 0, a.w[2] = pair(1, 0x1p-130f), b.w[2] = pair(1, 0x1p100f);      /* a denormal factor */
    sum.f[3] = 0x1p-130f, a.w[3] = pair(0, 1), b.w[3] = pair(0, 0x1p-120f);     /* a denormal sum */
    sum.f[4] = 0x1p-126f, a.w[4] = pair(1, 0), b.w[4] = pair(-0x1.8p-126f, 0);  /* a denormal result */
    sum.f[5] = 0, a.w[5] = pair(INFINITY, 1), b.w[5] = pair(1, -INFINITY);
    sum.floats = _mm512_dpbf16_ps(sum.floats, a.pairs, b.pairs);
    for (int i = 0; i < 16; i++)
        is("dpbf16_ps", i, sum.f[i],
           i == 1 || i == 4 ? 0 : i == 2 ? 1 : i == 3 ? 0x1p-120 : i == 5 ? NAN : i + 10 - 3 * i);
}

typedef struct tile {
    uint32_t w[16][32]; /* rows of 128 bytes, of which a register has half */
} tile;

static void tiles(void) {
    static const struct {
        uint8_t palette, first_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shapes = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    static tile a, b, c;
    static float sums[16][16], zeros[16][16];
    for (int r = 0; r < 16; r++)
        for (int j = 0; j < 16; j++) {
            a.w[r][j] = pair(r == 3 ? 1 : 0, r == 3 ? 1 : r == j ? 2 : 0);
            b.w[r][j] = pair(j == 5 ? (r ? 1 : -0x1p24f) : 0, j == 5 ? (r ? 1 : 0x1p24f) : (float)(10 * r + j));
            const float start = r == 3 && j == 6 ? 0x1p24f : 1;
            memcpy(&c.w[r][j], &start, sizeof start);
            zeros[r][j] = 7;
        }
    _tile_loadconfig(&shapes);
    _tile_loadd(4, &a, 128);
    _tile_stream_loadd(6, &b, 128);
    _tile_loadd(1, &c, 128);
    _tile_zero(0);
    _tile_dpbf16ps(1, 4, 6);
    _tile_stored(1, sums, 64);
    _tile_stored(0, zeros, 64);
    _tile_release();
    for (int r = 0; r < 16; r++)
        for (int j = 0; j < 16; j++) {
            /* row r takes twice row r of b; row 3 the sum of a column, and in column 5 even and odd terms apart: ones
             * are rounded off beside 2^24, not beside -2^24, so that 15 of 30 are left; 2^24 + 1296 of column 6 is one
             * addition */
            const double column = 1200 + 16 * j, own = 2 * (j == 5 ? r ? 1 : 0x1p24 : 10 * r + j);
            is("dpbf16ps", 16 * r + j, sums[r][j],
               r != 3 ? (float)(1 + own) : j == 5 ? 16 : j == 6 ? 0x1p24 + column : 1 + column);
            is("zero", 16 * r + j, zeros[r][j], 0);
        }
}

int main(void) {
    ga_err e = {0};
    if (ga_matrix_open(&e) < 0) return 3;
    ga_flush_denormals();
    multiply_adds();
    permutations();
    masks_and_halves();
    exponents();
    lines();
    masked_stores();
    loads();
    narrow();
    products_of_pairs();
    tiles();
    printf("%d wrong\n", wrong);
    return wrong > 0;
}
