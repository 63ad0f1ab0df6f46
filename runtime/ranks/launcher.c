/* launcher.c: variables that launchers set for their processes. Slurm's SLURM_NTASKS is not one of them:
 * it is also set in a batch script, where a program runs once. */
#include "ranks/launcher.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

/* Open MPI, MPICH, Slurm: their processes are children of the launcher; and torchrun. */
static const char *const SIZES[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"};
enum { PARENTS = 3 };

int ga_launcher_check(int size, const char *what, ga_err *e) {
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        const char *text = getenv(SIZES[i]);
        const long started = text ? strtol(text, NULL, 10) : 0;
        if (started > size)
            return ga_fail(e, GA_INPUT, "started as one of %ld processes (%s=%.20s), but %s", started,
                           SIZES[i], text, what);
    }
    return GA_OK;
}

void ga_launcher_follow(void) {
    for (int i = 0; i < PARENTS; i++)
        if (getenv(SIZES[i])) prctl(PR_SET_PDEATHSIG, SIGKILL);
}
