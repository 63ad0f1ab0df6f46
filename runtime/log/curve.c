/* curve.c: see curve.h. The dots of all bins are set in a grid, which is then written as signs. */
#include "log/curve.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

enum { LABEL = 10, LEAST_COLUMNS = LABEL + 6, WIDE = 2, HIGH = 4 };

/* Bits of a braille sign, by column and row of its dots. */
static const unsigned char DOTS[WIDE][HIGH] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

static ga_curve_bin joined(ga_curve_bin a, ga_curve_bin b) {
    return (ga_curve_bin){fminf(a.least, b.least), fmaxf(a.most, b.most)};
}

void ga_curve_add(ga_curve *c, double value) {
    const float x = (float)value;
    const ga_curve_bin one = isfinite(x) ? (ga_curve_bin){x, x} : (ga_curve_bin){INFINITY, -INFINITY};
    if (c->each == 0) c->each = 1;
    if (c->count > 0 && c->inside < c->each) {
        c->bins[c->count - 1] = joined(c->bins[c->count - 1], one);
        c->inside++;
        return;
    }
    if (c->count == GA_CURVE_BINS) {
        c->count /= 2;
        for (int i = 0; i < c->count; i++) c->bins[i] = joined(c->bins[2 * i], c->bins[2 * i + 1]);
        c->each *= 2;
    }
    c->bins[c->count++] = one;
    c->inside = 1;
}

typedef unsigned char grid[GA_CURVE_ROWS][GA_CURVE_COLUMNS];

/* Sets the dots of column x from row a to row b. */
static void set_dots(grid g, int x, int a, int b) {
    for (int y = a < b ? a : b; y <= (a < b ? b : a); y++) g[y / HIGH][x / WIDE] |= DOTS[x % WIDE][y % HIGH];
}

/* Draws the bins; a bin without a finite value leaves a gap. */
static void draw(grid g, const ga_curve *c, ga_curve_bin range, int width) {
    const int high = GA_CURVE_ROWS * HIGH - 1, wide = width * WIDE - 1;
    const double span = range.most > range.least ? (double)range.most - range.least : 1;
    int before_x = -1, before_y = 0;
    for (int i = 0; i < c->count; i++) {
        const ga_curve_bin b = c->bins[i];
        if (b.least > b.most) {
            before_x = -1;
            continue;
        }
        const int x = c->count > 1 ? i * wide / (c->count - 1) : 0;
        const int top = (int)lround((range.most - (double)b.most) / span * high),
                  bottom = (int)lround((range.most - (double)b.least) / span * high), y = (top + bottom) / 2;
        int last = before_x < 0 ? y : before_y;
        for (int at = before_x < 0 ? x : before_x + 1; at <= x; at++) {
            const int here = before_x < 0 ? y : before_y + (y - before_y) * (at - before_x) / (x - before_x);
            set_dots(g, at, last, here);
            last = here;
        }
        set_dots(g, x, top, bottom);
        before_x = x;
        before_y = y;
    }
}

static ga_curve_bin range_of(const ga_curve *c) {
    ga_curve_bin range = {INFINITY, -INFINITY};
    for (int i = 0; i < c->count; i++) range = joined(range, c->bins[i]);
    return range;
}

void ga_curve_text(char *out, const ga_curve *c, int columns, bool braille) {
    const ga_curve_bin range = range_of(c);
    *out = 0;
    if (columns < LEAST_COLUMNS || range.least > range.most) return;
    grid g;
    memset(g, 0, sizeof g);
    int width = columns - LABEL - 1;
    if (width > GA_CURVE_COLUMNS - LABEL) width = GA_CURVE_COLUMNS - LABEL;
    draw(g, c, range, width);
    ga_text t = {.base = out, .size = GA_CURVE_TEXT};
    for (int row = 0; row < GA_CURVE_ROWS; row++) {
        if (row == 0 || row == GA_CURVE_ROWS - 1)
            ga_text_add(&t, "%9.4g|", (double)(row == 0 ? range.most : range.least));
        else
            ga_text_add(&t, "%9s|", "");
        int last = width;
        while (last > 0 && g[row][last - 1] == 0) last--;
        for (int x = 0; x < last; x++) {
            const int dots = g[row][x]; /* U+2800 + dots in UTF-8 */
            if (dots == 0 || !braille)
                ga_text_add(&t, dots == 0 ? " " : "*");
            else
                ga_text_add(&t, "\xe2%c%c", 0xa0 + (dots >> 6), 0x80 + (dots & 0x3f));
        }
        ga_text_add(&t, "\n");
    }
}
