//@ probes(header, guard, name)
$header
#ifndef $guard
#define $guard

#include "model.h"

#ifdef GA_PROBES

enum { PROBES = 1 };

/* probes.c, which step.c includes. Cycles are to be run in steps. */
int $(name)_probe_open(model *m, const ga_options *o, ga_err *e);
int $(name)_probe_micro(model *m, int k, ga_err *e); /* micro-step k of a cycle begins; -1: none */
int $(name)_probe_report(model *m, ga_err *e);
void $(name)_probe_close(model *m);

#else

enum { PROBES = 0 };

static inline int $(name)_probe_open(model *m, const ga_options *o, ga_err *e) { return (void)m, (void)o, (void)e, 0; }
static inline int $(name)_probe_micro(model *m, int k, ga_err *e) { return (void)m, (void)k, (void)e, 0; }
static inline int $(name)_probe_report(model *m, ga_err *e) { return (void)m, (void)e, 0; }
static inline void $(name)_probe_close(model *m) { (void)m; }

#endif
#endif
