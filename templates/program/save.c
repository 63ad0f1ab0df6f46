//@ head(header)
$header

//@ config(name, parameters, saved, gradient, residues, collected, gradients, states, files, grouped, overflows, keep_best)
static ga_ckpt_config checkpoint_config(model *m, const char *folder) {
    saved *a = &m->saved;
    $parameters
    $gradient
//% if residues then
    a->gradient[1] = (ga_array){PARAMS, TRAINED_PARAMS, ".residue", REAL, m->flat_residue, NULL, NULL};
//% end
//% if collected.text ~= "" then
    /* what the cycle has collected for running statistics */
    a->gradient[$(gradients - 1)] = $collected;
//% end
    $states
//% if files > 0 then
    $grouped
    return (ga_ckpt_config){folder, KEEP, $keep_best, a->files, $files, a->gradient, $gradients,
                            m->comm, &m->epochs, $overflows, "$name", false, false};
//% else
    a->files[0] = (ga_ckpt_file){"model.safetensors", $saved};
    a->files[1] = (ga_ckpt_file){"optimizer.safetensors", a->state, STATES};
    return (ga_ckpt_config){folder, KEEP, $keep_best, a->files, STATES ? 2 : 1, a->gradient, $gradients,
                            m->comm, &m->epochs, $overflows, "$name", false, false};
//% end
}

//@ averages(index, index_of)
/* The averages of parameters begin as these are. */
static int start_averages(model *m, ga_err *e) {
    checkpoint_config(m, NULL); /* says where they lie */
    const ga_array *a = &m->saved.state[$index];
    for (const ga_param *p = a->params; p < a->params + a->count; p++)
        for (int l = 0; l < p->count; l++)
            for (ga_held h = {0}; ga_array_next(a, p, l, &h);)
                GA_TRY(ga_array_put(a, &h, m->flat_w + $index_of, e));
    return 0;
}

//@ state(scale_saved, target, numbers_saved, best)
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
//% if best then
    snprintf(s.best_metric, sizeof s.best_metric, "%s", BEST_METRIC);
    s.best = m->best;
//% end
    for (int i = 0; i < DATA_FILES; i++) s.data[i] = m->files[i];
    return s;
}

//@ load(name, numbers_loaded, scale_loaded, best)
/* what: "latest" of the folder (NULL: of the runs), the name of a run, a path, or NULL: the best one; the path that was
 * loaded is left in path[GA_PATH_MAX]. goes_on: training does, so that the seed must be the same. */
int $(name)_model_load(model *m, const char *folder, const char *what, bool goes_on, char *path, ga_err *e) {
    ga_ckpt_config c = checkpoint_config(m, folder);
    c.goes_on = goes_on;
    GA_TRY(ga_run_find(m->folder, folder, what, m->comm, path, e));
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
//% if best then
    m->best = s.best;
//% end
    return ga_loader_seek(m->loader, (ga_place){s.epoch, s.position, s.cycle, s.r}, e);
}

//@ arrive()
/* Waits until this rank's gradients are the sums of all micro-steps so far. */
static int gradients_arrive(model *m, ga_err *e) {
    for (int i = 0; i < m->division.count; i++) GA_TRY(ga_comm_wait(m->comm, i, e));
    return 0;
}

//@ save(name, device, windows, ranks)
int $(name)_model_save(model *m, ga_err *e) {
    if (!m->checkpoint) return 0;
    char path[GA_PATH_MAX];
    const double start = ga_clock();
//% if device and ranks then
    GA_TRY(ga_comm_agree(m->comm, $(name)_model_download(m, e), e)); /* all go on without this checkpoint, or none */
//% elseif device then
    GA_TRY($(name)_model_download(m, e));
//% elseif windows then
    GA_TRY(gradients_arrive(m, e));
//% end
    const ga_ckpt_state s = state_of(m);
    GA_TRY(ga_ckpt_save(m->checkpoint, &s, path, e));
    ga_log_checkpoint(m->log, m->count.cycle, path, 1e3 * (ga_clock() - start));
    return 0;
}

