// strip: the rows and columns of a product whose sums registers hold; gen/emit/targets/c/matmul.lua chooses their numbers
// and the functions that a product calls.

//@ strip(rows, vectors)
/* A strip of a product: as many rows and columns of C as registers hold, over `depth` terms.
 *   c(r, j) = start(r, j) + sum over k of a(r, k) b(k, j)      start NULL: 0
 * Rows of b are read in whole vectors. */
typedef struct strip {
    int depth;
    const real *a;
    size_t a_row, a_column;
    const real *b;
    size_t b_row;
    const real *start;
    size_t start_row;
    real *c;
    size_t c_row;
} strip;

/* Rows of the next panel that a strip asks for, one with each `pace` terms. */
typedef struct ahead {
    const real *row;
    size_t stride;
    int pace;
} ahead;

enum { STRIP_ROWS = $rows, STRIP_VECTORS = $vectors };

//@ strip_sums(half)
/* Rows, columns and which other pointers are NULL are literals where it is called: the loops over them unroll. Whole
 * rows of b go into the panel too, one behind the other. Neighbours in columns of a go into the part, likewise, and
//% if half then
 * those of AHEAD terms later are asked for. Rows of 16 bits, `narrow`, take the place of those of b: they are widened
 * into the panel. */
static inline __attribute__((always_inline)) void strip_sums_of(const strip *s, const int rows, const int columns,
                                                                real *panel, real *part, const ahead *asked,
                                                                const $half *narrow) {
//% else
 * those of AHEAD terms later are asked for. */
static inline __attribute__((always_inline)) void strip_sums(const strip *s, const int rows, const int columns,
                                                             real *panel, real *part, const ahead *asked) {
//% end
    enum { AHEAD = 16 };
    const int wide = (columns + VEC_LANES - 1) / VEC_LANES, last = columns - (wide - 1) * VEC_LANES;
    const real *a = s->a, *b = s->b, *next = asked ? asked->row : NULL;
    int wait = 1;
    vec sum[STRIP_ROWS][STRIP_VECTORS];
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < wide; v++) {
            const int n = v < wide - 1 ? VEC_LANES : last;
            sum[r][v] = s->start ? vec_load(s->start + r * s->start_row + v * VEC_LANES, n) : (vec){0};
        }
    }
    UNROLL_FOUR for (int k = 0; k < s->depth; k++, a += s->a_column, b += s->b_row) {
//% if half then
        if (narrow) {
            const $half *from = narrow + k * s->b_row;
            b = panel + k * columns;
            UNROLL for (int v = 0; v < wide; v++)
                vec_store(panel + k * columns + v * VEC_LANES, vec_widen(from + v * VEC_LANES), VEC_LANES);
        } else if (panel) {
//% else
        if (panel) {
//% end
            UNROLL for (int v = 0; v < wide; v++)
                vec_store(panel + k * columns + v * VEC_LANES, vec_load(b + v * VEC_LANES, VEC_LANES), VEC_LANES);
        }
        if (part) {
            memcpy(part + k * rows, a, (size_t)rows * sizeof *a);
            __builtin_prefetch(a + AHEAD * s->a_column);
        }
        if (asked && --wait == 0) {
            UNROLL for (int v = 0; v < wide; v++) __builtin_prefetch(next + v * VEC_LANES, 0, 2);
            next += asked->stride, wait = asked->pace;
        }
        UNROLL for (int r = 0; r < rows; r++) {
            const vec x = vec_all(a[r * s->a_row]);
            UNROLL for (int v = 0; v < wide; v++)
                sum[r][v] = vec_fma(x, vec_load(b + v * VEC_LANES, VEC_LANES), sum[r][v]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        UNROLL for (int v = 0; v < wide; v++)
            vec_store(s->c + r * s->c_row + v * VEC_LANES, sum[r][v], v < wide - 1 ? VEC_LANES : last);
    }
}

//% if half then
static inline __attribute__((always_inline)) void strip_sums(const strip *s, const int rows, const int columns,
                                                             real *panel, real *part, const ahead *asked) {
    strip_sums_of(s, rows, columns, panel, part, asked, NULL);
}
//% end

//@ strip_function(name, rows, columns)
static __attribute__((noinline)) void $name(const strip *s) { strip_sums(s, $rows, $columns, NULL, NULL, NULL); }

//@ first_function(name, rows, columns)
/* The first strip of a panel reads b where it lies and packs it for the others. */
static __attribute__((noinline)) void $name(const strip *s, real *panel) {
    strip_sums(s, $rows, $columns, panel, NULL, NULL);
}

//@ asking_function(name, rows, columns)
/* A strip that asks for rows of the next panel, of a panel in rows of $columns. */
static __attribute__((noinline)) void $name(const strip *s, const ahead *asked) {
    strip asking = *s;
    asking.b_row = $columns;
    strip_sums(&asking, $rows, $columns, NULL, NULL, &(ahead){asked->row, asked->stride, asked->pace});
}

//@ asking_first_function(name, rows, columns)
/* The first strip of a panel reads b where it lies and packs it for the others, and asks for rows of the next panel. */
static __attribute__((noinline)) void $name(const strip *s, real *panel, const ahead *asked) {
    strip_sums(s, $rows, $columns, panel, NULL, &(ahead){asked->row, asked->stride, asked->pace});
}

//@ packed_function(name, rows, columns)
/* Operands of a whole strip as they are packed: a by terms, $rows rows beside each other, b in rows of $columns. */
static __attribute__((noinline)) void $name(const strip *s) {
    strip packed = *s;
    packed.a_row = 1, packed.a_column = $rows, packed.b_row = $columns;
    strip_sums(&packed, $rows, $columns, NULL, NULL, NULL);
}

//@ packed_first_function(name, rows, columns)
/* The first strip of a panel, of a packed by terms: reads b where it lies and packs it for the others. */
static __attribute__((noinline)) void $name(const strip *s, real *panel) {
    strip packed = *s;
    packed.a_row = 1, packed.a_column = $rows;
    strip_sums(&packed, $rows, $columns, panel, NULL, NULL);
}

//@ packing_function(name, rows, columns)
/* A strip of a tile's first panel, in rows of $columns: reads a by columns where it lies and packs it for the other
 * panels, by terms. */
static __attribute__((noinline)) void $name(const strip *s, real *part) {
    strip packing = *s;
    packing.a_row = 1, packing.b_row = $columns;
    strip_sums(&packing, $rows, $columns, NULL, part, NULL);
}

//@ packing_first_function(name, rows, columns)
/* The first strip of a tile's first panel packs both operands. */
static __attribute__((noinline)) void $name(const strip *s, real *panel, real *part) {
    strip packing = *s;
    packing.a_row = 1;
    strip_sums(&packing, $rows, $columns, panel, part, NULL);
}

//@ widening_function(name, rows, columns, half)
/* The first strip of a panel widens rows of b, 16 bits each and `stride` apart, and packs them for the others. */
static __attribute__((noinline, nonnull)) void $name(const strip *s, real *panel, const $half *b,
                                                     size_t stride) {
    strip widening = *s;
    widening.b_row = stride;
    strip_sums_of(&widening, $rows, $columns, panel, NULL, NULL, b);
}

//@ packed_widening_function(name, rows, columns, half)
/* The first strip of a panel, of a packed by terms: widens rows of b, 16 bits each and `stride` apart, and packs them
 * for the others. */
static __attribute__((noinline, nonnull)) void $name(const strip *s, real *panel, const $half *b,
                                                     size_t stride) {
    strip widening = *s;
    widening.a_row = 1, widening.a_column = $rows, widening.b_row = stride;
    strip_sums_of(&widening, $rows, $columns, panel, NULL, NULL, b);
}
