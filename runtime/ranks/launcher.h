/* launcher.h: the launcher (mpirun, srun, torchrun) that has started this process. */
#ifndef GA_LAUNCHER_H
#define GA_LAUNCHER_H

#include "base/ga.h"

/* GA_INPUT if the environment of a launcher says that it started more than `size` processes: each of
 * them would train the same model alone. The message names the variable; `what` says how to build or
 * start the program instead. */
int ga_launcher_check(int size, const char *what, ga_err *e);

/* Ends this process when the mpirun or srun that has started it ends, for whatever reason. */
void ga_launcher_follow(void);

/* For a rank that ends next: kills the mpirun or srun that has started it, unless that has ended within this time. If
 * the network is cut, it waits for its other parts for many minutes. */
void ga_launcher_end(int milliseconds);

#endif
