// divisor: divisions by sizes that a kernel gets as arguments, by products: as few instructions as by literals.

//@ divisor()
$(divisor_type { })

GA_DEVICE int operator/(int n, ga_divisor d) {
    return (int)(__umulhi(2u * n, d.times) >> d.shift);
}
GA_DEVICE int operator%(int n, ga_divisor d) {
    return n - n / d * d.by;
}

//@ divisor_type()
/* A number that others from 0 to 2^31 - 1 are divided by: n / by is the upper half of 2 n times, shifted. */
typedef struct ga_divisor {
    int by, shift;
    unsigned times;
} ga_divisor;

//@ divisor_launch()
$(divisor_type { })

/* times: 2^(31 + shift) / by, rounded up; 2^shift is the least power of 2 from `by` on, which is at most 2^30. */
static ga_divisor divisor(int by) {
    ga_divisor d = {.by = by};
    while (1 << d.shift < by) d.shift++;
    if (by > 0) d.times = (unsigned)(((UINT64_C(1) << (31 + d.shift)) + (unsigned)by - 1) / (unsigned)by);
    return d;
}
