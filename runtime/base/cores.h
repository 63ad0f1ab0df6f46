/* cores.h: the cores that a process may use, and how many threads it takes. */
#ifndef GA_CORES_H
#define GA_CORES_H

#include <limits.h>

enum { GA_NO_QUOTA = INT_MAX };

/* Cores that the quota of the control group of this process pays for, rounded up; GA_NO_QUOTA without one. The groups
 * above it count too. root: the folder that has /proc and /sys/fs/cgroup, "" on a true machine. */
int ga_cores_quota(const char *root);

/* The cores that the affinity mask of this process allows and the quota pays for; at least 1. */
int ga_cores_usable(void);

/* The number of threads of a process, and what has decided it. */
typedef struct ga_threads {
    int count;
    const char *why; /* "--threads", "target.threads", "work" or "cores" */
} ga_threads;

/* option, spec: the numbers that the command line and the spec give, 0 for none; the first one wins. Without them as
 * many threads as the planned work keeps busy, `busy`, but not more than the part of the usable cores that each of
 * `ranks` processes has: those of the affinity mask, as far as the quota pays for them. At least 1. */
ga_threads ga_threads_choose(int option, int spec, int busy, int ranks);

#endif
