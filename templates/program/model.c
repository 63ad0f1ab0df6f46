//@ head(header, facts, ranks, plateau, checks)
$header
#include "probes.h"

#include <math.h>
#include <stdio.h>
//% if checks then
#include <stdlib.h>
//% end
#include <string.h>

#include "runtime/files/file.h"
//% if ranks then
#include "runtime/files/layout_shard.h"
#include "runtime/log/start.h"
//% end
//% if plateau then
#include "runtime/loop/plateau.h"
//% end

$facts

#include "memory.c" /* where everything lies, and how parameters start */
#include "data.c"   /* the rows of the data files */
#include "save.c"   /* checkpoints and dumps */

//@ share_statistics(device, moved, array, on_device, first)
/* An evaluation has the running statistics of rank 0 on all ranks: each moves its own by its own rows, and a
 * checkpoint has those of rank 0. */
static int share_statistics(model *m, ga_err *e) {
    enum { BYTES = $moved * sizeof(real) };
    real *moved = m->$array + ($first);
//% if device then
    const ga_address on_device = m->$on_device + sizeof(real) * ($first);
    GA_TRY(ga_device_download(m->device, moved, on_device, BYTES, e));
    GA_TRY(ga_comm_broadcast(m->comm, moved, BYTES, 0, e));
    return ga_device_upload(m->device, on_device, moved, BYTES, e);
//% else
    return ga_comm_broadcast(m->comm, moved, BYTES, 0, e);
//% end
}

//@ evaluate(name, device, ranks, ema, shift, shares, before, measured, split)
int $(name)_model_evaluate(model *m, ga_eval_event *out, ga_err *e) {
    ga_loader_config eval = m->data;
    eval.data = m->eval_data;
    int64_t batches = ga_eval_batches(&eval);
//% if ranks then
    ga_comm_says(m->comm, GA_EVALUATES, m->count.cycle);
//% end
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0; /* those of a cycle in which --resume has begun */
//% if shift then
    m->sums[SUM_SHIFT] = m->target_shift;
//% end
//% if device then
    GA_TRY($(name)_model_push_step(m, e));
//% end
//% if shares then
    GA_TRY(share_statistics(m, e));
//% end
//% if ema then
    GA_TRY($(name)_model_exchange(m, e));
//% end
    if (EVAL_BATCHES > 0 && batches > EVAL_BATCHES) batches = EVAL_BATCHES;
    for (int64_t k = 0; k < batches; k++) {
        ga_eval_batch(&eval, k, m->eval_batch);
        GA_TRY($(name)_model_evaluate_batch(m, e));
    }
//% if ema then
    GA_TRY($(name)_model_exchange(m, e));
//% end
    GA_TRY(ga_comm_all_reduce(m->comm, m->sums, SUMS, GA_F64, e));
    const double *sums = m->sums;
    $before
    *out = (ga_eval_event){.cycle = m->count.cycle, .rows = (int64_t)sums[SUM_ROWS], .split = $split,
        .metrics = {
            $measured
        }};
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
//% if device then
    return $(name)_model_push_step(m, e);
//% else
    return 0;
//% end
}

//@ report(name, device, plateau_fields)
int $(name)_model_report(model *m, double metric, ga_err *e) {
    static const ga_plateau PLATEAU = {$plateau_fields};
    step *s = &m->step;
    ga_plateau_take(&PLATEAU, metric, &s->plateau_rate, &s->plateau_best, &s->plateau_bad, &s->plateau_rest);
//% if device then
    return $(name)_model_push_step(m, e);
//% else
    (void)e;
    return 0;
//% end
}

//@ no_watch(name)
static int find_watched(const ga_options *o, char name[GA_NAME_MAX], int *i, int *l, ga_err *e) {
    (void)o, (void)i, (void)l;
    *name = 0;
    return ga_fail(e, GA_INPUT, "--watch: the parameters are divided over the processes: expected a program that "
                   "keeps them whole, of parallel \"zero2\"");
}

int $(name)_model_watch(model *m, const ga_options *o, ga_err *e) {
    char name[GA_NAME_MAX];
    int i, l;
    (void)m;
    return find_watched(o, name, &i, &l, e);
}

//@ watch(name, device)
/* The parameter of --watch: its name, its index in PARAMS and its layer. */
static int find_watched(const ga_options *o, char name[GA_NAME_MAX], int *i, int *l, ga_err *e) {
    snprintf(name, GA_NAME_MAX, "%.*s", (int)o->watch_length, o->watch);
    if (ga_layout_find(PARAMS, PARAM_COUNT, name, i, l)) return 0;
    return ga_fail(e, GA_INPUT, "--watch %s: there is no such parameter; the first is %s", name,
                   PARAMS[0].name);
}

