/* stop.h: a request to stop. INT, TERM, USR1 and HUP (unless ignored from outside) set a flag that
 * the program polls; a second INT ends the process at once. PIPE is ignored: a closed output is no
 * reason to stop. */
#ifndef GA_STOP_H
#define GA_STOP_H

#include "base/ga.h"

int ga_stop_open(ga_err *e);
int ga_stop_requested(void); /* 0, or the number of the signal */

#endif
