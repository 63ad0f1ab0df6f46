/* ckpt_resume.c: loads a checkpoint into a run that may have other ranks, batches or cycles. */
#include "files/ckpt.h"

#include "files/ckpt_manifest.h"
#include "files/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_data(const ga_ckpt_state *now, const ga_ckpt_state *then, ga_err *e) {
    if (now->data_count != then->data_count)
        return ga_fail(e, GA_INPUT, "resume: %d data files now, %d in the checkpoint",
                       now->data_count, then->data_count);
    for (int i = 0; i < now->data_count; i++) {
        const ga_data_file *a = &now->data[i], *b = &then->data[i];
        if (a->bytes != b->bytes || a->checksum != b->checksum)
            return ga_fail(e, GA_INPUT,
                           "resume: %s has %lld bytes, checksum %08x; the checkpoint was made with "
                           "%lld bytes, checksum %08x: give it the same data",
                           a->path, (long long)a->bytes, (unsigned)a->checksum, (long long)b->bytes,
                           (unsigned)b->checksum);
    }
    return GA_OK;
}

static void say_text(const char *what, const char *now, const char *then) {
    if (strcmp(now, then) != 0)
        ga_say("resume: %s is '%s', the checkpoint has '%s'", what, now, then);
}

static void say_number(const char *what, int64_t now, int64_t then) {
    if (now != then)
        ga_say("resume: %s is %lld, the checkpoint has %lld", what, (long long)now,
               (long long)then);
}

static void say_differences(const ga_ckpt_state *now, int accumulate, const ga_ckpt_state *then) {
    say_text("spec_sha256", now->spec_sha256, then->spec_sha256);
    say_text("target", now->target, then->target);
    say_text("profile", now->profile, then->profile);
    say_text("tuning_sha256", now->tuning_sha256, then->tuning_sha256);
    say_number("rows of a micro-step", now->batch, then->batch);
    say_number("accumulate", accumulate, then->accumulate);
    say_number("the number of ranks", now->world, then->world);
    say_number("seed", (int64_t)now->seed, (int64_t)then->seed);
}

/* Resumes a partial cycle with other ranks: the rows done must be whole micro-steps of this run, in a
 * cycle of as many rows. */
static int convert_cycle(const ga_ckpt_state *now, int accumulate, ga_ckpt_state *then, ga_err *e) {
    const int64_t done = (int64_t)then->r * then->world, world = now->world;
    const int64_t full = (int64_t)then->accumulate * then->world;
    if (now->batch != then->batch || full != accumulate * world || done % world ||
        then->position % world * then->world % world)
        return ga_fail(e, GA_INPUT,
                       "resume: the checkpoint lies inside a cycle, behind %d of %d micro-steps of %d "
                       "rows on %d rank%s; this run has cycles of %d micro-steps of %d rows on %d: use "
                       "the same numbers, or a checkpoint of a whole cycle",
                       then->r, then->accumulate, then->batch, then->world, then->world == 1 ? "" : "s",
                       accumulate, now->batch, now->world);
    then->position = then->position / world * then->world + then->position % world * then->world / world;
    then->r = (int)(done / world);
    return GA_OK;
}

/* Converts position and r to micro-batches of this run. Where the tail of an epoch is dropped and cycles have other
 * rows than in the checkpoint, the position is rounded down to a whole cycle, so that no row of the epoch is left
 * out. */
static int convert_place(const ga_ckpt_state *now, const ga_ckpt_config *c, int accumulate, ga_ckpt_state *then,
                         ga_err *e) {
    const bool same = now->batch == then->batch && now->world == then->world;
    if (same && accumulate == then->accumulate) return GA_OK;
    if (then->r > 0) return convert_cycle(now, accumulate, then, e);
    const int64_t rows = (int64_t)now->batch * now->world, rows_then = (int64_t)then->batch * then->world;
    int64_t done;
    if (__builtin_mul_overflow(then->position, rows_then, &done))
        return ga_fail(e, GA_INPUT, "resume: the checkpoint has no valid position: micro-batch %lld",
                       (long long)then->position);
    const bool dropped = !c->epochs || c->epochs->tail == GA_DROP;
    const bool whole = dropped && (double)accumulate * (double)rows != (double)then->accumulate * (double)rows_then;
    then->position = whole ? done / rows / accumulate * accumulate : done / rows;
    return GA_OK;
}