int $(name)_model_watch(model *m, const ga_options *o, ga_err *e) {
    char name[GA_NAME_MAX];
    int i, l;
    GA_TRY(find_watched(o, name, &i, &l, e));
//% if device then
    GA_TRY($(name)_model_download(m, e));
//% end
    const real *x = m->flat_w + PARAMS[i].offset + l * PARAMS[i].stride;
    const int n = o->watch_count < PARAMS[i].n ? o->watch_count : (int)PARAMS[i].n;
    ga_log_watch(m->log, m->count.micro - 1, name, x, REAL, n);
    return 0;
}

//@ open_run(name, resumed_length, by_epochs)
/* A resumed run must have something to do, or just be done. */
static int check_end(const model *m, const ga_options *o, const char *resumed, ga_err *e) {
    if (!ga_options_instead(o) && !o->own_loop && m->count.cycle > m->cycles)
        return ga_fail(e, GA_INPUT, "%s: of cycle %lld, but training ends at cycle %lld", resumed,
                       (long long)m->count.cycle, (long long)m->cycles);
    if (o->stop_micro && o->stop_micro <= m->count.micro)
        return ga_fail(e, GA_INPUT, "--stop-micro %lld: %lld micro-steps are done already",
                       (long long)o->stop_micro, (long long)m->count.micro);
    return 0;
}

/* Takes what was learned, of the best checkpoint or else the newest, for what does not train. Without any, --eval takes
 * the initial values. */
static int open_learned(model *m, const ga_options *o, bool goes_on, char *path, ga_err *e) {
    const char *instead = ga_options_instead(o);
    const bool speaks = ga_comm_rank(m->comm) == 0;
    ga_err why = {0};
    const int code = $(name)_model_load(m, o->checkpoint, NULL, goes_on, path, &why);
    if (code < 0 && o->eval && !*path) {
        if (speaks) ga_say("--eval: %.400s: these are the initial values", why.msg);
        return 0;
    }
    if (code < 0)
        return ga_fail(e, (ga_status)code, "%s: %.400s; train first, or name parameters with --init", instead, why.msg);
    if (!o->quiet && speaks) ga_say("%s: %s", instead, path);
    return 0;
}

/* The checkpoint to begin with, the folder of the run, the files that are written. Only training makes a run. */
static int open_run(model *m, const ga_options *o, char *resumed, ga_err *e) {
    ga_arena *runtime = &m->memory[ARENA_RUNTIME];
    const char *instead = ga_options_instead(o);
    const bool trains = !instead && !o->own_loop, uses = instead && !o->eval; /* uses: what was learned, of any seed */
    if (o->resume) {
        GA_TRY($(name)_model_load(m, o->checkpoint, o->resume, !uses, resumed, e));
        $resumed_length
        GA_TRY(check_end(m, o, resumed, e));
    } else if (instead && !o->init && !(o->eval && o->save_init)) {
        GA_TRY(open_learned(m, o, !uses, resumed, e));
//% if by_epochs then
    } else if (trains && m->cycles < 1) {
        return ga_fail(e, GA_INPUT, "train: the epochs are 0 updates, expected at least 1: use more epochs, a smaller "
                       "batch or accumulate, or fewer ranks");
//% end
    }
    if (trains)
        GA_TRY(ga_run_open(&m->run, &(ga_run_start){
            .folder = m->folder, .program = "$name", .command = SPEC_COMMAND, .spec_sha256 = SPEC_SHA256,
            .resumed = resumed, .cycle = m->count.cycle, .r = m->count.r, .seed = m->seed,
            .options = o}, m->comm, e));
    const bool in_run = *m->run.name != 0;
    GA_TRY(ga_log_open(&m->log, o->log ? o->log : in_run ? m->run.log : NULL, o->quiet || uses,
                       ga_comm_rank(m->comm), runtime, e));
    if (o->plot) ga_log_plot(m->log);
    ga_ckpt_config c = checkpoint_config(m, o->checkpoint ? o->checkpoint : m->run.checkpoints);
    c.resumes = o->resume != NULL;
    if (!trains || o->overfit || (!in_run && !o->checkpoint)) return 0;
    return ga_ckpt_open(&m->checkpoint, &c, runtime, e);
}

