// orthogonal: the steps of the Newton-Schulz iteration that are no products (matmul.cu).

//@ polynomial(fn, params, source, a, b, c, threads)
/* $fn: square = a I + b gram + c square, matrices of n rows and columns, with a, b, c = $a, $b, $c
 * $source */
GA_KERNEL($threads) $fn($params) {
    const ga_int64 i = ga_thread_first();
    if (i >= (ga_int64)n * n) return;
    const real value = $b * gram[i] + $c * square[i];
    square[i] = i / n == i % n ? value + $a : value;
}
