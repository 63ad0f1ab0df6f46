/* workers.h: the work of a run, shared by processes beside each other: who is free claims the next task, those that
 * took longest in the last run come first. Seconds of every test are written down, printed, and kept for the next. */
#ifndef GA_WORKERS_H
#define GA_WORKERS_H

#include <stddef.h>

typedef struct {
    int (*run)(const void *what); /* 0: all tests passed */
    const void *what;
    double seconds; /* expected */
} ga_task;

typedef struct {
    ga_task *tasks;
    size_t count;
} ga_tasks;

/* A moment, or a span of time: of the clock, and of the processor, of this process and of those it waited for. */
typedef struct {
    double wall, cpu;
} ga_time;

/* Reads the seconds of earlier runs from `file` and makes room for those of this one. To be called before all else
 * here. */
void ga_workers_open(const char *file);

/* Seconds that the test took when it last ran, or `guess`. */
double ga_workers_expected(const char *test, double guess);

/* Runs every task in one of `count` processes, from 1; returns how many tasks failed. Of one process the tasks keep
 * their order. */
int ga_workers_run(ga_tasks *list, int count);

/* The number of this process, from 1, or 0 where there is only one. */
int ga_workers_number(void);

ga_time ga_workers_now(void);

/* Writes down that the test took the time since `begin`. */
void ga_workers_took(const char *test, ga_time begin);

/* Prints the seconds of each file and of the slowest tests, and keeps them; returns how many tests ran. */
size_t ga_workers_report(void);

#endif
