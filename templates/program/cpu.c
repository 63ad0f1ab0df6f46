// cpu: the processor's features.

//@ check_cpu(name, tests)
/* The feature that this program was built for and the CPU does not have, or NULL. */
static const char *missing_feature(void) {
    __builtin_cpu_init();
    $tests
    return NULL;
}

/* Runs before main and before tables are filled: in any other function a CPU without the features may stop at an
 * instruction that it does not know. */
static __attribute__((constructor(101))) void check_cpu(void) {
    const char *feature = missing_feature();
    if (!feature) return;
    fprintf(stderr, "$name: built for CPUs with %s, which this one has not: generate with --march generic\n", feature);
    exit(3);
}
