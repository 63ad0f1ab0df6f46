/* greatest.c: row_greatest of math.c against a loop that compares numbers, for rows of all lengths to 100 with zeros,
 * denormals, infinities and NaNs. Built in a folder with math.c, REAL as the type. Exits with 1 at a difference. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef REAL real;

#include "math.c"

enum { MOST = 100, SPECIAL = 8 };

/* The greatest of the numbers, or NaN if there is a NaN without a sign; one with a sign counts as the lowest. */
static real expected(const real *x, int n, real greatest) {
    for (int i = 0; i < n; i++) {
        if (isnan(x[i]) && !signbit(x[i])) return x[i];
        if (!isnan(x[i]) && x[i] > greatest) greatest = x[i];
    }
    return greatest;
}

int main(void) {
    const real special[SPECIAL] = {0, (real)-0.0, INFINITY, -INFINITY, (real)1e-40, (real)-1e-40, NAN, -NAN};
    uint32_t draw = 1;
    int wrong = 0, nans = 0;
    for (int round = 0; round < 200; round++)
        for (int n = 0; n <= MOST; n++) {
            real x[MOST];
            for (int i = 0; i < n; i++) {
                draw = draw * 1664525 + 1013904223;
                const uint32_t kind = draw >> 24;
                x[i] = kind < (uint32_t)(round % 4) ? special[draw >> 16 & 7] : (real)((int32_t)draw / 16) / 1000;
            }
            const real start = round % 2 ? -INFINITY : (real)100.5;
            const real want = expected(x, n, start), got = row_greatest(x, n, start);
            nans += isnan(want) != 0;
            if (isnan(want) ? !isnan(got) : got != want) {
                if (wrong++ < 5) printf("%d elements: %g, not %g\n", n, (double)got, (double)want);
            }
        }
    printf("%d rows with NaN, %d wrong\n", nans, wrong);
    return wrong > 0 || nans == 0;
}
