/* masks.c: gives each rank the affinity mask that a launcher would set, and a quota. MASKS has FIRST:COUNT of the CPUs of
 * rank 0, of rank 1, and so on, divided by blanks; without it the mask is the true one. MACHINE is a folder in the place
 * of /: its files below /proc/self/cgroup and /sys/fs/cgroup are read. Linked with --wrap=sched_getaffinity,--wrap=open. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *mask) {
    char *masks = getenv("MASKS");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    long first = 0, count = 0;
    if (!masks) return __real_sched_getaffinity(pid, bytes, mask);
    for (int i = 0; i <= (rank ? atoi(rank) : 0); i++) {
        first = strtol(masks, &masks, 10);
        count = strtol(masks + 1, &masks, 10);
    }
    CPU_ZERO(mask);
    for (long cpu = first; cpu < first + count; cpu++) CPU_SET((size_t)cpu, mask);
    return 0;
}

int __wrap_open(const char *path, int flags, ...) {
    const char *machine = getenv("MACHINE");
    char there[4096];
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (!machine || (strncmp(path, "/proc/self/cgroup", 17) != 0 && strncmp(path, "/sys/fs/cgroup", 14) != 0))
        return __real_open(path, flags, mode);
    snprintf(there, sizeof there, "%s%s", machine, path);
    return __real_open(there, flags, mode);
}
