/* process.h: runs another program without a shell, in a process group of its own. */
#ifndef GA_PROCESS_H
#define GA_PROCESS_H

#include <stddef.h>

typedef struct {
    char **argv;     /* ends with NULL; argv[0] is looked up in PATH */
    const char *cwd; /* NULL: this process's folder */
    char **environment; /* ends with NULL; NULL: this process's */
    int capture;     /* 1: both outputs are kept apart; 2: both together in out */
    double seconds;  /* limit of wall-clock time, after which the group is killed; 0: none */
} ga_command;

typedef struct {
    int status; /* exit status, 128 + n after signal n */
    int timed_out;
    double cpu_seconds; /* processor time of the command and of the children that it waited for */
    double peak_bytes;  /* the most memory that one of them had at a time */
    char *out, *err; /* captured, each ends with a zero byte; NULL if not */
    size_t out_size, err_size;
} ga_outcome;

/* Runs the command to its end. 0, or an errno value if it could not be started. ga_outcome_free
 * frees captured outputs, of which at most 64 MiB each are kept. */
int ga_command_run(const ga_command *c, ga_outcome *o);
void ga_outcome_free(ga_outcome *o);

#endif
