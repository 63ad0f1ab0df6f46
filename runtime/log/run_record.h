/* run_record.h: run.json of a run, one JSON object: run, program, started (UTC), host, pid, command (words), seed,
 * spec_sha256, settings (texts by name, compared between runs), differs (from the run before; absent in the first),
 * resumed (a list: from, started, host, pid, command), end (reason, cycle, update, skipped, seconds; absent while the
 * run goes on, and after it was killed). Used by run.c on rank 0, before and after training. */
#ifndef GA_RUN_RECORD_H
#define GA_RUN_RECORD_H

#include "log/run.h"

/* Writes the record of a new run; `before`: folder of the run before, or NULL. */
int ga_run_record_new(const ga_run *r, const ga_run_start *s, const char *before, ga_err *e);

/* Notes that the run goes on from s->resumed. */
int ga_run_record_resumed(const ga_run *r, const ga_run_start *s, ga_err *e);

int ga_run_record_end(const ga_run *r, const ga_run_end *end, ga_err *e);

/* The text `started` of the run in `folder`, which sorts by time; "" if it has no record. */
void ga_run_record_started(const char *folder, char out[32]);

#endif
