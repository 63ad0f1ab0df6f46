//@ head(header, watched)
$header
#include "probes.h"
//% if watched then
#include "train_watch.h"
//% end

#include <math.h>
#include <stdio.h>
#include <string.h>

//% if watched then
#include "runtime/log/variant.h"
//% end
#include "runtime/loop/stop.h"

enum { RUNNING, DONE, STOPPED, OUT_OF_PATIENCE };

//@ counted()
static ga_comm_counts counted(const model *m) { return ga_comm_counted(m->comm); }

//@ device_counted()
/* The exchanges between ranks that the device has made. */
static ga_comm_counts counted(const model *m) {
    const ga_device_counters *c = ga_device_get_counters(m->device);
    return (ga_comm_counts){.collectives = c->collectives, .bytes = c->collective_bytes};
}

/* The work of the device, for the log. */
static void log_device(model *m) {
    const ga_device_facts *f = ga_device_get_facts(m->device);
    const ga_device_counters *c = ga_device_get_counters(m->device);
    ga_log_device(m->log, &(ga_device_use){
        .name = f->name, .arch = f->arch, .graph_launches = c->graph_launches,
        .graph_kernels = c->graph_kernels, .kernel_launches = c->kernel_launches,
        .device_bytes = c->device_bytes, .pinned_bytes = c->pinned_bytes});
}

//@ log_update(fields, momentum, scale, positions)
static void log_update(model *m, double start, ga_comm_counts before) {
    const step *s = &m->step;
    const ga_comm_counts now = counted(m);
    const double seconds = ga_clock() - start;
    const int64_t rows = (int64_t)s->rows;
    ga_log_update(m->log, &(ga_update_event){
        .fields = GA_HAS_GRAD_NORM$(fields), .cycle = m->count.cycle, .cycles = m->cycles,
        .update = m->count.update, .micro = m->count.micro, .epoch = ga_loader_place(m->loader).epoch,
        .rows = rows, .loss = s->loss, .lr = s->lr, .grad_norm = s->grad_norm,
//% if momentum then
        .momentum = s->momentum,
//% end
//% if scale.text ~= "" then
        .scale = $scale,
//% end
        .skipped = m->count.skipped, .weight = s->weight,
        .ms = 1e3 * seconds, .rows_per_s = (double)rows / seconds,
//% if positions > 0 then
        .tokens_per_s = $positions * (double)rows / seconds,
//% end
        .collectives = now.collectives + now.small - before.collectives - before.small,
        .comm_bytes = now.bytes - before.bytes});
}

//@ best(name, metric, more, patience, min_delta, kept)
static const ga_best_rule BEST = {
    .metric = $metric, .more = $more, .patience = $patience, .min_delta = $min_delta};

/* Prints the best evaluation, and its checkpoint if that was kept. */
static void say_best(const model *m, const ga_options *o) {
    if (!m->started || !m->checkpoint || o->quiet || m->best.cycle < 0 || ga_comm_rank(m->comm) != 0) return;
//% if kept then
    char name[GA_CKPT_NAME];
    ga_ckpt_name(m->best.cycle, 0, name);
    if (ga_ckpt_has(m->checkpoint, m->best.cycle)) {
        ga_say("$name: best %s %.6g at cycle %lld, kept: %s/%s", BEST.metric, m->best.value,
               (long long)m->best.cycle, o->checkpoint ? o->checkpoint : m->run.checkpoints, name);
        return;
    }
//% end
    ga_say("$name: best %s %.6g at cycle %lld", BEST.metric, m->best.value, (long long)m->best.cycle);
}

//@ evaluate(name, plateau, best, parameters, plateau_metric)
//% if plateau then
/* due: the schedule looks at it too. */
//% end
//% if best then
/* counts: it may be the best, and patience looks at it. */
//% end
static int log_evaluation(model *m$parameters, ga_err *e) {
    ga_eval_event event;
    GA_TRY($(name)_probe_micro(m, -1, e));
    GA_TRY($(name)_model_evaluate(m, &event, e));
//% if best then
    if (counts) ga_best_take(&BEST, ga_eval_value(&event, BEST.metric), m->count.cycle, &m->best);
    event.best = counts && m->best.cycle == m->count.cycle;
//% end
    ga_log_eval(m->log, &event);
//% if plateau then
    return due ? $(name)_model_report(m, ga_eval_value(&event, "$plateau_metric"), e) : 0;
//% else
    return 0;
//% end
}

