/* run.h: runs of a program. A run is the folder PROGRAM/runs/NAME with log.jsonl, checkpoints, spec.lua (the spec of
 * the program) and run.json (run_record.h). A start of training makes a new run or goes on with one; an earlier run is
 * never written to. Rank 0 makes, locks and writes; all ranks know the paths. */
#ifndef GA_RUN_H
#define GA_RUN_H

#include "files/ckpt.h"
#include "log/options.h"

enum { GA_RUN_NAME = 64 };

typedef struct ga_run {
    char name[GA_RUN_NAME];          /* "001"; "": none */
    char folder[GA_PATH_MAX];
    char checkpoints[GA_PATH_MAX];   /* in it; "": no run */
    char log[GA_PATH_MAX];
    bool continues;                  /* was there before; on rank 0 */
    int lock;                        /* descriptor of the folder's .lock, on rank 0; 0: none */
    double began;                    /* ga_clock */
} ga_run;

/* How a run is started. Texts outlive the call only. */
typedef struct ga_run_start {
    const char *folder;              /* of the program */
    const char *program, *command;   /* its name, the command that wrote it */
    const char *spec_sha256;
    const char *resumed;             /* path of the checkpoint, or "" */
    int64_t cycle;                   /* of that checkpoint, */
    int r;                           /* and its micro-steps of the next cycle, if it lies inside one */
    uint64_t seed;
    const ga_options *options;
} ga_run_start;

/* How it ended. */
typedef struct ga_run_end {
    const char *reason;              /* as in the log: "done", "signal", ... */
    int64_t cycle, update, skipped;
} ga_run_end;

/* Holds the program's folder as one of its users, until the process ends: gagen does not change files meanwhile.
 * Waits while gagen writes them. A folder without .lock is not gagen's and needs none. */
int ga_run_use(const char *program_folder, ga_err *e);

/* Finds the checkpoint of `--resume what`; path has GA_PATH_MAX bytes. "latest" is the newest checkpoint of `folder`,
 * or if that is NULL of the newest run that has a whole one; NULL is the checkpoint of the best evaluation there, if
 * one is kept, else the newest; the name of a run is its newest checkpoint; else `what` is a path. stderr names each
 * checkpoint that is rejected. Rank 0 decides, all ranks get the same path. */
int ga_run_find(const char *program_folder, const char *folder, const char *what, ga_comm *comm, char *path,
                ga_err *e);

/* Makes the folder of a new run, or goes on in the run that the checkpoint belongs to: its log is cut back to the
 * checkpoint's cycle. A start with --save-init makes no run. Collective. */
int ga_run_open(ga_run *r, const ga_run_start *s, ga_comm *comm, ga_err *e);

/* Says which run begins, unless quiet, and links runs/latest to it: for people, no program reads that link. Rank 0. */
void ga_run_begin(const ga_run *r, bool quiet);

/* Writes how the run ended into run.json, on rank 0. A failure is said and changes nothing else. */
void ga_run_close(ga_run *r, const ga_run_end *end);

/* Removes the folder of a new run that could not begin to train. */
void ga_run_drop(ga_run *r);

#endif
