/* masks.c: gives each rank the affinity mask that a launcher would set. MASKS has FIRST:COUNT of the CPUs of rank 0, of
 * rank 1, and so on, divided by blanks; without it the mask is the true one. Linked with --wrap=sched_getaffinity. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask);

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask) {
    char *masks = getenv("MASKS");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    long first = 0, count = 0;
    if (!masks || !rank) return __real_sched_getaffinity(pid, bytes, mask);
    for (int i = 0; i <= atoi(rank); i++) {
        first = strtol(masks, &masks, 10);
        count = strtol(masks + 1, &masks, 10);
    }
    CPU_ZERO(mask);
    for (long cpu = first; cpu < first + count; cpu++) CPU_SET((size_t)cpu, mask);
    return 0;
}