//@ cycle_by_steps(name)
/* One cycle in steps, where something is to be seen or saved between them. */
static int cycle_by_steps(model *m, const ga_options *o, int batches, ga_err *e) {
    GA_TRY(ga_cycle_begin(&m->count, m->count.r + batches, e));
    for (int k = 0; k < batches; k++) {
        GA_TRY($(name)_probe_micro(m, m->count.r, e));
        GA_TRY($(name)_model_micro(m, k, e));
        if (ga_cycle_boundary(&m->count)) GA_TRY($(name)_model_boundary(m, e));
        if (o->watch) GA_TRY($(name)_model_watch(m, o, e));
        if (m->count.micro == o->stop_micro && k + 1 < batches) {
            ga_loader_release(m->loader, k + 1);
            return STOPPED;
        }
    }
    ga_loader_release(m->loader, batches);
    return m->count.micro == o->stop_micro ? STOPPED : RUNNING;
}

//@ reading_stopped(name)
/* The stream cannot be read any further: what was trained is saved, if no other ranks are in the midst
 * of their next cycle. */
static int reading_stopped(model *m, int code) {
    ga_err why;
    if (ga_comm_size(m->comm) == 1 && m->count.cycle > 0 && m->count.r == 0 && $(name)_model_save(m, &why) < 0)
        ga_say("$name: cycle %lld: %s", (long long)m->count.cycle, why.msg);
    return code;
}

