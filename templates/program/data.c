//@ head(header, accumulate, files)
$header
#include "rows.c" /* how rows look */

/* {from, n}: from cycle `from` on a full cycle has n micro-steps. */
static const ga_accumulate ACCUMULATE[] = {$accumulate};

static const char *const FILES[DATA_FILES] = {
    $files
};

//@ open(sources, split, serving, evaluation, shift)
static int open_data(model *m, const ga_options *o, ga_err *e) {
    char folder[GA_PATH_MAX], path[DATA_FILES][GA_PATH_MAX];
    ga_arena *arena = &m->memory[ARENA_DATA];
    GA_TRY(ga_program_folder(folder, sizeof folder, e));
    for (int i = 0; i < DATA_FILES; i++) {
        GA_TRY(ga_data_path(path[i], sizeof path[i], o->data, folder, FILES[i], e));
        GA_TRY(ga_data_file_read(path[i], FILES[i], &m->files[i], e));
    }
    $sources
    m->data = (ga_loader_config){
        .data = {&m->train, $split},
        .batch = B, $serving
        .rank = ga_comm_rank(m->comm), .world = ga_comm_size(m->comm), .comm = m->comm,
        .seed = m->seed, .shuffle = SHUFFLE, .overfit = o->overfit,
    };
    $evaluation
    if (ga_batch_bytes(&m->train, B) != BATCH_BYTES)
        return ga_fail(e, GA_BUG, "a micro-batch has %zu bytes, the plan says %d",
                       ga_batch_bytes(&m->train, B), BATCH_BYTES);
    m->eval_batch = ga_take(&m->memory[ARENA_LOADER], BATCH_BYTES, 64, e);
    if (!m->eval_batch) return GA_BUG;
//% if shift then
    ga_loader_config first = m->data; /* for rank 0, whichever this one is */
    first.data = m->eval_data;
    first.rank = 0;
    ga_eval_batch(&first, 0, m->eval_batch);
    m->target_shift = (double)*(const $shift *)(m->eval_batch + AT_TARGET);
//% end
    m->epochs = ga_loader_epochs(&m->data);
    return ga_loader_open(&m->loader, &m->data, &m->memory[ARENA_LOADER], e);
}
