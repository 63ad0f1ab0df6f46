/* stop.c: the signal flag. It is a static variable, since a signal handler gets no argument of ours. */
#include "loop/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t requested;

static void note(int number) {
    if (number == SIGINT && requested == SIGINT) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    requested = number;
}

int ga_stop_open(ga_err *e) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
    struct sigaction action = {.sa_handler = note}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 4; i++) {
        if (sigaction(numbers[i], NULL, &before))
            return ga_fail(e, GA_ENVIRONMENT, "signals: %s", strerror(errno));
        if (numbers[i] == SIGHUP && before.sa_handler == SIG_IGN) continue;
        if (sigaction(numbers[i], &action, NULL))
            return ga_fail(e, GA_ENVIRONMENT, "signals: %s", strerror(errno));
    }
    action.sa_handler = SIG_IGN; /* the failed write is reported instead */
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
    requested = 0;
    return GA_OK;
}

int ga_stop_requested(void) {
    return requested;
}