//@ goes_on(by_epoch, due)
/* Whether nothing is to be done between the coming cycle and the next one: then the device goes on. */
//% if by_epoch then
static bool goes_on(const model *m, int batches) {
//% else
static bool goes_on(const model *m) {
//% end
    ga_cycle count = m->count;
    count.cycle++;
//% if by_epoch then
    ga_place next = ga_loader_place(m->loader);
    const int64_t epoch = next.epoch;
    ga_epochs_advance(&m->epochs, &next, batches);
    const bool epoch_ends = next.epoch != epoch;
//% end
    $due
    return count.cycle < m->cycles;
}

//@ one_cycle(name, stream, watched, goes_on)
static int one_cycle(model *m, const ga_options *o, ga_err *e) {
    const int batches = ga_loader_cycle(m->loader, e);
//% if stream then
    if (batches < 0) return reading_stopped(m, batches);
//% else
    if (batches < 0) return batches;
//% end
//% if watched then
    GA_TRY($(name)_watch_kernels(m, o, batches, e));
//% end
    if (PROBES || o->watch || o->stop_micro || m->count.r > 0) return cycle_by_steps(m, o, batches, e);
    $goes_on
    GA_TRY($(name)_model_cycle(m, batches, e));
    ga_loader_release(m->loader, batches);
    return RUNNING;
}

//@ checkpoint(name, kept)
/* A checkpoint that cannot be written does not end training, but the third in a row or the last one
 * does; what was written before is still there. */
//% if kept then
/* kept: the best of the evaluations whose checkpoints were written. */
static int checkpoint(model *m, bool last, int *failures, ga_best *kept, ga_err *e) {
//% else
static int checkpoint(model *m, bool last, int *failures, ga_err *e) {
//% end
    const int code = $(name)_model_save(m, e);
    if (code >= 0) *failures = 0;
//% if kept then
    if (code >= 0) {
        *kept = m->best;
    } else {
        m->best.value = kept->value;
        m->best.cycle = kept->cycle;
    }
//% end
    if (code >= 0 || last || ++*failures == 3) return code;
    ga_say("$name: cycle %lld: %s; training goes on", (long long)m->count.cycle, e->msg);
    return 0;
}

//@ train(name, by_epoch, stops_at_nonfinite, hopeless, at_least, ignores_nonfinite, log, evaluate, best, checkpoint)
static int train(model *m, const ga_options *o, ga_err *e) {
    int failures = 0;
//% if best.kept then
    ga_best kept = m->best;
//% end
//% if ignores_nonfinite then
    bool said = false;
//% end
    while (m->count.cycle < m->cycles) {
        const double start = ga_clock();
        const ga_comm_counts before = counted(m);
//% if by_epoch then
        const int64_t epoch = ga_epochs_began(ga_loader_place(m->loader));
//% end
        const int code = one_cycle(m, o, e);
        if (code == GA_NONFINITE) log_update(m, start, before); /* the skip that was one too many */
        if (code < 0) return code;
        if (m->count.r > 0) {
            GA_TRY($(name)_model_save(m, e));
            return STOPPED;
        }
//% if by_epoch then
        const bool epoch_ends = ga_loader_place(m->loader).epoch != epoch;
//% end
        const bool last = m->count.cycle == m->cycles;
        $log
//% if stops_at_nonfinite then
        if ($hopeless)
            return ga_fail(e, GA_NONFINITE, "cycle %lld: %g elements of the gradient are not finite; "
                           $at_least
                           "train.on_nonfinite = \"skip\" would go on", (long long)m->count.cycle,
                           m->step.nonfinite);
//% end
//% if ignores_nonfinite then
        if (m->step.nonfinite > 0 && !said && ga_comm_rank(m->comm) == 0)
            ga_say("$name: cycle %lld: %g elements of the gradient are not finite, and train.on_nonfinite "
                   "is \"ignore\": the parameters are lost, and such ones are never saved",
                   (long long)m->count.cycle, m->step.nonfinite);
        said = said || m->step.nonfinite > 0;
//% end
        $evaluate
//% if best.patience > 0 then
        const bool ends = last || ga_best_exhausted(&BEST, &m->best);
//% end
        if (m->stop || code == STOPPED) {
            GA_TRY($(name)_model_save(m, e));
            return STOPPED;
        }
        $checkpoint
//% if best.patience > 0 then
        if (ends && !last) {
            if (ga_comm_rank(m->comm) == 0)
                ga_say("$name: cycle %lld: training ends, as %lld evaluations in a row were no better "
                       "(train.patience)", (long long)m->count.cycle, (long long)m->best.bad);
            return OUT_OF_PATIENCE;
        }
//% end
    }
    return DONE;
}

//@ run(name, ranks, sample, ema, patience, uncounted, watched, no_tokens, no_outputs, no_weights)
static int run(model *m, const ga_options *o, ga_err *e) {
//% if no_outputs then
    if (o->predict) return ga_fail(e, GA_INPUT, $no_outputs);
//% end
//% if no_weights then
    if (o->save_weights) return ga_fail(e, GA_INPUT, $no_weights);
//% end
//% if no_tokens then
    if (o->sample) return ga_fail(e, GA_INPUT, $no_tokens);
//% elseif not sample then
    if (o->sample) return ga_fail(e, GA_INPUT, "--sample: this program's model gives no tokens");
//% end
    if (!PROBES && (o->profile || o->check_finite))
        return ga_fail(e, GA_INPUT, "--%s: train does not have it, train-probe does: make probe",
                       o->profile ? "profile" : "check-finite");
    if (!o->eval && !o->predict) GA_TRY(ga_stop_open(e)); /* these have nothing to save: a signal ends them at once */
//% if watched then
    GA_TRY($(name)_watch_open(e));
//% end
    GA_TRY($(name)_model_open(m, o, e));
    GA_TRY($(name)_probe_open(m, o, e));
    ga_say("ready");
//% if sample then
    if (o->sample) {
//% if ranks then
        ga_comm_says(m->comm, GA_EVALUATES, m->count.cycle);
//% end
//% if ema then
        GA_TRY($(name)_model_exchange(m, e)); /* nothing else is done with the parameters */
//% end
        GA_TRY($(name)_model_sample(m, o, e));
        return DONE;
    }
//% end
//% if not no_weights then
    if (o->save_weights) {
        GA_TRY($(name)_model_save_weights(m, o, e));
        return DONE;
    }
//% end
//% if not no_outputs then
    if (o->predict) {
        GA_TRY($(name)_model_predict(m, o, e));
        return DONE;
    }
//% end
    if (o->eval) {
        GA_TRY(log_evaluation(m$uncounted, e));
        GA_TRY(ga_log_whole(m->log, e));
        return DONE;
    }
    if (m->count.cycle >= m->cycles)
        ga_say("nothing left to train: %lld of %lld cycles are done", (long long)m->count.cycle,
               (long long)m->cycles);
//% if patience then
    if (ga_best_exhausted(&BEST, &m->best)) {
        ga_say("nothing left to train: %lld evaluations in a row were no better (train.patience)",
               (long long)m->best.bad);
        return OUT_OF_PATIENCE;
    }
//% end
    const int code = train(m, o, e);
    if (code >= 0 && o->dump) GA_TRY($(name)_model_dump(m, o->dump, e));
    return code;
}

//@ stopped(name)
/* How to go on after a stop on request. */
static void say_stopped(const model *m, const ga_options *o) {
    if (ga_comm_rank(m->comm) != 0) return;
    if (!m->checkpoint)
        ga_say("$name: stopped, and nothing was saved: %s", o->overfit ? "--overfit keeps no checkpoints"
               : "--save-init makes no run");
    else if (o->checkpoint)
        ga_say("$name: stopped; it goes on with: %s --checkpoint %s --resume latest", o->argv[0], o->checkpoint);
    else
        ga_say("$name: stopped; it goes on with: %s --resume %s", o->argv[0], m->run.name);
}

//@ start_watching(name)
/* --watch-kernels: train-watch goes on in the place of this program. */
static int start_watching(const ga_options *o) {
    ga_err e;
    const int code = ga_variant_start("train-watch", o->argv, &e);
    ga_say("$name: --watch-kernels: %s", e.msg);
    return -code;
}

//@ watched()
if (o.watch_kernels && !WATCHES) return start_watching(&o);

//@ not_watched(name, why)
if (o.watch_kernels) {
    ga_say("$name: --watch-kernels: $why");
    return 1;
}

//@ main(name, device, filed, best, watching)
int main(int argc, char **argv) {
    ga_open_streams();
    ga_err e = {0};
    ga_options o;
    if (ga_stack_open(&e) < 0) {
        ga_say("$name: %s", e.msg);
        return 3;
    }
    if (ga_options_parse(&o, argc, argv, &e) < 0) {
        ga_say("$name: %s", e.msg);
        return 1;
    }
    if (o.help) {
        const int said = ga_options_help("$name", &e);
        if (said < 0) ga_say("$name: %s", e.msg);
        return -said;
    }
    $watching
//% if device then
    if (o.offline) {
        const int made = $(name)_model_compile_kernels(o.offline, &e);
        if (made < 0) ga_say("$name: %s", e.msg);
        return -made;
    }
//% else
    if (o.offline || o.no_graph) {
        ga_say("$name: --%s: the kernels of this program are not those of a device",
               o.offline ? "offline" : "no-graph");
        return 1;
    }
//% end
    model m = {0};
    const int code = run(&m, &o, &e);
    const char *reason = code == DONE ? "done" : code == STOPPED ? "signal"
        : code == OUT_OF_PATIENCE ? "patience" : code == GA_NONFINITE ? "nonfinite" : "error";
//% if device then
    if (m.started) log_device(&m);
//% end
//% if filed then
    const ga_state_counts moved = ga_state_file_counted(m.state_file);
    if (m.started) ga_log_state_file(m.log, moved.bytes, moved.read, moved.written);
//% end
    if (m.started) {
        ga_log_end(m.log, m.count.cycle, m.count.update, m.count.skipped, reason);
        ga_run_close(&m.run, &(ga_run_end){reason, m.count.cycle, m.count.update, m.count.skipped});
    } else {
        ga_run_drop(&m.run);
    }
//% if best then
    say_best(&m, &o);
//% end
    if (code == STOPPED) say_stopped(&m, &o);
    ga_err lost;
    const int told = $(name)_probe_report(&m, code < 0 ? &lost : &e), status = code < 0 ? code : told;
    if (status < 0) {
        ga_say("$name: %s", e.msg);
        if (m.comm) ga_comm_abort(m.comm, -status); /* the other ranks may be waiting for this one */
    }
    $(name)_probe_close(&m);
    $(name)_model_close(&m);
    return status < 0 ? -status : code == STOPPED ? GA_EXIT_STOPPED : 0;
}
