// orthogonal: the steps of the Newton-Schulz iteration that are no products (matmul.c).

//@ polynomial(fn, params, source, a, b, c)
/* $fn: square = a I + b gram + c square, matrices of n rows and columns, with a, b, c = $a, $b, $c
 * $source */
static void $fn($params) {
    const int tall = n < 4096 ? 4096 / n : 1;
    for (ga_tiles t = ga_tiles_begin(w, (n + tall - 1) / tall); ga_tile_next(&t);) {
        const int first = (int)t.index * tall, end = first + tall < n ? first + tall : n;
        for (int r = first; r < end; r++) {
            const real *g = gram + (size_t)r * n;
            real *s = square + (size_t)r * n;
            for (int c = 0; c < n; c++) s[c] = $b * g[c] + $c * s[c];
            s[r] += $a;
        }
    }
}
