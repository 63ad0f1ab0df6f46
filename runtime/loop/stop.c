/* stop.c: the signal flag. It is a static variable, since a signal handler gets no argument of ours. */
#include "loop/stop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t requested, saving;

enum { SAVE = 1024 }; /* above the number of ranks */

static void note(int number) {
    if (number == SIGINT && requested == SIGINT) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    if (number == SIGUSR2) saving = 1;
    else requested = number;
}

int ga_stop_open(ga_err *e) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
    struct sigaction action = {.sa_handler = note}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 5; i++) {
        if (sigaction(numbers[i], NULL, &before))
            return ga_fail(e, GA_ENVIRONMENT, "signals: %s", strerror(errno));
        if (numbers[i] == SIGHUP && before.sa_handler == SIG_IGN) continue;
        if (sigaction(numbers[i], &action, NULL))
            return ga_fail(e, GA_ENVIRONMENT, "signals: %s", strerror(errno));
    }
    action.sa_handler = SIG_IGN; /* the failed write is reported instead */
    sigaction(SIGPIPE, &action, NULL);
    sigaction(SIGXFSZ, &action, NULL);
    requested = saving = 0;
    return GA_OK;
}

int ga_stop_requested(void) {
    return requested;
}

double ga_stop_requests(void) {
    return (requested != 0) + (saving ? SAVE : 0);
}

bool ga_stop_agreed(double sum, bool *save) {
    *save = sum >= SAVE;
    if (*save) saving = 0;
    return sum - SAVE * (double)(int)(sum / SAVE) > 0;
}
