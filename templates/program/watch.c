// watch: train_watch.h, train_watch.c, compared.c, where train-watch takes edited kernels in the place of those in use.

//@ header(header, guard, name, fields)
$header
#ifndef $guard
#define $guard

#include "model.h"

#ifdef GA_WATCH

#include "runtime/log/comparison.h"

/* The functions that step.c gives to the rest of the program: a module of train-watch is step.c with one text of
 * kernels.c. */
typedef struct step_functions {
    $fields
    void (*compare)(ga_comparison *c, const ga_found *element); /* behind each call from now on */
    void (*compare_arrays)(model *m, bool written);             /* if that, or an update, has written them */
} step_functions;

enum { WATCHES = 1 };

/* train_watch.c. The first module; then a look at kernels.c before a cycle of `batches` micro-steps. */
int $(name)_watch_open(ga_err *e);
int $(name)_watch_kernels(model *m, const ga_options *o, int batches, ga_err *e);

#else

enum { WATCHES = 0 };

static inline int $(name)_watch_open(ga_err *e) { return (void)e, 0; }
static inline int $(name)_watch_kernels(model *m, const ga_options *o, int batches, ga_err *e) {
    return (void)m, (void)o, (void)batches, (void)e, 0;
}

#endif
#endif

//@ head(header, stubs)
$header
#include "train_watch.h"

#include <dlfcn.h>
#include <stdio.h>

#include "runtime/log/edits.h"

static ga_edits edits;
static const step_functions *used; /* those of the module in use */

/* -- the functions of step.c ------------------------------------------------------------------- */

$stubs

//@ work(steps, ema)
/* -- a comparison ------------------------------------------------------------------------------ */

typedef struct comparing {
    model *m;
    const step_functions *edited;
    int batches;             /* of the coming cycle */
    const ga_found *element; /* NULL: all values */
} comparing;

enum { STEPS = $steps }; /* of a compared cycle: the first one writes gradients, a second one adds to them */

/* In a child, whose memory is a copy: a cycle of the first micro-batches, or twice of the only one, then an evaluation
 * of the first one, by one thread. */
static int work(void *arg, ga_comparison *c, bool edited, ga_err *e) {
    const comparing *x = arg;
    model *m = x->m;
    const step_functions *s = edited ? x->edited : used;
    ga_arena memory;
    GA_TRY(ga_arena_open(&memory, "team", (ga_team_bytes(1) + 4095) / 4096 * 4096, e));
    GA_TRY(ga_team_open(&m->team, 1, &memory, e));
    s->compare(c, x->element);
    GA_TRY(ga_cycle_begin(&m->count, STEPS, e));
    for (int k = 0; k < STEPS; k++) GA_TRY(s->micro(m, k < x->batches ? k : 0, e));
    GA_TRY(s->boundary(m, e));
    if (m->step.skip) ga_compare_skipped(c);
    s->compare_arrays(m, false);
    m->eval_batch = (char *)ga_loader_field(m->loader, 0, 0);
//% if ema then
    GA_TRY(s->exchange(m, e));
    s->compare_arrays(m, true);
//% end
    return s->evaluate_batch(m, e);
}

/* Compares the edited kernels on the first micro-batches of the coming cycle. */
static int compare(model *m, const step_functions *edited, int batches, ga_found *found, ga_err *e) {
    comparing x = {.m = m, .edited = edited, .batches = batches};
    const ga_comparing job = {.run = work, .arg = &x, .arenas = m->memory, .arena_count = ARENAS, .real = REAL};
    GA_TRY(ga_compare(found, &job, e));
    if (found->verdict > GA_DIFFERS || found->verdict == GA_EQUAL || found->what.kernel) return 0;
    ga_found first; /* an element behind the update: which call has written it? */
    x.element = found;
    GA_TRY(ga_compare(&first, &job, e));
    const bool same = first.verdict == GA_DIFFERS || first.verdict == GA_ROUNDED;
    if (same && first.what.kernel) found->what.kernel = first.what.kernel, found->what.at = first.what.at;
    return 0;
}

//@ watch(name)
static void say(const model *m, const ga_found *f, const char *why, bool taken) {
    char place[GA_NAME_MAX + 128], values[GA_NAME_MAX + 512] = "";
    const char *kernel = f->what.kernel ? f->what.kernel : "the update", *at = f->what.at ? f->what.at : "the boundary";
    if (!why && f->verdict != GA_EQUAL)
        snprintf(values, sizeof values, "%s = %.9g by %s (%s) was %.9g: the difference is %.3g, rounding at most %.3g",
                 ga_found_place(f, place), f->after, kernel, at, f->before, f->after - f->before, f->most);
    if (!taken)
        ga_say("$name: cycle %lld: the edited kernels.c is refused: %s; training goes on with the kernels before",
               (long long)m->count.cycle, why ? why : values);
    else if (f->verdict == GA_ROUNDED)
        ga_say("$name: cycle %lld: the edited kernels.c is taken: %lld results differ by rounding, most of all %s",
               (long long)m->count.cycle, (long long)f->rounded, values);
    else
        ga_say("$name: cycle %lld: the edited kernels.c is taken: all bits are equal", (long long)m->count.cycle);
}

static void log_edit(const model *m, const ga_found *f, const char *why, bool taken) {
    char hash[65], place[GA_NAME_MAX + 128];
    const bool values = !why && f->verdict != GA_EQUAL;
    ga_edits_hash(&edits, hash);
    ga_log_kernels(m->log, &(ga_kernels_event){
        .cycle = m->count.cycle, .update = m->count.update, .sha256 = hash, .taken = taken,
        .result = why ? "failed" : f->verdict == GA_EQUAL ? "equal" : taken ? "rounded" : "differs", .reason = why,
        .kernel = !values ? NULL : f->what.kernel ? f->what.kernel : "the update",
        .element = values ? ga_found_place(f, place) : NULL, .before = f->before, .after = f->after, .most = f->most});
}