/* Mid-cycle the gradient is already divided by the weight of a full cycle, so both must agree. */
static int compare_weight(const ga_ckpt_state *now, const ga_ckpt_state *then, ga_err *e) {
    if (then->r == 0 || then->nominal == 0 || now->nominal == then->nominal) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "resume: the checkpoint lies inside a cycle whose weight is %g when it is full, and %g in this run: "
                   "use the same loss.weight and accumulate, or a checkpoint of a whole cycle",
                   then->nominal, now->nominal);
}

/* Leaves the loss scale of the resumed run in `then`. A dynamic scale continues; mid-cycle the gradient
 * contains the checkpoint's scale, so both must agree. */
static int convert_scale(const ga_ckpt_state *now, ga_ckpt_state *then, bool say, ga_err *e) {
    if (now->scaler == GA_DYNAMIC_SCALE && then->scaler == GA_DYNAMIC_SCALE) return GA_OK;
    if (then->r > 0 && now->scale != then->scale)
        return ga_fail(e, GA_INPUT,
                       "resume: the checkpoint lies inside a cycle with %g as the scale of its loss (%s); this "
                       "run has %g (%s): use the same scaler, or a checkpoint of a whole cycle",
                       then->scale, ga_scale_kind_names[then->scaler], now->scale, ga_scale_kind_names[now->scaler]);
    if (say && (now->scale != then->scale || now->scaler != then->scaler))
        ga_say("resume: the scale of the loss is %g (%s), the checkpoint has %g (%s)", now->scale,
               ga_scale_kind_names[now->scaler], then->scale, ga_scale_kind_names[then->scaler]);
    then->scale = now->scale;
    then->growth_step = then->hysteresis_step = 0;
    return GA_OK;
}

/* Leaves the best evaluation of the resumed run in `then`: none yet if this program looks at another metric. */
static void convert_best(const ga_ckpt_state *now, ga_ckpt_state *then, bool say) {
    if (strcmp(now->best_metric, then->best_metric) == 0) return;
    if (say && *now->best_metric && *then->best_metric)
        ga_say("resume: the best %s counts from here on, the checkpoint has the best %s", now->best_metric,
               then->best_metric);
    then->best = GA_BEST_NONE;
}

static int join(char *out, const char *path, const char *name, ga_err *e) {
    if (snprintf(out, GA_PATH_MAX, "%s/%s", path, name) < GA_PATH_MAX) return GA_OK;
    return ga_fail(e, GA_INPUT, "%.64s...: the path is too long", path);
}

/* A checkpoint that is loaded. */
typedef struct {
    const char *path;
    const ga_ckpt_config *config;
    ga_comm *reads; /* rank 0 reads for all; NULL: each rank for itself */
} source;

/* Loads the gradient of one rank of the checkpoint, or adds it to the gradient in memory; sums: of that rank. Of
 * divided arrays this rank takes its own part, of others all or nothing. */
static int take_gradient(const source *from, int rank, int world, bool whole, bool add, double sums[GA_SAVED_SUMS],
                         ga_err *e) {
    static const ga_shard NOTHING = {0};
    const ga_ckpt_config *c = from->config;
    char file[GA_PATH_MAX], name[GA_CKPT_NAME];
    ga_array arrays[GA_CKPT_FILES];
    ga_note notes[GA_SAVED_SUMS];
    for (int i = 0; i < GA_SAVED_SUMS; i++) notes[i].key = ga_saved_sum_names[i];
    for (int i = 0; i < c->gradient_count; i++) {
        arrays[i] = c->gradient[i];
        if (!whole && !arrays[i].shard) arrays[i].shard = &NOTHING;
    }
    GA_TRY(join(file, from->path, ga_ckpt_gradient_name(rank, world, name), e));
    GA_TRY((add ? ga_safetensors_add : ga_safetensors_load)(file, from->reads, arrays, c->gradient_count, notes,
                                                            GA_SAVED_SUMS, e));
    for (int i = 0; i < GA_SAVED_SUMS; i++) sums[i] = strtod(notes[i].value, NULL);
    return GA_OK;
}

