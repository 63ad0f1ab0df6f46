/* launcher.c: variables that launchers set for their processes. Slurm's SLURM_NTASKS is not one of them:
 * it is also set in a batch script, where a program runs once. */
#define _GNU_SOURCE
#include "ranks/launcher.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static bool has_parent(void) {
    for (int i = 0; i < PARENTS; i++)
        if (getenv(SIZES[i])) return true;
    return false;
}

void ga_launcher_follow(void) {
    if (has_parent()) prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void ga_launcher_end(int milliseconds) {
    if (!has_parent()) return;
    const int launcher = (int)syscall(SYS_pidfd_open, getppid(), 0);
    if (launcher < 0 || fork() != 0) return;
    struct pollfd ended = {.fd = dup2(launcher, 0), .events = POLLIN};
    syscall(SYS_close_range, 1, UINT_MAX, 0); /* the others see the connections of this rank closed */
    setsid();
    prctl(PR_SET_NAME, "end-launcher");
    if (poll(&ended, 1, milliseconds) == 0) syscall(SYS_pidfd_send_signal, ended.fd, SIGKILL, NULL, 0);
    _exit(0);
}
