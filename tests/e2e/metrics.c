/* metrics.c: adds the metrics of one epoch of a program's own rows, by its library, and prints the sums. */
#include "measured.h"

#include <stdio.h>

int main(void) {
    ga_err e = {0};
    measured *m;
    measured_batch b;
    measured_metrics all = {0}, v;
    if (measured_open(&m, NULL, &e) != 0) return fprintf(stderr, "%s\n", e.msg), 1;
    while (measured_next(m, &b, &e) == 1) {
        if (measured_validation_step(m, &b, &v, &e) != 0) return fprintf(stderr, "%s\n", e.msg), 1;
        all.counted += v.counted;
        all.correct += v.correct;
        all.tp += v.tp;
        all.fp += v.fp;
        all.fn += v.fn;
    }
    printf("%lld %lld %lld %lld %lld\n", (long long)all.counted, (long long)all.correct, (long long)all.tp,
           (long long)all.fp, (long long)all.fn);
    measured_close(m);
    return 0;
}
