//@ model(header, facts, name, params, init, zeros, places, view_places, activation_places, flat_places, arenas, reader, data_tables, open_sources, split, eval_data, states, state_params, length, accumulate, serving, measured, f1, device, parallel, device_arenas, target, nominal, sample, tensors, residues, gradients, numbers_saved, numbers_loaded, numbers_started, scale_saved, scale_loaded, scale_started, schedule_lines, plateau, plateau_fields, ema, scaled, scale, last_scale, collected, half_sums, gradient_places, gradient_dtype, gradient_form, overflows)
$header
#include "probes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/files/file.h"
//% if plateau then
#include "runtime/loop/plateau.h"
//% end
#include "runtime/data/$reader"
#include "runtime/base/rng.h"

$facts

/* -- where everything lies --------------------------------------------------------------------- */

/* Parameters in the order of the flat space: offset, from layer to layer, elements of one. */
static const ga_param PARAMS[] = {
    $params
};
$state_params

/* Initial values: uniform in [-value, value], normal with deviation value, or the value itself. */
typedef enum init_kind { UNIFORM, NORMAL, VALUE } init_kind;
static const struct { init_kind kind; double value; } INIT[] = {
    $init
};

//% if device then
static parameters parameters_at(ga_address flat) {
//% else
static parameters parameters_at(real *flat) {
//% end
    return (parameters){
        $places
    };
}

//% if half_sums then
//% if device then
static gradients gradients_at(ga_address flat) {
//% else
static gradients gradients_at(bf16 *flat) {
//% end
    return (gradients){
        $gradient_places
    };
}

//% end
static void place(model *m) {
    $flat_places
//% if device then
    m->w = parameters_at(m->device_w);
    m->g = $(gradient_form)_at(m->device_g);
//% if residues then
    m->residue = parameters_at(m->device_residue);
//% end
    $view_places
    const ga_address a = m->device_memory[DEVICE_ACTIVATIONS];
//% else
    m->w = parameters_at(m->flat_w);
    m->g = $(gradient_form)_at(m->flat_g);
//% if residues then
    m->residue = parameters_at(m->flat_residue);
//% end
    $view_places
    real *const a = (real *)m->memory[ARENA_ACTIVATIONS].base;
//% end
    m->a = (activations){
        $activation_places
    };
//% if device then
    m->device_partials = m->device_memory[DEVICE_PARTIALS];
//% if tensors then
    m->device_tensors = m->device_partials + 2 * sizeof(double) * NORM_TILES;
//% end
    m->device_batches = m->device_memory[DEVICE_BATCHES];
    m->block = m->device_memory[DEVICE_STEP];
    m->transfer = (transfer *)m->memory[ARENA_TRANSFER].base;
//% else
    m->partials = (double *)m->memory[ARENA_PARTIALS].base;
//% if tensors then
    m->tensors = m->partials + 2 * NORM_TILES;
//% end
//% end
}

//% if device then
/* Host memory that the device reads by itself: an arena like the others, made and released by the
 * driver. */
static int open_pinned(model *m, int i, const char *name, size_t bytes, ga_err *e) {
    void *base;
    GA_TRY(ga_device_pinned(m->device, bytes, &base, e));
    memset(base, 0, bytes);
    m->memory[i] = (ga_arena){.name = name, .bytes = bytes, .base = base};
    m->pinned[i] = true;
    return 0;
}

static int open_device(model *m, ga_err *e) {
    static const size_t PLAN[DEVICE_ARENAS] = {
        $device_arenas
    };
    GA_TRY(ga_device_open(&m->device, -1, e));
    const ga_device_facts *f = ga_device_get_facts(m->device);
    if (f->arch < ARCH)
        return ga_fail(e, GA_ENVIRONMENT, "device %d (%s) is sm_%d, the spec says sm_%d or newer",
                       f->ordinal, f->name, f->arch, ARCH);
    for (int i = 0; i < DEVICE_ARENAS; i++)
        if (PLAN[i] > 0) GA_TRY(ga_device_arena(m->device, PLAN[i], &m->device_memory[i], e));
    GA_TRY(ga_device_stream(m->device, &m->stream, e));
    GA_TRY(ga_device_stream(m->device, &m->copying, e));
    for (int i = 0; i < 2; i++) {
        GA_TRY(ga_device_event(m->device, &m->arrived[i], e));
        GA_TRY(ga_device_event(m->device, &m->consumed[i], e));
    }
//% if parallel then
    GA_TRY(ga_device_stream(m->device, &m->reducing, e));
    GA_TRY(ga_device_event(m->device, &m->forked, e));
    GA_TRY(ga_device_event(m->device, &m->joined, e));
//% end
    return 0;
}

//% end
static int open_memory(model *m, ga_err *e) {
//% if device then
    static const struct { const char *name; size_t bytes; bool pinned; } PLAN[ARENAS] = {
        $arenas
    };
    GA_TRY(open_device(m, e));
    for (int i = 0; i < ARENAS; i++)
        GA_TRY(PLAN[i].pinned ? open_pinned(m, i, PLAN[i].name, PLAN[i].bytes, e)
                              : ga_arena_open(&m->memory[i], PLAN[i].name, PLAN[i].bytes, e));
//% else
    static const struct { const char *name; size_t bytes; } PLAN[ARENAS] = {
        $arenas
    };
    for (int i = 0; i < ARENAS; i++)
        GA_TRY(ga_arena_open(&m->memory[i], PLAN[i].name, PLAN[i].bytes, e));
//% end
    place(m);
    return 0;
}

static void init_parameters(model *m) {
    char name[GA_NAME_MAX];
    for (int i = 0; i < PARAM_COUNT; i++) {
        const ga_param *p = &PARAMS[i];
        const double v = INIT[i].value;
        for (int l = 0; l < p->count; l++) {
            real *x = m->flat_w + p->offset + l * p->stride;
            ga_param_name(p, l, "", name);
            if (INIT[i].kind == UNIFORM) ga_init_uniform(x, REAL, p->n, m->seed, name, -v, v);
            if (INIT[i].kind == NORMAL) ga_init_normal(x, REAL, p->n, m->seed, name, v);
            if (INIT[i].kind == VALUE) ga_init_value(x, REAL, p->n, v);
        }
    }
    $zeros
}

/* -- data -------------------------------------------------------------------------------------- */

/* {from, n}: from cycle `from` on a full cycle has n micro-steps. */
static const ga_accumulate ACCUMULATE[] = {$accumulate};

$data_tables

static int open_data(model *m, const ga_options *o, ga_err *e) {
    char folder[GA_PATH_MAX], path[DATA_FILES][GA_PATH_MAX];
    ga_arena *arena = &m->memory[ARENA_DATA];
    GA_TRY(ga_program_folder(folder, sizeof folder, e));
    for (int i = 0; i < DATA_FILES; i++) {
        GA_TRY(ga_data_path(path[i], sizeof path[i], o->data, folder, FILES[i], e));
        GA_TRY(ga_data_file_read(path[i], FILES[i], &m->files[i], e));
    }
    $open_sources
    m->data = (ga_loader_config){
        .data = {&m->train, $split},
        .batch = B, $serving
        .rank = ga_comm_rank(m->comm), .world = ga_comm_size(m->comm),
        .seed = m->seed, .shuffle = SHUFFLE,
    };
    $eval_data
    if (ga_batch_bytes(&m->train, B) != BATCH_BYTES)
        return ga_fail(e, GA_BUG, "a micro-batch has %zu bytes, the plan says %d",
                       ga_batch_bytes(&m->train, B), BATCH_BYTES);
    m->eval_batch = ga_take(&m->memory[ARENA_LOADER], BATCH_BYTES, 64, e);
    if (!m->eval_batch) return GA_BUG;
    m->epochs = ga_loader_epochs(&m->data);
    return ga_loader_open(&m->loader, &m->data, &m->memory[ARENA_LOADER], e);
}

/* -- checkpoints ------------------------------------------------------------------------------- */

static ga_ckpt_config checkpoint_config(model *m, const char *folder) {
    saved *a = &m->saved;
    a->parameters = (ga_array){PARAMS, PARAM_COUNT, "", REAL, m->flat_w};
    a->gradient[0] = (ga_array){PARAMS, TRAINED_PARAMS, "", $gradient_dtype, m->flat_g};
//% if residues then
    a->gradient[1] = (ga_array){PARAMS, TRAINED_PARAMS, ".residue", REAL, m->flat_residue};
//% end
//% if collected > 0 then
    /* behind the trained ones: what the cycle has collected for running statistics */
    a->gradient[$(gradients - 1)] = (ga_array){PARAMS + TRAINED_PARAMS, $collected, "", REAL, m->flat_g};
//% end
    $states
    a->files[0] = (ga_ckpt_file){"model.safetensors", &a->parameters, 1};
    a->files[1] = (ga_ckpt_file){"optimizer.safetensors", a->state, STATES};
    return (ga_ckpt_config){folder, KEEP, a->files, STATES ? 2 : 1, a->gradient, $gradients,
                            m->comm, &m->epochs, $overflows, "$name", false};
}

static ga_ckpt_state state_of(const model *m) {
    const ga_place p = ga_loader_place(m->loader);
    ga_ckpt_state s = {
        .micro = m->count.micro, .cycle = m->count.cycle, .update = m->count.update,
        .skipped = m->count.skipped, .skipped_in_row = m->count.skipped_in_row,
        .epoch = p.epoch, .position = p.position,
        .batch = B, .accumulate = ga_epochs_accumulate(&m->epochs, m->count.cycle), .r = m->count.r,
        .sums = {m->sums[SUM_WEIGHT], m->sums[SUM_LOSS], m->sums[SUM_ROWS]},
        .nominal = m->nominal, .seed = m->seed, $scale_saved
        .world = ga_comm_size(m->comm), .version = VERSION, .spec_sha256 = SPEC_SHA256,
        .target = "$target", .profile = PROFILE, .data_count = DATA_FILES,
    };
    $numbers_saved
    for (int i = 0; i < DATA_FILES; i++) s.data[i] = m->files[i];
    return s;
}

/* what: "latest" of the folder, or a path; the path that was loaded is left in path[GA_PATH_MAX]. */
int $(name)_model_load(model *m, const char *folder, const char *what, char *path, ga_err *e) {
    const ga_ckpt_config c = checkpoint_config(m, folder);
    GA_TRY(ga_ckpt_find(folder, what, m->comm, path, e));
    const ga_ckpt_state now = state_of(m);
    ga_ckpt_state s;
    GA_TRY(ga_ckpt_load(path, &c, &now, &s, e));
    m->count = (ga_cycle){s.micro, s.cycle, s.update, s.skipped, s.skipped_in_row, s.r,
                          ga_epochs_accumulate(&m->epochs, s.cycle)};
    m->sums[SUM_WEIGHT] = s.sums[GA_SAVED_WEIGHT];
    m->sums[SUM_LOSS] = s.sums[GA_SAVED_LOSS];
    m->sums[SUM_ROWS] = s.sums[GA_SAVED_ROWS];
#ifndef GA_LIBRARY
    if (m->sums[SUM_WEIGHT] < 0)
        return ga_fail(e, GA_INPUT, "%s: lies inside a cycle of backward_by_grad, which only a loop of that kind can "
                       "go on with: use a checkpoint of a whole cycle", path);
#endif
    $numbers_loaded
    $scale_loaded
    if (m->seed != s.seed)
        return ga_fail(e, GA_INPUT, "%s: written with seed %llu, this run has %llu: start with --seed %llu",
                       path, (unsigned long long)s.seed, (unsigned long long)m->seed,
                       (unsigned long long)s.seed);
    return ga_loader_seek(m->loader, (ga_place){s.epoch, s.position, s.cycle, s.r}, e);
}

int $(name)_model_save(model *m, ga_err *e) {
    if (!m->checkpoint) return 0;
    char path[GA_PATH_MAX];
    const double start = ga_clock();
//% if device then
    GA_TRY($(name)_model_download(m, e));
//% end
    const ga_ckpt_state s = state_of(m);
    GA_TRY(ga_ckpt_save(m->checkpoint, &s, path, e));
    ga_log_checkpoint(m->log, m->count.cycle, path, 1e3 * (ga_clock() - start));
    return 0;
}

//% if not device then
#ifdef GA_LIBRARY
/* In a folder that is open only meanwhile. served: the loader's rows were trained on; else the caller's,
 * and the cycle stands at the beginning of an epoch. */
int $(name)_model_save_to(model *m, const char *folder, bool served, ga_err *e) {
    const ga_ckpt_config c = checkpoint_config(m, folder);
    ga_ckpt_state s = state_of(m);
    ga_arena a;
    ga_ckpt *checkpoint = NULL;
    if (!served) {
        s.epoch = 0;
        s.position = s.r;
    }
    GA_TRY(ga_arena_open(&a, "saving", (ga_ckpt_bytes(&c) + 4095) / 4096 * 4096, e));
    int code = ga_ckpt_open(&checkpoint, &c, &a, e);
    if (code >= 0) code = ga_ckpt_save(checkpoint, &s, NULL, e);
    ga_ckpt_close(checkpoint);
    ga_arena_close(&a);
    return code;
}
#endif

//% end
/* -- what is asked for ------------------------------------------------------------------------- */

int $(name)_model_evaluate(model *m, ga_eval_event *out, ga_err *e) {
    ga_loader_config eval = m->data;
    eval.data = m->eval_data;
    int64_t batches = ga_eval_batches(&eval);
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0; /* those of a cycle in which --resume has begun */
//% if device then
    GA_TRY($(name)_model_push_step(m, e));
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
//% if f1 then
    const double found = m->sums[SUM_FOUND]; /* f1 = 2 found / (2 found + wrong) for two classes */
//% end
    *out = (ga_eval_event){.fields = $measured, .cycle = m->count.cycle,
        .rows = (int64_t)m->sums[SUM_ROWS], .split = "eval",
        .loss = m->sums[SUM_LOSS] / m->sums[SUM_WEIGHT],
//% if f1 then
        .f1 = found > 0 ? 2 * found / (2 * found + m->sums[SUM_COUNT] - m->sums[SUM_HITS]) : 0,
//% end
        .accuracy = m->sums[SUM_HITS] / m->sums[SUM_COUNT]};
    for (int i = 0; i < SUMS; i++) m->sums[i] = 0;
//% if device then
    return $(name)_model_push_step(m, e);
//% else
    return 0;
//% end
}

int $(name)_model_dump(model *m, const char *folder, ga_err *e) {
    if (ga_comm_rank(m->comm) != 0) return 0;
    char path[GA_PATH_MAX];
//% if device then
    GA_TRY($(name)_model_download(m, e));
//% end
    snprintf(path, sizeof path, "%s/parameters.safetensors", folder);
    GA_TRY(ga_safetensors_save(path, &m->saved.parameters, 1, e));
//% if scaled then
    const double scale = m->count.r > 0 ? $scale : $last_scale;
    for (int64_t i = 0; i < FLAT; i++) m->flat_g[i] = (real)(m->flat_g[i] / scale);
//% end
    snprintf(path, sizeof path, "%s/gradients.safetensors", folder);
    GA_TRY(ga_safetensors_save(path, m->saved.gradient, 1, e));
    if (STATES == 0) return 0;
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    return ga_safetensors_save(path, m->saved.state, STATES, e);
}

//% if plateau then
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

//% end
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

/* -- open and close ---------------------------------------------------------------------------- */

/* A resumed run must have something to do, or just be done. */
static int check_end(const model *m, const ga_options *o, const char *resumed, ga_err *e) {
    if (!o->eval && !o->sample && m->count.cycle > m->cycles)
        return ga_fail(e, GA_INPUT, "%s: of cycle %lld, but training ends at cycle %lld", resumed,
                       (long long)m->count.cycle, (long long)m->cycles);
    if (o->stop_micro && o->stop_micro <= m->count.micro)
        return ga_fail(e, GA_INPUT, "--stop-micro %lld: %lld micro-steps are done already",
                       (long long)o->stop_micro, (long long)m->count.micro);
    return 0;
}

static int open_parts(model *m, const ga_options *o, char *resumed, ga_err *e) {
    ga_arena *runtime = &m->memory[ARENA_RUNTIME];
//% if not device then
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const int threads = o->threads ? o->threads : THREADS ? THREADS : cpus > 0 ? (int)cpus : 1;
//% end
    GA_TRY(ga_comm_open(&m->comm, runtime, e));
    const int world = ga_comm_size(m->comm);
    if (RANKS && world != RANKS)
        return ga_fail(e, GA_INPUT, "started with %d ranks, the spec says %d", world, RANKS);
    if (!DDP && world > 1)
        return ga_fail(e, GA_INPUT, "started with %d ranks, but the spec has no parallel \"ddp\"", world);
    GA_TRY(ga_comm_handshake(m->comm, SPEC_HASH, e));
//% if parallel then
    GA_TRY(ga_nccl_open(&m->nccl, m->device, m->comm, e));
//% end
//% if device then
    GA_TRY($(name)_model_load_kernels(m, e));
    m->eager = o->no_graph || PROBES;
//% else
    GA_TRY(ga_team_open(&m->team, threads, runtime, e));
//% end
    GA_TRY(ga_log_open(&m->log, o->log, o->quiet || o->sample, ga_comm_rank(m->comm), runtime, e));
    GA_TRY(open_data(m, o, e));
    $length
    $schedule_lines
    m->cycles = o->cycles ? o->cycles : cycles;
    m->nominal = $nominal;
    $scale_started
    m->count.a = A;
    init_parameters(m);
    $numbers_started
    if (o->init) {
        const ga_array all = {PARAMS, PARAM_COUNT, "", REAL, m->flat_w};
        GA_TRY(ga_safetensors_init(o->init, &all, 1, o->fresh, ga_comm_rank(m->comm) == 0, e));
    }
//% if ema then
    memcpy(m->flat_ema, m->flat_w, sizeof(real) * FLAT);
//% end
    GA_TRY(ga_program_folder(m->folder, sizeof m->folder - 16, e));
    strcat(m->folder, "/checkpoints");
    ga_ckpt_config c = checkpoint_config(m, o->checkpoint ? o->checkpoint : m->folder);
    c.resumes = o->resume != NULL;
    if (o->resume) {
        GA_TRY($(name)_model_load(m, c.folder, o->resume, resumed, e));
        GA_TRY(check_end(m, o, resumed, e));
    }
    if (!o->eval && !o->sample) GA_TRY(ga_ckpt_open(&m->checkpoint, &c, runtime, e));
    if (o->save_init && ga_comm_rank(m->comm) == 0)
        GA_TRY(ga_safetensors_save(o->save_init, &m->saved.parameters, 1, e));
    return $(name)_model_refresh(m, e);
}

int $(name)_model_open(model *m, const ga_options *o, ga_err *e) {
    char resumed[GA_PATH_MAX] = "", watched[GA_NAME_MAX];
    int i, l;
    memset(m, 0, sizeof *m);
    if (o->watch) GA_TRY(find_watched(o, watched, &i, &l, e));
    if (o->dump) GA_TRY(ga_file_folder(o->dump, "--dump", e));
    m->seed = o->seed >= 0 ? (uint64_t)o->seed : SEED;
    GA_TRY(open_memory(m, e));
    GA_TRY(open_parts(m, o, resumed, e));
    ga_log_start(m->log, &(ga_start_event){
        .program = "$name", .version = VERSION, .spec_sha256 = SPEC_SHA256, .target = "$target",
        .profile = PROFILE, .resumed_from = *resumed ? resumed : NULL,
//% if device then
        .ranks = ga_comm_size(m->comm), .threads = 1,
//% else
        .ranks = ga_comm_size(m->comm), .threads = ga_team_threads(m->team),
//% end
        .parameters = PARAMETERS, .planned_bytes = PLANNED_BYTES, .seed = m->seed});
    m->started = true;
    return 0;
}

void $(name)_model_close(model *m) {
    ga_ckpt_close(m->checkpoint);
    ga_loader_close(m->loader);
    ga_log_close(m->log);
//% if parallel then
    ga_nccl_close(m->nccl);
//% end
//% if not device then
    ga_team_close(m->team);
//% end
    ga_comm_close(m->comm);
//% if device then
    ga_device_close(m->device);
    for (int i = 0; i < ARENAS; i++)
        if (!m->pinned[i]) ga_arena_close(&m->memory[i]);
//% else
    for (int i = 0; i < ARENAS; i++) ga_arena_close(&m->memory[i]);
//% end
}
//% if sample then

#include "sample.c"
//% end
