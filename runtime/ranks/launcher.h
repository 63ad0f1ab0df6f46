/* launcher.h: the launcher (mpirun, srun, torchrun) that has started this process. */
#ifndef GA_LAUNCHER_H
#define GA_LAUNCHER_H

#include "base/ga.h"

#include <sys/types.h>

/* GA_INPUT if the environment of a launcher says that it started more than `size` processes: each of
 * them would train the same model alone. The message names the variable; `what` says how to build or
 * start the program instead. */
int ga_launcher_check(int size, const char *what, ga_err *e);

/* Ends this process when the mpirun or srun that has started it ends, for whatever reason. */
void ga_launcher_follow(void);

/* A process beside a rank that mpirun or srun has started. If the rank ends without a word, it makes the launcher end
 * soon: Open MPI sleeps for a second between its signals to ranks, also to one that is gone, and SIGCHLD, harmless to
 * any process, ends a sleep. The guard ends with the launcher, or after four seconds. */
typedef struct ga_guard {
    int channel; /* to the process; -1: none */
    pid_t process;
} ga_guard;

/* Starts the guard, unless a launcher has started this process in another way. */
void ga_guard_open(ga_guard *g);

/* The guard kills the launcher at the end of its four seconds: if the network is cut, that waits for its other parts
 * for many minutes. */
void ga_guard_kills(const ga_guard *g);

/* The guard leaves: this rank ends as it should, or the launcher is to give the others time. */
void ga_guard_close(ga_guard *g);

#endif
