/* twins.c: which of two kernels is used: comparison, times, launches. */
#include "device/twins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/tuning.h"

enum { OWN = 1 + GA_TWIN_OPERANDS, TIMES = 3, FIRST_OF_SUMS = 2 };

/* === launches =============================================================================================== */

static int launch_own(const ga_twins *t, ga_cuda_stream s, int i, void **args, ga_err *e) {
    const ga_twin *w = &t->list[i];
    const ga_launch_shape shape = {{w->blocks}, {w->threads}, w->shared, true};
    return ga_device_launch(t->device, s, t->kernels[w->kernel], &shape, args, e);
}

static int describe(const ga_twins *t, ga_boxes *out, const ga_twin *w, const ga_twin_operand *o, void **args,
                    ga_err *e) {
    const ga_matrix m = {.at = *(const ga_address *)args[o->parameter] + 2 * (ga_address)o->first,
                         .type = w->half, .columns = o->columns, .rows = o->rows, .stride = o->stride,
                         .sheets = o->sheets, .box_columns = GA_BOX_COLUMNS, .box_rows = o->box_rows};
    return ga_device_boxes(t->device, out, &m, e);
}

static int launch_twin(const ga_twins *t, ga_cuda_stream s, int i, void **args, ga_err *e) {
    const ga_twin *w = &t->list[i];
    const ga_launch_shape shapes[GA_TWIN_KERNELS] = {
        {{w->own_blocks}, {384}, w->own_shared, true},
        {{w->tiles}, {256}, 0, true},
        {{w->sums}, {256}, 0, true},
        {{w->totals}, {256}, 0, true}};
    ga_boxes boxes[GA_TWIN_OPERANDS];
    ga_address parts = t->parts;
    void *all[2][GA_TWIN_PARAMETERS + OWN]; /* of the product, of sums beside it */
    for (int sums = 0; sums < 2; sums++) {
        int count = 0;
        for (int k = 0; k < w->parameters; k++)
            if (sums || !w->totals || k != w->left_out) all[sums][count++] = args[k];
        if (w->parts) all[sums][count++] = &parts;
        for (int o = 0; o < w->operands; o++) all[sums][count++] = &boxes[o];
    }
    for (int o = 0; o < w->operands; o++) GA_TRY(describe(t, &boxes[o], w, &w->boxes[o], args, e));
    for (int k = 0; k < GA_TWIN_KERNELS; k++)
        if (shapes[k].blocks[0] > 0)
            GA_TRY(ga_device_launch(t->device, s, t->states[i].kernels[k], &shapes[k], all[k >= FIRST_OF_SUMS], e));
    return 0;
}

int ga_twins_launch(const ga_twins *t, ga_cuda_stream s, int i, void **args, ga_err *e) {
    return t->states[i].taken ? launch_twin(t, s, i, args, e) : launch_own(t, s, i, args, e);
}

/* === a comparison =========================================================================================== */

/* A kernel with operands of its own. Results are there twice, so that both kernels start from the same. */
typedef struct trial {
    ga_address at[2][GA_TWIN_PARAMETERS];
    void *args[2][GA_TWIN_PARAMETERS];
    ga_address memory, found, none; /* none stays 0 */
    float number;
    int64_t whole;
    bool adds, can_add;
} trial;

/* The kernels of comparisons. */
typedef struct tools {
    ga_kernel make, greatest, differ;
    ga_event from, to;
} tools;

static size_t bytes_of(const ga_twin_parameter *p) {
    const size_t bytes = (size_t)p->n * (p->made == GA_MADE_REAL ? 4 : p->made == GA_MADE_HALF ? 2 : 1);
    return (bytes + 255) / 256 * 256;
}

/* Places the arrays of a trial behind each other, from trial.memory on; returns their bytes. */
static size_t place(trial *x, const ga_twin *w) {
    size_t bytes = 256;
    x->found = x->memory;
    x->number = 0.5f;
    for (int k = 0; k < w->parameters; k++) {
        const ga_twin_parameter *p = &w->made[k];
        const bool is_array = p->made <= GA_MADE_ONES;
        for (int own = 0; own < 2; own++) {
            if (is_array && (own == 0 || p->result)) {
                x->at[own][k] = x->memory + bytes;
                bytes += bytes_of(p);
            } else {
                x->at[own][k] = x->at[0][k];
            }
            x->args[own][k] = is_array                    ? (void *)&x->at[own][k]
                              : p->made == GA_MADE_NUMBER ? (void *)&x->number
                              : p->made == GA_MADE_WHOLE  ? (void *)&x->whole
                              : p->made == GA_MADE_NONE   ? (void *)&x->none
                              : p->made == GA_MADE_SIZES  ? w->sizes
                                                          : (void *)&x->adds;
        }
        x->can_add = x->can_add || p->made == GA_MADE_ADDS;
    }
    return bytes;
}

static const ga_launch_shape WIDE = {{1024}, {256}, 0, false};