//@ open_parts(name, device, first, matrix, parallel, length, schedule_lines, nominal, best, ranks, groups, scale_started)
static int open_parts(model *m, const ga_options *o, char *resumed, ga_err *e) {
    ga_arena *runtime = &m->memory[ARENA_RUNTIME];
//% if ranks and not device then
    GA_TRY(ga_comm_open(&m->comm, runtime, &m->memory[ARENA_WIRES], e));
//% else
    GA_TRY(ga_comm_open(&m->comm, runtime, NULL, e));
//% end
//% if first.required then
    if (ga_comm_size(m->comm) != RANKS)
        return ga_fail(e, GA_INPUT, "started with the number of ranks %d, the spec says %d: start as many, by gagen "
                       "run -n %d or run.sh, or make a program with --ranks %d", ga_comm_size(m->comm), RANKS, RANKS,
                       ga_comm_size(m->comm));
//% end
    GA_TRY(ga_comm_handshake(m->comm, SPEC_HASH, e));
//% if groups then
    GA_TRY(open_groups(m, e));
//% end
//% if ranks then
    GA_TRY(open_division(m, e));
//% end
//% if first.filed then
    GA_TRY(open_state_file(m, e));
//% end
//% if parallel then
    GA_TRY(ga_nccl_open(&m->nccl, m->device, m->comm, e));
//% end
//% if device then
    GA_TRY($(name)_model_load_kernels(m, e));
    m->eager = o->no_graph || PROBES;
//% if first.placed then
    m->threads = ga_threads_choose(o->threads, THREADS, BUSY_THREADS, ga_comm_local_size(m->comm));
    GA_TRY(ga_team_open(&m->team, m->threads.count, runtime, e));
//% end
//% else
//% if matrix then
    GA_TRY(ga_matrix_open(e));
//% end
    m->threads = ga_threads_choose(o->threads, THREADS, BUSY_THREADS, ga_comm_local_size(m->comm));
    GA_TRY(ga_team_open(&m->team, m->threads.count, runtime, e));
//% end
    GA_TRY(open_data(m, o, e));
//% if ranks then
    const ga_ckpt_state now = state_of(m);
    GA_TRY(ga_start_same_inputs(o, &now, m->comm, e));
//% end
    $length
    $schedule_lines
    m->cycles = o->cycles ? o->cycles : cycles;
    m->nominal = $nominal;
    $scale_started
    m->count.a = A;
//% if best then
    m->best = GA_BEST_NONE;
//% end
    init_parameters(m);
    $(first.numbers)
    if (o->init) {
//% if first.divided then
        checkpoint_config(m, NULL); /* says where parameters lie */
        GA_TRY(ga_safetensors_init(o->init, $(first.saved), o->fresh, ga_comm_rank(m->comm) == 0, e));
//% else
        const ga_array all = {PARAMS, PARAM_COUNT, "", REAL, m->flat_w, NULL, NULL};
        GA_TRY(ga_safetensors_init(o->init, &all, 1, o->fresh, ga_comm_rank(m->comm) == 0, e));
//% end
    }
    $(first.averages)
    GA_TRY(open_run(m, o, resumed, e));
//% if ranks then
    const ga_ckpt_config all = checkpoint_config(m, NULL);
    GA_TRY(ga_start_same_values(&all, e));
//% end
//% if first.divided then
    if (o->save_init) GA_TRY(ga_shard_save(m->comm, o->save_init, $(first.saved), e));
//% else
    if (o->save_init && ga_comm_rank(m->comm) == 0)
        GA_TRY(ga_safetensors_save(o->save_init, &m->saved.parameters, 1, e));
//% end
    return $(name)_model_refresh(m, e);
}

//@ open(name, device, placed, ranks, planned, target)
int $(name)_model_open(model *m, const ga_options *o, ga_err *e) {
    char resumed[GA_PATH_MAX] = "", watched[GA_NAME_MAX];
    int i, l;
    memset(m, 0, sizeof *m);
    if (o->watch) GA_TRY(find_watched(o, watched, &i, &l, e));
    if (o->dump) GA_TRY(ga_file_folder(o->dump, "--dump", e));
    GA_TRY(ga_program_folder(m->folder, sizeof m->folder, e));
    GA_TRY(ga_run_use(m->folder, e));
    m->seed = o->seed >= 0 ? (uint64_t)o->seed : SEED;
    GA_TRY(open_memory(m, e));
    GA_TRY(open_parts(m, o, resumed, e));
    $planned
    ga_log_start(m->log, &(ga_start_event){
        .program = "$name", .version = VERSION, .spec_sha256 = SPEC_SHA256, .target = "$target",
        .profile = PROFILE, .resumed_from = *resumed ? resumed : NULL,
//% if device and not placed then
        .ranks = ga_comm_size(m->comm), .threads = 1, .threads_why = "device",
//% else
        .ranks = ga_comm_size(m->comm), .threads = ga_team_threads(m->team),
        .threads_why = m->threads.why,
//% end
        .parameters = PARAMETERS, .planned_bytes = planned, .seed = m->seed,
        .overfit = o->overfit});
    m->started = true;
//% if ranks then
    ga_comm_says(m->comm, GA_COMPUTES, m->count.cycle + 1);
//% end
    ga_run_begin(&m->run, o->quiet);
    return 0;
}

//@ close(name, device, placed, parallel, divided, filed)
void $(name)_model_close(model *m) {
    ga_ckpt_close(m->checkpoint);
    ga_loader_close(m->loader);
    ga_log_close(m->log);
//% if parallel then
    ga_nccl_close(m->nccl);
//% end
//% if not device or placed then
    ga_team_close(m->team);
//% end
    ga_comm_close(m->comm);
    $divided
    $filed
//% if device then
    ga_device_close(m->device);
    for (int i = 0; i < ARENAS; i++)
        if (!m->pinned[i]) ga_arena_close(&m->memory[i]);
//% else
    for (int i = 0; i < ARENAS; i++) ga_arena_close(&m->memory[i]);
//% end
}

//@ predictions()
#include "predictions.c"

//@ sample()
#include "sample.c"
