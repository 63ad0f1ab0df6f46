/* launcher.h: whether a launcher of processes (mpirun, srun, torchrun) has started this one. */
#ifndef GA_LAUNCHER_H
#define GA_LAUNCHER_H

#include "base/ga.h"

/* Refuses with GA_INPUT if a launcher says that it has started more than `size` processes, and names
 * the variable by which it says so: each of them would train the same thing. `what` says how the
 * program is to be built or started instead. */
int ga_launcher_check(int size, const char *what, ga_err *e);

#endif