static void clear_whole(const ga_array *a) {
    for (int k = 0; k < a->count && !a->shard; k++)
        for (int l = 0; l < a->params[k].count; l++)
            for (int64_t i = 0; i < a->params[k].n; i++)
                ga_set(a->base, a->dtype, ga_layout_index(&a->params[k], l, i), 0);
}

/* With as many ranks as the checkpoint has, each takes the sums and whole arrays of its own file; else rank 0 adds up
 * those of all. Divided arrays are the sum of all files. */
static int load_gradient(const source *from, ga_ckpt_state *s, ga_err *e) {
    const ga_ckpt_config *c = from->config;
    const int rank = ga_comm_rank(c->comm), world = ga_comm_size(c->comm);
    if (!c->gradient)
        return ga_fail(e, GA_INPUT, "%s: lies inside a cycle, which this program cannot resume", from->path);
    const bool divided = ga_array_divided(c->gradient, c->gradient_count);
    const bool alone = world == s->world && !divided; /* each rank has one file */
    if (rank == 0 && world != s->world)
        ga_say("resume: the gradients of %d ranks are summed in their order: as exact, but not the same "
               "bits as on %d ranks", s->world, s->world);
    for (int i = 0; i < c->gradient_count && !alone; i++) clear_whole(&c->gradient[i]);
    memset(s->sums, 0, sizeof s->sums);
    for (int i = 0; i < s->world; i++) {
        const bool whole = world == s->world ? i == rank : rank == 0;
        double sums[GA_SAVED_SUMS];
        if (!whole && !divided && !from->reads) continue;
        const int code = take_gradient(from, i, s->world, whole, i > 0 && !alone, sums, e);
        if (code == GA_INPUT && rank == 0)
            ga_say("resume: inside a cycle of another form of gradients, or of running statistics, which programs with "
                   "parallel sum up otherwise than those without: use a checkpoint of a whole cycle");
        GA_TRY(code);
        for (int k = 0; k < GA_SAVED_SUMS && whole; k++) s->sums[k] += sums[k];
    }
    return GA_OK;
}

/* Refuses a checkpoint with other files: its optimizer keeps other state. */
static int compare_files(const char *path, const ga_ckpt_config *c, const ga_ckpt_state *s, ga_err *e) {
    for (int i = 0; i < s->file_count; i++) {
        int k = 0;
        while (k < c->file_count && strcmp(c->files[k].name, s->files[i]) != 0) k++;
        if (k == c->file_count && ga_ckpt_list_named(s->files[i]))
            return ga_fail(e, GA_INPUT,
                           "%s: has %s, which this program has no use for: written with other groups of ranks or other "
                           "gradient handlers (parallel in the spec)", path, s->files[i]);
        if (k == c->file_count)
            return ga_fail(e, GA_INPUT,
                           "%s: has %s, which this program has no use for: written with another "
                           "optimizer; --init takes the parameters alone, from its model.safetensors",
                           path, s->files[i]);
    }
    for (int k = 0; k < c->file_count; k++) {
        int i = 0;
        while (i < s->file_count && strcmp(c->files[k].name, s->files[i]) != 0) i++;
        if (i == s->file_count && ga_ckpt_list_named(c->files[k].name))
            return ga_fail(e, GA_INPUT,
                           "%s: has no %s, which this program needs: written with other groups of ranks or other "
                           "gradient handlers (parallel in the spec)", path, c->files[k].name);
        if (i == s->file_count)
            return ga_fail(e, GA_INPUT,
                           "%s: has no %s, which this program needs: written with another optimizer; "
                           "--init takes the parameters alone, from its model.safetensors",
                           path, c->files[k].name);
    }
    return GA_OK;
}

static int compare_numbers(const char *path, const ga_ckpt_state *now, const ga_ckpt_state *s, ga_err *e) {
    for (int i = 0; i < now->number_count || i < s->number_count; i++) {
        const char *here = i < now->number_count ? now->numbers[i].name : "nothing";
        const char *there = i < s->number_count ? s->numbers[i].name : "nothing";
        if (strcmp(here, there) != 0)
            return ga_fail(e, GA_INPUT,
                           "%s: keeps %s where this program keeps %s: written with another optimizer or "
                           "schedule; --init takes the parameters alone, from its model.safetensors",
                           path, there, here);
    }
    return GA_OK;
}

