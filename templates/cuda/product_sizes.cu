// product_sizes: the sizes of a product on tensor cores, as the host gives them to kernels.

//@ product_sizes()
/* C has M rows and N columns, a sum K terms. */
typedef struct product_sizes {
    int M, N, K;
    int a_row, b_row, c_row;   // distances of rows in memory
    int wide;                            // of a twin (ga_run): columns of its tiles
    int clusters, whole, shares, share;  // its clusters, piles that are not shared, shares of the others, their slices
    int term_parts;                      // parts of the sums of an operand
} product_sizes;

//@ product_sizes_launch()
$(product_sizes { })