static int make(const ga_twins *t, const tools *u, const trial *x, int i, ga_err *e) {
    const ga_twin *w = &t->list[i];
    for (int k = 0; k < w->parameters; k++) {
        const ga_twin_parameter *p = &w->made[k];
        for (int own = 0; own < (p->result ? 2 : 1); own++) {
            ga_address to = x->at[own][k];
            int half = p->made == GA_MADE_HALF, seed = k;
            int64_t n = p->n;
            if (p->made == GA_MADE_ZERO || p->made == GA_MADE_ONES)
                GA_TRY(ga_device_fill(t->device, t->stream, to, p->made == GA_MADE_ONES, (size_t)n, e));
            if (p->made < GA_MADE_ZERO)
                GA_TRY(ga_device_launch(t->device, t->stream, u->make, &WIDE, (void *[]){&to, &half, &n, &seed}, e));
        }
    }
    return 0;
}

/* How many elements of a result differ by more than rounding: by a step of 16 bits of their own, and a part of the
 * greatest one. Tensor cores cut off bits of their sums, so another order of thousands of terms changes 2^-14 of the
 * greatest sum; a term too few changes more than 2^-11. Numbers of 16 bits to which something is added were rounded
 * before, so nearly nothing may be left of them but the step that they differ by. Where weights are rounded, results
 * may differ by half a step of the greatest one: of means of numbers of either sign nothing else is left but what the
 * roundings of their weights add up to; the logs of sums of weights, in f32, by 2^-16. */
static int differ(const ga_twins *t, const tools *u, const trial *x, const ga_twin *w, int k, int64_t *out, ga_err *e) {
    const ga_twin_parameter *p = &w->made[k];
    ga_address own = x->at[0][k], other = x->at[1][k], found = x->found;
    int half = p->made == GA_MADE_HALF;
    int64_t n = p->n;
    float step = !half ? 0 : w->half == GA_BF16 ? 0x1p-7f : 0x1p-10f;
    float least = !half ? (w->rounds ? 0x1p-16f : 0x1p-12f) : w->rounds ? step / 2 : step / 8;
    uint32_t words[2];
    GA_TRY(ga_device_fill(t->device, t->stream, found, 0, sizeof words, e));
    GA_TRY(ga_device_launch(t->device, t->stream, u->greatest, &WIDE, (void *[]){&found, &own, &half, &n}, e));
    GA_TRY(ga_device_launch(t->device, t->stream, u->differ, &WIDE,
                            (void *[]){&found, &own, &other, &half, &n, &least, &step}, e));
    GA_TRY(ga_device_download(t->device, words, found, sizeof words, e));
    *out += words[1];
    return 0;
}

/* Elements that differ, with new results and with results that are added to. */
static int compare(const ga_twins *t, const tools *u, trial *x, int i, int64_t *out, ga_err *e) {
    const ga_twin *w = &t->list[i];
    *out = 0;
    for (int adds = 0; adds < 1 + x->can_add; adds++) {
        x->adds = adds;
        GA_TRY(make(t, u, x, i, e));
        GA_TRY(launch_own(t, t->stream, i, x->args[0], e));
        GA_TRY(launch_twin(t, t->stream, i, x->args[1], e));
        for (int k = 0; k < w->parameters; k++)
            if (w->made[k].result) GA_TRY(differ(t, u, x, w, k, out, e));
    }
    return 0;
}

/* The shortest of a few times, both kernels being warm. */
static int measure(const ga_twins *t, const tools *u, trial *x, int i, bool twin, float *ms, ga_err *e) {
    *ms = 0;
    for (int n = 0; n < TIMES; n++) {
        float now;
        GA_TRY(ga_device_record(t->device, u->from, t->stream, e));
        GA_TRY((twin ? launch_twin : launch_own)(t, t->stream, i, x->args[twin], e));
        GA_TRY(ga_device_record(t->device, u->to, t->stream, e));
        GA_TRY(ga_device_elapsed(t->device, u->from, u->to, &now, e));
        if (n == 0 || now < *ms) *ms = now;
    }
    return 0;
}

/* Whether a twin is to be taken; `kept`: what an earlier start has chosen, 0 or 1, -1: nothing. */
static int try_twin(const ga_twins *t, const tools *u, int i, int kept, bool *take, ga_err *e) {
    trial x = {0};
    int64_t different;
    float own = 0, other = 0;
    *take = false;
    if (kept == 0) return 0;
    GA_TRY(ga_device_borrow(t->device, place(&x, &t->list[i]), &x.memory, e));
    if (!x.memory) {
        ga_say("%s: no memory to compare its kernel for sm_90a, mma.sync computes it", t->list[i].name);
        return 0;
    }
    place(&x, &t->list[i]);
    int code = compare(t, u, &x, i, &different, e);
    if (code == 0 && kept < 0) code = measure(t, u, &x, i, false, &own, e);
    if (code == 0 && kept < 0) code = measure(t, u, &x, i, true, &other, e);
    ga_device_give_back(t->device, x.memory);
    if (code == 0 && different > 0)
        ga_say("%s: %lld results of its kernel for sm_90a are wrong, mma.sync computes it", t->list[i].name,
               (long long)different);
    *take = code == 0 && different == 0 && (kept > 0 || other < own);
    return code;
}