static int compare_seed(const char *path, const ga_ckpt_state *now, const ga_ckpt_state *s, ga_err *e) {
    if (now->seed == s->seed) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: written with seed %llu, this run has %llu: start with --seed %llu", path,
                   (unsigned long long)s->seed, (unsigned long long)now->seed, (unsigned long long)s->seed);
}

/* Loads a file; of a list of ranks the values go to these alone, and the list must be that of the file. */
static int load_file(const source *from, const ga_ckpt_file *f, ga_err *e) {
    static const ga_shard NOTHING = {0};
    char path[GA_PATH_MAX];
    ga_array arrays[GA_CKPT_FILES];
    const ga_ckpt_list list = ga_ckpt_list_of(from->config->comm, f->name);
    const bool other = list.group > 0 && !list.held;
    ga_note note = list.note;
    if (other && !from->reads) return GA_OK;
    for (int i = 0; i < f->count; i++) {
        arrays[i] = f->arrays[i];
        if (other) arrays[i].shard = &NOTHING;
    }
    GA_TRY(join(path, from->path, f->name, e));
    GA_TRY(ga_safetensors_load(path, from->reads, arrays, f->count, &note, list.group > 0, e));
    if (strcmp(note.value, list.note.value) == 0) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: is of the ranks %s, and here of %s: written with other groups of ranks", path,
                   note.value, list.note.value);
}

static int load_files(const source *from, ga_err *e) {
    const ga_ckpt_config *c = from->config;
    char file[GA_PATH_MAX];
    for (int i = 0; i < c->file_count; i++) { /* all are checked before the first is loaded */
        GA_TRY(join(file, from->path, c->files[i].name, e));
        GA_TRY(ga_safetensors_check(file, from->reads, c->files[i].arrays, c->files[i].count,
                                    ga_comm_rank(c->comm) == 0, e));
    }
    for (int i = 0; i < c->file_count; i++) GA_TRY(load_file(from, &c->files[i], e));
    return GA_OK;
}

/* Finds out who reads the checkpoint, and reads its manifest. */
static int open_source(source *from, const char *path, const ga_ckpt_config *c, ga_ckpt_state *out, ga_err *e) {
    char manifest[GA_PATH_MAX];
    bool shared;
    GA_TRY(join(manifest, path, "manifest.json", e));
    GA_TRY(ga_shared_file(c->comm, manifest, &shared, e));
    *from = (source){path, c, shared ? NULL : c->comm};
    if (shared) return ga_ckpt_read(path, out, e);
    GA_TRY(ga_comm_agree(c->comm, ga_comm_rank(c->comm) == 0 ? ga_ckpt_read(path, out, e) : GA_OK, e));
    return ga_comm_broadcast(c->comm, out, sizeof *out, 0, e);
}

int ga_ckpt_load(const char *path, const ga_ckpt_config *c, const ga_ckpt_state *now,
                 ga_ckpt_state *out, ga_err *e) {
    source from;
    int code = open_source(&from, path, c, out, e);
    if (code == GA_OK) code = compare_data(now, out, e);
    const int accumulate =
        code == GA_OK && c->epochs ? ga_epochs_accumulate(c->epochs, out->cycle) : now->accumulate;
    if (code == GA_OK && ga_comm_rank(c->comm) == 0) say_differences(now, accumulate, out);
    if (code == GA_OK) code = convert_place(now, c, accumulate, out, e);
    if (code == GA_OK) code = compare_weight(now, out, e);
    if (code == GA_OK) code = convert_scale(now, out, ga_comm_rank(c->comm) == 0, e);
    if (code == GA_OK) convert_best(now, out, ga_comm_rank(c->comm) == 0);
    if (code == GA_OK) code = compare_files(path, c, out, e);
    if (code == GA_OK) code = compare_numbers(path, now, out, e);
    if (code == GA_OK && c->goes_on) code = compare_seed(path, now, out, e);
    code = ga_comm_agree(c->comm, code, e);
    if (code == GA_OK) code = load_files(&from, e);
    if (code == GA_OK && out->r > 0) code = load_gradient(&from, out, e);
    code = ga_comm_agree(c->comm, code, e);
    if (code == GA_OK) ga_comm_saved(c->comm, path);
    return code;
}
