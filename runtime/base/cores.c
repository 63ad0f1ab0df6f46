/* cores.c: the cores of a process: its affinity mask, the quota of a control group, version 2 or 1. */
#define _GNU_SOURCE
#include "base/cores.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 8192, FOLDER = 4096 };

/* Reads a small file of the kernel as text; false without it. */
static bool read_text(char *text, size_t size, const char *folder, const char *name) {
    char path[FOLDER + 64];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = n < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return false;
    const ssize_t got = read(fd, text, size - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* The cores that one group pays for. A group without a limit says "max" in version 2, -1 in version 1. */
static int quota_of(const char *folder) {
    char text[64];
    long long quota = 0, period = 0;
    if (read_text(text, sizeof text, folder, "cpu.max")) {
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return GA_NO_QUOTA;
    } else if (read_text(text, sizeof text, folder, "cpu.cfs_quota_us")) {
        sscanf(text, "%lld", &quota);
        if (read_text(text, sizeof text, folder, "cpu.cfs_period_us")) sscanf(text, "%lld", &period);
    }
    if (quota <= 0 || period <= 0) return GA_NO_QUOTA;
    const long long cores = (quota + period - 1) / period;
    return cores < GA_NO_QUOTA ? (int)cores : GA_NO_QUOTA;
}

/* Whether the list "cpu,cpuacct" of controllers has cpu. */
static bool has_cpu(const char *list, size_t n) {
    while (n > 0) {
        const char *comma = memchr(list, ',', n);
        const size_t word = comma ? (size_t)(comma - list) : n;
        if (word == 3 && memcmp(list, "cpu", 3) == 0) return true;
        list += comma ? word + 1 : word;
        n -= comma ? word + 1 : word;
    }
    return false;
}

/* The least quota from the group `path` up to the root of its hierarchy. In a container the path may be that of the
 * host: its folders are not there, and the root is the container's own group. */
static int least_quota(const char *root, const char *mounted, const char *path) {
    char folder[FOLDER];
    const int base = snprintf(folder, sizeof folder, "%s%s", root, mounted);
    const int n = snprintf(folder, sizeof folder, "%s%s%s", root, mounted, path);
    int least = GA_NO_QUOTA;
    if (n >= (int)sizeof folder) return least;
    for (char *end = folder + n; end; end = strrchr(folder, '/')) {
        *end = 0;
        if (end - folder < base) break;
        const int quota = quota_of(folder);
        if (quota < least) least = quota;
    }
    return least;
}

int ga_cores_quota(const char *root) {
    char text[FILE_BYTES], *next = text;
    int least = GA_NO_QUOTA;
    char proc[FOLDER];
    snprintf(proc, sizeof proc, "%s/proc/self", root);
    if (!read_text(text, sizeof text, proc, "cgroup")) return least;
    for (char *line; (line = strsep(&next, "\n"));) { /* a line is NUMBER:CONTROLLERS:PATH */
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        const size_t n = (size_t)(path - controllers - 1);
        const char *mounted = n == 0 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu"; /* version 2: no controllers */
        if (n > 0 && !has_cpu(controllers + 1, n)) continue;
        const int quota = least_quota(root, mounted, path + 1);
        if (quota < least) least = quota;
    }
    return least;
}

int ga_cores_usable(void) {
    cpu_set_t usable;
    const long cores = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable)
        : sysconf(_SC_NPROCESSORS_ONLN); /* the mask does not hold more than CPU_SETSIZE cores */
    const int paid = ga_cores_quota("");
    return cores < 1 ? 1 : paid < cores ? paid : (int)cores;
}
