// table: a function of one number of bf16 as its results.

//@ numbers()
/* The numbers of bf16. */
enum { BF16_NUMBERS = 65536 };

//@ table(name, type, fill)
/* $name[x.bits] for each x of bf16, computed before main. One more element is read beside the last one. */
static $type $name[BF16_NUMBERS + 1];

static __attribute__((constructor)) void fill_$name(void) {
    const uint64_t control = ga_flush_denormals(); /* as the threads that run kernels do */
    for (int bits = 0; bits < BF16_NUMBERS; bits++) {
        const real x = bf16_widen((bf16){(uint16_t)bits});
        $fill
    }
    ga_restore_denormals(control);
}

