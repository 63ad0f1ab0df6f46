/* launcher.c: variables that launchers set for their processes. Slurm's SLURM_NTASKS is not one of them:
 * it is also set in a batch script, where a program runs once. */
#define _GNU_SOURCE
#include "ranks/launcher.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Open MPI, MPICH, Slurm: their processes are children of the launcher; and torchrun. */
static const char *const SIZES[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"};
enum {
    PARENTS = 3,
    FIRST_WAKE = 500, /* ms until the launcher is woken: other ranks of this host say their lines before it ends them */
    NEXT_WAKE = 100,  /* ms to the next time: it sleeps up to four times */
    PATIENCE = 4000,  /* ms until it is killed: a second is enough if the network is whole */
    LEAVE = 'l', KILL = 'k' /* words of a rank to its guard */
};

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

/* The process beside a rank: waits until the rank or the launcher has ended. */
static noreturn void keep_guard(int launcher, int channel) {
    struct pollfd watched[] = {{.fd = launcher, .events = POLLIN}, {.fd = channel, .events = POLLIN}};
    char word = 0;
    bool kills = false;
    while (poll(watched, 2, -1) > 0 && !watched[0].revents && read(channel, &word, 1) > 0) {
        if (word == LEAVE) _exit(0);
        kills = true;
    }
    int wait = FIRST_WAKE;
    for (int waited = 0; poll(watched, 1, wait) == 0; wait = NEXT_WAKE) {
        waited += wait;
        if (waited >= PATIENCE && !kills) break;
        syscall(SYS_pidfd_send_signal, launcher, waited < PATIENCE ? SIGCHLD : SIGKILL, NULL, 0);
    }
    _exit(0);
}

/* In a child of the rank: away from the signals and files of that. */
static noreturn void become_guard(int launcher, int channel) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    prctl(PR_SET_NAME, "end-launcher");
    channel = fcntl(channel, F_DUPFD, 2);
    dup2(launcher, 0);
    dup2(channel, 1);
    syscall(SYS_close_range, 2, UINT_MAX, 0);
    keep_guard(0, 1);
}

void ga_guard_open(ga_guard *g) {
    int ends[2];
    *g = (ga_guard){.channel = -1};
    const int launcher = has_parent() ? (int)syscall(SYS_pidfd_open, getppid(), 0) : -1;
    if (launcher < 0) return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
        const pid_t process = fork(); /* arenas, where g may lie, are not in the child */
        if (process == 0) become_guard(launcher, ends[1]);
        close(ends[1]);
        *g = (ga_guard){ends[0], process};
    }
    close(launcher);
}

void ga_guard_kills(const ga_guard *g) {
    if (g->channel >= 0) (void)!send(g->channel, &(char){KILL}, 1, MSG_NOSIGNAL);
}

void ga_guard_close(ga_guard *g) {
    if (g->channel < 0) return;
    (void)!send(g->channel, &(char){LEAVE}, 1, MSG_NOSIGNAL);
    close(g->channel);
    g->channel = -1;
    if (g->process > 0) waitpid(g->process, NULL, 0);
}
