/* stop.h: requests to stop. SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless ignored when the program starts)
 * set a flag that the program polls; a second SIGINT ends the process at once. SIGPIPE is ignored:
 * training continues when its output is closed. */
#ifndef GA_STOP_H
#define GA_STOP_H

#include "base/ga.h"

int ga_stop_open(ga_err *e);
int ga_stop_requested(void); /* 0, or the number of the signal */

#endif
