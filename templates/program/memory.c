//@ head(header)
$header
#include "runtime/base/rng.h"

//@ tables(params, init, states)
/* Parameters in the order of the flat space: offset, from layer to layer, elements of one. */
static const ga_param PARAMS[] = {
    $params
};

/* Initial values: uniform in [-value, value], normal with deviation value, or the value itself. */
typedef enum init_kind { UNIFORM, NORMAL, VALUE } init_kind;
static const struct { init_kind kind; double value; } INIT[] = {
    $init
};
$states

//@ spaces(form, address, places)
static $form $(form)_at($(address)flat) {
    return ($form){
        $places
    };
}

//@ windows(address, collected, places)
//% if collected then
/* The gradients of a micro-step, and what a cycle collects for running statistics. */
static parameters windows_at($(address)windows, $(address)collected) {
//% else
/* The gradients of a micro-step. */
static parameters windows_at($(address)windows) {
//% end
    return (parameters){
        $places
    };
}

//@ chunked(address, untrained, places)
//% if untrained then
/* Trained parameters in the windows of their chunks, and all others. */
static parameters parameters_at($(address)chunks, $(address)untrained) {
//% else
/* Parameters in the windows of their chunks. */
static parameters parameters_at($(address)chunks) {
//% end
    return (parameters){
        $places
    };
}

//@ place(flat_places, gradients, residues, view_places, activation_places)
static void place(model *m) {
    $flat_places
    $gradients
//% if residues then
    m->residue = parameters_at(m->flat_residue);
//% end
    $view_places
    real *const a = (real *)m->memory[ARENA_ACTIVATIONS].base;
    m->a = (activations){
        $activation_places
    };
    m->partials = (double *)m->memory[ARENA_PARTIALS].base;
}

//@ place_device(flat_places, gradients, residues, view_places, activation_places)
static void place(model *m) {
    $flat_places
    $gradients
//% if residues then
    m->residue = parameters_at(m->device_residue);
//% end
    $view_places
    const ga_address a = m->device_memory[DEVICE_ACTIVATIONS];
    m->a = (activations){
        $activation_places
    };
    m->device_partials = m->device_memory[DEVICE_PARTIALS];
    m->device_batches = m->device_memory[DEVICE_BATCHES];
    m->block = m->device_memory[DEVICE_STEP];
    m->transfer = (transfer *)m->memory[ARENA_TRANSFER].base;
}

//@ open(arenas)
static int open_memory(model *m, ga_err *e) {
    static const struct { const char *name; size_t bytes; } PLAN[ARENAS] = {
        $arenas
    };
    for (int i = 0; i < ARENAS; i++)
        if (PLAN[i].bytes > 0) GA_TRY(ga_arena_open(&m->memory[i], PLAN[i].name, PLAN[i].bytes, e));
    place(m);
    return 0;
}

//@ open_device(device_arenas, arenas, parallel, branches, joins, left, gathered, here)
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
        return ga_fail(e, GA_ENVIRONMENT,
                       "device %d (%s) is sm_%d, the program is for sm_%d or newer; gagen makes one for it where the "
                       "spec says target { \"cuda\", arch = %d }",
                       f->ordinal, f->name, f->arch, ARCH, f->arch);
    for (int i = 0; i < DEVICE_ARENAS; i++)
        if (PLAN[i] > 0) GA_TRY(ga_device_arena(m->device, PLAN[i], &m->device_memory[i], e));
    GA_TRY(ga_device_stream(m->device, &m->stream, e));
    GA_TRY(ga_device_stream(m->device, &m->copying, e));
    for (int i = 0; i < 2; i++) {
        GA_TRY(ga_device_event(m->device, &m->arrived[i], e));
        GA_TRY(ga_device_event(m->device, &m->consumed[i], e));
        GA_TRY(ga_device_event(m->device, &m->decided[i], e));
    }
//% if parallel then
    GA_TRY(ga_device_stream(m->device, &m->reducing, e));
    GA_TRY(ga_device_event(m->device, &m->forked, e));
    GA_TRY(ga_device_event(m->device, &m->joined, e));
//% end
//% if branches then
    GA_TRY(ga_device_stream(m->device, &m->beside, e));
    GA_TRY(ga_device_event(m->device, &m->parted, e));
//% end
//% if joins then
    for (int i = 0; i < $branches; i++) GA_TRY(ga_device_event(m->device, &m->ended[i], e));
//% end
//% if left > 0 then
    for (int i = 0; i < $left; i++) GA_TRY(ga_device_event(m->device, &m->left[i], e));
//% end
//% if gathered > 0 then
    for (int i = 0; i < $gathered; i++) GA_TRY(ga_device_event(m->device, &m->gathered[i], e));
//% end
//% if here > 0 then
    for (int i = 0; i < $here; i++) GA_TRY(ga_device_event(m->device, &m->here[i], e));
//% end
    return 0;
}

static int open_memory(model *m, ga_err *e) {
    static const struct { const char *name; size_t bytes; bool pinned; } PLAN[ARENAS] = {
        $arenas
    };
    GA_TRY(open_device(m, e));
    for (int i = 0; i < ARENAS; i++)
        if (PLAN[i].bytes > 0)
            GA_TRY(PLAN[i].pinned ? open_pinned(m, i, PLAN[i].name, PLAN[i].bytes, e)
                                  : ga_arena_open(&m->memory[i], PLAN[i].name, PLAN[i].bytes, e));
    place(m);
    return 0;
}

//@ open_shard()
enum { PAGE = 4096 };

/* Memory for what this rank has of an array. */
static int open_shard(model *m, int arena, const char *name, const ga_shard *s, ga_err *e) {
    const size_t pages = (size_t)s->elements * sizeof(real) / PAGE + 1;
    return ga_arena_open(&m->memory[arena], name, pages * PAGE, e);
}

//@ open_device_shard()
enum { PAGE = 4096 };

/* Memory for what this rank has of an array: on the device, and a copy for files. */
static int open_shard(model *m, int device, int arena, const char *name, const ga_shard *s, ga_err *e) {
    const size_t pages = (size_t)s->elements * sizeof(real) / PAGE + 1;
    GA_TRY(ga_device_arena(m->device, pages * PAGE, &m->device_memory[device], e));
    return ga_arena_open(&m->memory[arena], name, pages * PAGE, e);
}

//@ open_placed(some)
enum { PAGE = 4096 };

static size_t bytes_of(const ga_shard *s) { return ((size_t)s->elements * sizeof(real) / PAGE + 1) * PAGE; }
//% if some then

/* Memory for what this rank has of an array: its elements `there` on the device, and all of it in host memory, where
 * those are copies for files, and all others are what kernels of the device read and write. */
static int open_shard(model *m, int device, int arena, const char *name, const ga_shard *s, const ga_shard *there,
                      ga_err *e) {
    if (there->elements > 0)
        GA_TRY(ga_device_arena(m->device, bytes_of(there), &m->device_memory[device], e));
    return open_pinned(m, arena, name, bytes_of(s), e);
}
//% end

//@ groups(count, rows)
/* Groups of ranks: how many lists the groups before it have, and the list of each rank. */
static const ga_group GROUPS[] = {
    $rows
};

static int open_groups(model *m, ga_err *e) { return ga_comm_divide(m->comm, GROUPS, $count, e); }

//@ division(name, buckets, whole, starts, start_count, open_shard, shards, sharded, grouped, groups, numbers, device)
/* Buckets of the gradient, each exchanged by one call: first element, elements, how, the type of the parts that
 * travel, how it is divided over the ranks. */
static const ga_bucket BUCKETS[] = {
    $buckets
};
//% if whole then

/* First elements of tensors that belong to one rank each. */
$starts
//% end

//% if grouped then
/* Whose lists of ranks exchange each bucket: a group from 1, 0: all ranks together. */
$groups

//% end
//% if sharded then
$open_shard

//% end
/* Divides the flat space over the ranks. */
static int open_division(model *m, ga_err *e) {
    enum { COUNT = sizeof BUCKETS / sizeof *BUCKETS };
//% if grouped then
    GA_TRY(ga_division_open_in(&m->division, BUCKETS, COUNT, BUCKET_GROUPS, m->comm, e));
//% elseif whole then
    GA_TRY(ga_division_open(&m->division, BUCKETS, COUNT, STARTS, $start_count, ga_comm_rank(m->comm),
                            ga_comm_size(m->comm), e));
//% else
    GA_TRY(ga_division_open(&m->division, BUCKETS, COUNT, NULL, 0, ga_comm_rank(m->comm), ga_comm_size(m->comm), e));
//% end
//% if sharded then
    $shards
//% end
//% if numbers > 0 then
    const size_t statistics = sizeof(double) * $numbers * (size_t)ga_comm_size(m->comm); /* of all ranks */
//% if device then
    m->statistics_bytes = (statistics + 4095) / 4096 * 4096;
    GA_TRY(ga_device_arena(m->device, m->statistics_bytes, &m->device_memory[DEVICE_STATISTICS], e));
//% else
    GA_TRY(ga_arena_open_for(&m->memory[ARENA_STATISTICS], "statistics", statistics, e));
//% end
//% end
    $(name)_model_cut(m);
    return 0;
}

//@ state_file(name, folder, fraction, elements, window, arrays, segments, places, opened, device)
//% if device then
static size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/* Memory on the device for the first elements of a state and a window, and a copy of the first elements for files. */
static int open_state(model *m, int device, int arena, const char *name, ga_err *e) {
    const size_t held = (size_t)ga_state_file_held(m->state_file) * sizeof(real);
    const size_t window = (size_t)ga_state_file_window(m->state_file) * sizeof(real);
    GA_TRY(ga_device_arena(m->device, whole_pages(held + window), &m->device_memory[device], e));
    return held > 0 ? ga_arena_open_for(&m->memory[arena], name, held, e) : 0;
}

/* Pinned memory for the windows of all states. */
static int open_windows(model *m, ga_err *e) {
    const size_t window = (size_t)ga_state_file_window(m->state_file) * sizeof(real);
    if (window == 0) return 0;
    return open_pinned(m, ARENA_STATE_WINDOWS, "state_windows", whole_pages(GA_STATE_WINDOWS * $arrays * window), e);
}

/* The windows of state i. */
static void *windows_of(const model *m, int i) {
    const size_t window = (size_t)ga_state_file_window(m->state_file) * sizeof(real);
    return window > 0 ? m->memory[ARENA_STATE_WINDOWS].base + (size_t)i * GA_STATE_WINDOWS * window : NULL;
}
//% else
/* Memory for the first elements of a state, and for those of its last ones that are in use. */
static int open_state(model *m, int arena, const char *name, ga_err *e) {
    const int64_t windows = GA_STATE_WINDOWS * ga_state_file_window(m->state_file);
    const size_t elements = (size_t)(ga_state_file_held(m->state_file) + windows);
    return ga_arena_open_for(&m->memory[arena], name, elements * sizeof(real), e);
}
//% end

/* The file of the optimizer's state. */
static int open_state_file(model *m, ga_err *e) {
    const ga_state_config config = {
        .folder = $folder, .fraction = $fraction, .elements = $elements,
        .window = $window, .arrays = $arrays, .size = sizeof(real), .segments = $segments, .places = $places,
    };
    GA_TRY(ga_state_file_open(&m->state_file, &config, e));
//% if device then
    GA_TRY(open_windows(m, e));
//% end
    $opened
    $(name)_model_cut_state(m);
    return 0;
}

//@ initial_parts(zeros, clears, untrained)
/* Elements i .. i + n - 1 of parameter k. */
static void init_run(const model *m, int k, const char *name, real *x, int64_t i, int64_t n) {
    const double v = INIT[k].value;
    if (INIT[k].kind == UNIFORM) ga_init_uniform_run(x, REAL, i, n, m->seed, name, -v, v);
    if (INIT[k].kind == NORMAL) ga_init_normal_run(x, REAL, i, n, m->seed, name, v);
    if (INIT[k].kind == VALUE) ga_init_value(x, REAL, n, v);
}

/* This rank's part of the trained parameters. */
static ga_array own_parameters(const model *m) {
    return (ga_array){PARAMS, TRAINED_PARAMS, "", REAL, m->flat_w, &m->division.own, NULL};
}

//% if clears then
/* Elements from .. from + n - 1 of layer l of parameter k become 0. */
static void clear(const model *m, int k, int l, int64_t from, int64_t n) {
    const ga_array own = own_parameters(m);
//% if untrained then
    if (k >= TRAINED_PARAMS)
        memset(m->untrained + (ga_layout_index(&PARAMS[k], l, from) - TRAINED), 0, sizeof(real) * (size_t)n);
//% end
    for (ga_held h = {0}; k < TRAINED_PARAMS && ga_array_next(&own, &PARAMS[k], l, &h);)
        for (int64_t i = from > h.i ? from : h.i; i < from + n && i < h.i + h.n; i++) m->flat_w[h.at + i - h.i] = 0;
}

//% end
static void init_parameters(model *m) {
    const ga_array own = own_parameters(m);
    char name[GA_NAME_MAX];
    for (int k = 0; k < PARAM_COUNT; k++)
        for (int l = 0; l < PARAMS[k].count; l++) {
            const ga_param *p = &PARAMS[k];
            ga_param_name(p, l, "", name);
//% if untrained then
            if (k >= TRAINED_PARAMS)
                init_run(m, k, name, m->untrained + (ga_layout_index(p, l, 0) - TRAINED), 0, p->n);
//% end
            for (ga_held h = {0}; k < TRAINED_PARAMS && ga_array_next(&own, p, l, &h);)
                init_run(m, k, name, m->flat_w + h.at, h.i, h.n);
        }
    $zeros
}
//@ initial_values(zeros)
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
