/* progress.h: one line on the terminal that is drawn again and again: how far training is. It goes to
 * stderr, and only where that is a terminal; everything that is to be kept is the log's. */
#ifndef GA_PROGRESS_H
#define GA_PROGRESS_H

#include "base/ga.h"

typedef struct ga_progress {
    bool shown;             /* stderr is a terminal, and nobody asked for silence */
    int64_t first;          /* cycle of the first event; -1: none yet */
    double begun, drawn_at; /* seconds of ga_clock */
    double ms;              /* of a cycle, smoothed */
} ga_progress;

/* What the line shows; columns at the end are left out where the terminal is narrow. */
typedef struct ga_progress_event {
    int64_t cycle, cycles; /* done, and where training ends */
    double loss, lr;
    double grad_norm; /* negative: not shown */
    double ms;        /* of this cycle */
    double amount;    /* of this cycle, in `unit` */
    const char *unit; /* "rows" or "tok" */
} ga_progress_event;

void ga_progress_open(ga_progress *p, bool wanted);

/* Draws the line, at most ten times a second, but always at the first and the last event
 * and where other lines came between. */
void ga_progress_update(ga_progress *p, const ga_progress_event *v);

/* Leaves the line as it is and goes on below it. */
void ga_progress_end(ga_progress *p);

/* The line for a terminal of so many columns, zero-terminated; size > 0. */
void ga_progress_text(char *out, size_t size, int columns, const ga_progress *p,
                      const ga_progress_event *v, double now);

#endif