//@ save_to(name, windows)
#ifdef GA_LIBRARY
/* In a folder that is open only meanwhile. served: the loader's rows were trained on; else the caller's,
 * and the cycle stands at the beginning of an epoch. */
int $(name)_model_save_to(model *m, const char *folder, bool served, ga_err *e) {
    const ga_ckpt_config c = checkpoint_config(m, folder);
    ga_ckpt_state s = state_of(m);
    ga_arena a;
    ga_ckpt *checkpoint = NULL;
    const ga_place to = {served ? s.epoch : 0, served ? s.position : s.r, s.cycle, s.r};
    s.epoch = to.epoch, s.position = to.position;
    int code = ga_loader_check(m->loader, to, NULL) == 0 ? 0
        : ga_fail(e, GA_INPUT, "save: the rows of this cycle are no part of an epoch: save behind $(name)_step");
    GA_TRY(ga_comm_agree(m->comm, code, e));
//% if windows then
    GA_TRY(gradients_arrive(m, e));
//% end
    GA_TRY(ga_arena_open(&a, "saving", (ga_ckpt_bytes(&c) + 4095) / 4096 * 4096, e));
    code = ga_ckpt_open(&checkpoint, &c, &a, e);
    if (code >= 0) code = ga_ckpt_save(checkpoint, &s, NULL, e);
    ga_ckpt_close(checkpoint);
    ga_arena_close(&a);
    return code;
}
#endif

//@ dump(name, parameters, device, windows, ranks, grouped, in_place, elements, scaled, scale, last_scale)
int $(name)_model_dump(model *m, const char *folder, ga_err *e) {
    char path[GA_PATH_MAX];
//% if ranks then
    ga_comm_says(m->comm, GA_SAVES, m->count.cycle);
//% end
//% if device then
    GA_TRY($(name)_model_download(m, e));
//% elseif windows then
    GA_TRY(gradients_arrive(m, e));
//% end
    snprintf(path, sizeof path, "%s/parameters.safetensors", folder);
    GA_TRY(ga_shard_save(m->comm, path, $parameters, e));
//% if scaled then
    const double scale = m->count.r > 0 ? $scale : $last_scale;
    for (int64_t i = 0; i < $elements; i++) m->flat_g[i] = (real)(m->flat_g[i] / scale);
//% end
    snprintf(path, sizeof path, "%s/gradients.safetensors", folder);
//% if in_place then
    ga_array gradient = m->saved.gradient[0];
    if (m->count.r == 0) gradient.shard = &m->division.in_place; /* behind an update a rank has its own sums */
    GA_TRY(ga_shard_save(m->comm, path, &gradient, 1, e));
//% else
    GA_TRY(ga_shard_save(m->comm, path, m->saved.gradient, 1, e));
//% end
//% if grouped then
    /* groups of ranks may have values of their own: each rank also writes all of its own */
    const int rank = ga_comm_rank(m->comm), world = ga_comm_size(m->comm);
    snprintf(path, sizeof path, "%s/parameters-%dof%d.safetensors", folder, rank + 1, world);
    int code = ga_safetensors_save(path, $parameters, e);
    snprintf(path, sizeof path, "%s/gradients-%dof%d.safetensors", folder, rank + 1, world);
    if (code == GA_OK) code = ga_safetensors_save(path, m->saved.gradient, 1, e);
    snprintf(path, sizeof path, "%s/state-%dof%d.safetensors", folder, rank + 1, world);
    if (code == GA_OK && STATES > 0) code = ga_safetensors_save(path, m->saved.state, STATES, e);
    GA_TRY(ga_comm_agree(m->comm, code, e));
//% end
    if (STATES == 0) return 0;
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    return ga_shard_save(m->comm, path, m->saved.state, STATES, e);
}