/* === the start ============================================================================================== */

/* Finds the kernels of a twin; *all becomes false where one is not there. */
static int find_kernels(ga_twins *t, int i, bool *all, ga_err *e) {
    static const char *const names[GA_TWIN_KERNELS] = {"boxes", "parts", "sums", "totals"};
    const ga_twin *w = &t->list[i];
    const unsigned blocks[GA_TWIN_KERNELS] = {w->own_blocks, w->tiles, w->sums, w->totals};
    for (int k = 0; k < GA_TWIN_KERNELS; k++) {
        char name[256];
        if (blocks[k] == 0) continue;
        snprintf(name, sizeof name, "%s_%s", k < FIRST_OF_SUMS ? w->twin : w->summing, names[k]);
        GA_TRY(ga_device_kernel(t->device, name, &t->states[i].kernels[k], e));
        *all = *all && t->states[i].kernels[k];
    }
    return 0;
}

/* Finds the twins and allows their shared memory; false, with a line, if they cannot be used here. */
static int find(ga_twins *t, tools *u, bool *usable, ga_err *e) {
    const ga_device_facts *f = ga_device_get_facts(t->device);
    *usable = false;
    if (f->arch != 90) return 0;
    if (!ga_device_has_boxes(t->device)) {
        ga_say("device %d: its driver has no cuTensorMapEncodeTiled, mma.sync computes all products and attention",
               f->ordinal);
        return 0;
    }
    GA_TRY(ga_device_kernel(t->device, "made_up", &u->make, e));
    GA_TRY(ga_device_kernel(t->device, "greatest", &u->greatest, e));
    GA_TRY(ga_device_kernel(t->device, "different", &u->differ, e));
    bool all = u->make && u->greatest && u->differ;
    for (int i = 0; i < t->count; i++) {
        GA_TRY(find_kernels(t, i, &all, e));
        if (all) GA_TRY(ga_device_allow_shared(t->device, t->states[i].kernels[0], t->list[i].own_shared, e));
    }
    if (!all) {
        ga_say("device %d: the kernels were compiled without those of sm_90a, mma.sync computes all products and "
               "attention",
               f->ordinal);
        return 0;
    }
    *usable = true;
    if (t->parts_bytes > 0) GA_TRY(ga_device_arena(t->device, t->parts_bytes, &t->parts, e));
    GA_TRY(ga_device_event(t->device, &u->from, e));
    return ga_device_event(t->device, &u->to, e);
}

/* A twin is taken where all ranks have chosen it. */
static int agree(ga_twins *t, ga_comm *comm, ga_err *e) {
    for (int i = 0; i < t->count; i++) {
        int32_t takes = t->states[i].taken;
        GA_TRY(ga_comm_all_reduce(comm, &takes, 1, GA_I32, e));
        t->states[i].taken = takes == ga_comm_size(comm);
    }
    return 0;
}

static int choose(ga_twins *t, const tools *u, const char *force, ga_tuning *kept, ga_err *e) {
    if (force && strcmp(force, "none") == 0) return 0;
    for (int i = 0; i < t->count; i++) {
        const int before = force ? 1 : ga_tuning_get(kept, t->list[i].name);
        GA_TRY(try_twin(t, u, i, before, &t->states[i].taken, e));
    }
    return 0;
}

int ga_twins_open(ga_twins *t, const char *folder, const ga_kernel_source *text, ga_comm *comm, ga_err *e) {
    const char *force = getenv("GAGEN_TWINS");
    tools u = {0};
    bool usable;
    ga_tuning kept;
    if (force && strcmp(force, "all") != 0 && strcmp(force, "none") != 0)
        return ga_fail(e, GA_INPUT, "GAGEN_TWINS: found \"%s\", expected all or none", force);
    memset(t->states, 0, sizeof *t->states * (size_t)t->count);
    GA_TRY(find(t, &u, &usable, e));
    const bool keeps = usable && !force && !getenv("GAGEN_KERNELS"); /* edited kernels have no choices */
    ga_tuning_read(&kept, folder, keeps ? ga_device_get_facts(t->device)->name : NULL, text);
    int code = usable ? choose(t, &u, force, &kept, e) : 0;
    if (code == 0) code = agree(t, comm, e);
    const bool writes = code == 0 && keeps && ga_comm_rank(comm) == 0;
    for (int i = 0; i < t->count && writes; i++) ga_tuning_set(&kept, t->list[i].name, t->states[i].taken);
    if (writes) ga_tuning_write(&kept);
    ga_tuning_close(&kept);
    GA_TRY(code);
    ga_tuning_hash(t->sha256, t->list, t->states, t->count);
    return 0;
}
