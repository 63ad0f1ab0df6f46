/* progress.h: the progress line: redrawn on stderr, only if that is a terminal. Lines that are kept
 * belong to the log. */
#ifndef GA_PROGRESS_H
#define GA_PROGRESS_H

#include "log/curve.h"

/* Figures of the line; a narrow terminal shows the first columns only. */
typedef struct ga_progress_event {
    int64_t cycle, cycles; /* cycles done, and at the end of training */
    double loss, lr;
    double grad_norm; /* negative: not shown */
    double ms;        /* of this cycle */
    double amount;    /* of this cycle, in `unit` */
    const char *unit; /* "rows" or "tok" */
} ga_progress_event;

typedef struct ga_progress {
    bool shown;             /* stderr is a terminal, and --quiet is not given */
    int64_t first;          /* cycle of the first event; -1: none yet */
    double begun, drawn_at; /* seconds of ga_clock */
    double ms;              /* smoothed time of a cycle */
    bool plots, braille;    /* the losses are drawn above the line, in braille signs */
    ga_curve curve;
    ga_progress_event last;
} ga_progress;

void ga_progress_open(ga_progress *p, bool wanted);

/* The most memory that this program had, in bytes, without that of the program that started it. */
int64_t ga_peak_bytes(void);

/* Draws the losses above the line from now on. */
void ga_progress_plot(ga_progress *p);

/* Draws the line at most ten times a second (five with a curve), and always at the first event, at the last one and
 * after other lines. */
void ga_progress_update(ga_progress *p, const ga_progress_event *v);

/* Keeps the line and moves below it; with a curve it is drawn once more where other lines have removed it. */
void ga_progress_end(ga_progress *p);

/* Writes the line for a terminal of `columns` columns to out, zero-terminated; size > 0. */
void ga_progress_text(char *out, size_t size, int columns, const ga_progress *p,
                      const ga_progress_event *v, double now);

#endif