//@ functions(name)
/* The module of the text that was found. */
static int load(void **module, const step_functions **functions, ga_err *e) {
    const void *symbol = NULL;
    GA_TRY(ga_edits_load(&edits, "$(name)_step_functions", module, &symbol, e));
    *functions = symbol;
    return 0;
}

int $(name)_watch_open(ga_err *e) {
    char folder[GA_PATH_MAX];
    void *module;
    GA_TRY(ga_program_folder(folder, sizeof folder, e));
    GA_TRY(ga_edits_open(&edits, folder, e));
    if (!ga_edits_found(&edits)) return ga_fail(e, GA_INPUT, "%.900s/kernels.c: cannot be read", folder);
    ga_err why;
    if (load(&module, &used, &why) < 0) return ga_fail(e, (ga_status)why.code, "kernels.c: %.400s", why.msg);
    ga_edits_use(&edits);
    return 0;
}

int $(name)_watch_kernels(model *m, const ga_options *o, int batches, ga_err *e) {
    if (!o->watch_kernels || m->count.r > 0 || !ga_edits_found(&edits)) return 0;
    const step_functions *edited = NULL;
    void *module = NULL;
    ga_found found = {.verdict = GA_EQUAL};
    int code = load(&module, &edited, e);
    if (code == 0) code = compare(m, edited, batches, &found, e);
    if (code == 0 && found.skipped && found.verdict <= GA_ROUNDED) { /* nothing is known of the kernels of the update */
        dlclose(module);
        ga_edits_forget(&edits);
        return 0;
    }
    const char *why = code < 0 ? e->msg : found.verdict == GA_ENDED ? found.reason : NULL;
    const bool taken = !why && found.verdict <= GA_ROUNDED;
    if (!taken || !o->quiet) say(m, &found, why, taken);
    log_edit(m, &found, why, taken);
    if (taken) {
        used = edited; /* the module before stays loaded: nothing is gained by asking who may still be in it */
        ga_edits_use(&edits);
    } else if (module) {
        dlclose(module);
    }
    return 0;
}

//@ compared(header, name, types, partials, views, rows)
$header
/* probes.c includes this for train-watch. */
#include "train_watch.h"

enum { PARTIAL_SUMS = $partials, VIEW_CALLS = $views }; /* the first calls of CALLS make the views */

static const ga_dtype TYPES[ALL_RESULTS] = {
    $types
};

static const ga_param PARTIALS = {"partials", 0, 1, 1, {PARTIAL_SUMS}, 0, PARTIAL_SUMS, PARTIAL_SUMS};

static ga_comparison *comparison; /* in a child that compares; else NULL */
static const ga_found *element;   /* alone looked at behind an update, or NULL */
static bool updated;              /* and the arrays were not compared since */

static void compare_with(ga_comparison *c, const ga_found *only) {
    comparison = c;
    element = only;
}

static void compare_array(const ga_array *a) {
    for (int i = 0; i < a->count; i++)
        for (int l = 0; l < a->params[i].count; l++) {
            const size_t at = (size_t)ga_layout_index(&a->params[i], l, 0) * ga_dtype_bytes(a->dtype);
            ga_compare_see(comparison, &(ga_compared){
                NULL, NULL, &a->params[i], l, a->suffix, a->dtype, (char *)a->base + at});
        }
}

/* Parameters and state, if an update or something else has written them. */
static void compare_arrays(model *m, bool written) {
    if (!updated && !written) return;
    updated = false;
    compare_array(&m->saved.parameters);
    for (int i = 0; i < STATES; i++) compare_array(&m->saved.state[i]);
}

static void compare_element(const char *function, const char *at) {
    if (element) ga_compare_element(comparison, element, function, at);
}

/* Behind a call of `function` in iteration l, which wrote to the places `at`. */
static void compare_results(ga_worker *w, model *m, int call, const char *function, int l, void *const *at) {
    if (check_call(call, function, &m->error) < 0) {
        ga_team_fail(w, GA_INPUT);
        return;
    }
    const char *place = KERNEL_PROBES[CALLS[call].kernel].at;
    compare_element(function, place);
    if (call < VIEW_CALLS) compare_arrays(m, false);
    for (int i = 0; i < CALLS[call].result_count; i++) {
        const int k = CALLS[call].results[i].whole;
        if (k < 0) continue;
        ga_compare_see(comparison, &(ga_compared){
            function, place, &RESULTS[k], CALLS[call].results[i].each ? l : 0, "", TYPES[k], at[i]});
    }
}

/* Behind a kernel of the boundary. */
static void compare_partials(model *m, int kernel) {
    const char *name = KERNEL_PROBES[kernel].name, *at = KERNEL_PROBES[kernel].at;
    updated = true;
    ga_compare_see(comparison, &(ga_compared){name, at, &PARTIALS, 0, "", GA_F64, m->partials});
    compare_element(name, at);
}

#define PROBED(call, function, ...) \
    ((comparison ? ga_compare_call(comparison, function) : (void)0), call, \
     (comparison ? compare_results(w, m, __COUNTER__ - FIRST_CALL, function, l, (void *const[]){__VA_ARGS__}) \
                 : (void)0))
#define TIMED(kernel, call) \
    ((comparison ? ga_compare_call(comparison, KERNEL_PROBES[kernel].name) : (void)0), call, \
     (comparison ? compare_partials(m, kernel) : (void)0))

extern const step_functions $(name)_step_functions;
const step_functions $(name)_step_functions = {
    $rows
    .compare = compare_with, .compare_arrays = compare_arrays};
