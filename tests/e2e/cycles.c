/* cycles: reads lines "batches tail epochs entries {from count}..." (tail: 0 drop, 1 flush, 2 carry)
 * and answers each with the number of cycles of so many epochs and the lengths of the first 40 of the
 * run, or with "refused". */
#include "runtime/loop/epochs.h"

#include <stdio.h>

int main(void) {
    ga_accumulate list[8];
    ga_epochs s = {.accumulate = list};
    long long batches, from;
    double epochs;
    int tail, count;
    while (scanf("%lld %d %lf %d", &batches, &tail, &epochs, &s.accumulates) == 4) {
        for (int i = 0; i < s.accumulates; i++) {
            if (scanf("%lld %d", &from, &count) != 2) return 1;
            list[i] = (ga_accumulate){from, count};
        }
        s.batches = batches;
        s.tail = (ga_tail)tail;
        if (ga_epochs_check(&s, NULL) < 0) {
            printf("refused\n");
            continue;
        }
        printf("%lld", (long long)ga_epochs_cycles(&s, epochs));
        ga_place p = {0};
        for (int c = 0; c < 40; c++) {
            const int length = ga_epochs_cycle(&s, &p);
            printf(" %d", length);
            ga_epochs_advance(&s, &p, length);
        }
        printf("\n");
    }
    return 0;
}
