/* errors.c: adds the sums of errors over one epoch of a program's own rows, by its library, and prints the metrics that
 * its header says. */
#include "measured.h"

#include <math.h>
#include <stdio.h>

int main(int count, char **argument) {
    ga_err e = {0};
    measured *m;
    measured_batch b;
    measured_metrics all = {0}, v;
    const measured_options o = {.init = count > 1 ? argument[1] : NULL};
    if (measured_open(&m, &o, &e) != 0) return fprintf(stderr, "%s\n", e.msg), 1;
    while (measured_next(m, &b, &e) == 1) {
        if (measured_validation_step(m, &b, &v, &e) != 0) return fprintf(stderr, "%s\n", e.msg), 1;
        all.counted += v.counted;
        all.weight += v.weight;
        all.error_sum += v.error_sum;
        all.squared_error_sum += v.squared_error_sum;
        all.target_sum += v.target_sum;
        all.squared_target_sum += v.squared_target_sum;
        all.of_below += v.of_below;
    }
    const double n = (double)all.counted, spread = all.squared_target_sum - all.target_sum * all.target_sum / n;
    printf("%.17g %.17g %.17g %.17g\n", all.error_sum / n, sqrt(all.squared_error_sum / n),
           1 - all.squared_error_sum / spread, all.of_below / all.weight);
    measured_close(m);
    return 0;
}
