/* stop.h: requests to stop or to save. SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless ignored when the program starts)
 * set a flag that the program polls; a second SIGINT ends the process at once. SIGUSR2 asks for a checkpoint at the
 * next boundary. SIGPIPE is ignored: training continues when its output is closed. */
#ifndef GA_STOP_H
#define GA_STOP_H

#include "base/ga.h"

int ga_stop_open(ga_err *e);
int ga_stop_requested(void); /* 0, or the number of the signal */

/* The requests of this process as a number, to be summed over at most 256 ranks; and what the sum says: whether to
 * stop, and in *save whether to save, a request that is done with then. */
double ga_stop_requests(void);
bool ga_stop_agreed(double sum, bool *save);

#endif
