/* start.c: see start.h. */
#include "log/start.h"

#include "files/ckpt_manifest.h"

#include <stdio.h>
#include <zlib.h>

enum { OPTIONS = 20, TEXT = 64 };

/* The facts that ranks compare, and the texts of those that are numbers. */
typedef struct table {
    ga_fact facts[OPTIONS + GA_DATA_FILES];
    char texts[OPTIONS + GA_DATA_FILES][TEXT];
    int count;
} table;

static void add_text(table *t, const char *name, const char *text) {
    t->facts[t->count++] = (ga_fact){name, text ? text : "none"};
}

static void add_number(table *t, const char *name, int64_t value) {
    snprintf(t->texts[t->count], TEXT, "%lld", (long long)value);
    add_text(t, name, t->texts[t->count]);
}

/* An option of which 0 stands for none. */
static void add_option(table *t, const char *name, int64_t value) {
    if (value == 0) add_text(t, name, NULL);
    else add_number(t, name, value);
}

static void add_file(table *t, const char *name, const ga_data_file *f) {
    snprintf(t->texts[t->count], TEXT, "%lld bytes with crc32 %08x", (long long)f->bytes, (unsigned)f->checksum);
    add_text(t, name, t->texts[t->count]);
}

int ga_start_same_inputs(const ga_options *o, const ga_ckpt_state *now, ga_comm *comm, ga_err *e) {
    table t = {.count = 0};
    if (ga_comm_size(comm) == 1) return GA_OK;
    add_text(&t, "the version of gagen", now->version);
    add_text(&t, "the target", now->target);
    add_number(&t, "batch", now->batch);
    add_number(&t, "accumulate", now->accumulate);
    add_number(&t, "--seed", (int64_t)now->seed);
    add_option(&t, "--cycles", o->cycles);
    add_option(&t, "--stop-micro", o->stop_micro);
    add_option(&t, "--overfit", o->overfit);
    add_option(&t, "--sample", o->sample);
    add_text(&t, "--eval", o->eval ? "given" : NULL);
    add_text(&t, "--save-init", o->save_init ? "given" : NULL);
    add_text(&t, "--save-weights", o->save_weights ? "given" : NULL);
    add_text(&t, "--predict", o->predict ? "given" : NULL);
    add_text(&t, "--dump", o->dump ? "given" : NULL);
    add_text(&t, "--resume", o->resume);
    add_text(&t, "--checkpoint", o->checkpoint);
    add_text(&t, "--fresh", o->fresh);
    if (o->init) {
        ga_data_file init;
        GA_TRY(ga_data_file_read(o->init, "--init", &init, e));
        add_file(&t, "--init", &init);
    } else {
        add_text(&t, "--init", NULL);
    }
    for (int i = 0; i < now->data_count; i++) add_file(&t, now->data[i].path, &now->data[i]);
    return ga_comm_same_facts(comm, t.facts, t.count, e);
}

/* Calls fn for each run of a whole array, which keeps the values that fn leaves. */
static int each_run(const ga_array *a, int (*fn)(void *arg, void *values, size_t bytes), void *arg, bool changes,
                    ga_err *e) {
    char buffer[GA_RUN];
    for (int k = 0; k < a->count && !a->shard; k++)
        for (int l = 0; l < a->params[k].count; l++)
            for (ga_held h = {0}; ga_array_next(a, &a->params[k], l, &h);) {
                void *values = ga_array_get(a, &h, buffer, e);
                if (!values) return GA_ENVIRONMENT;
                GA_TRY(fn(arg, values, (size_t)h.n * ga_dtype_bytes(a->dtype)));
                if (changes) GA_TRY(ga_array_put(a, &h, values, e));
            }
    return GA_OK;
}

static int add_sum(void *arg, void *values, size_t bytes) {
    uint64_t *sums = arg;
    *sums = *sums * 0x100000001b3u + crc32_z(0, values, bytes);
    return GA_OK;
}

typedef struct {
    ga_comm *comm;
    int group;
    ga_err *e;
} taking;

static int take_first(void *arg, void *values, size_t bytes) {
    const taking *t = arg;
    return ga_comm_broadcast_in(t->comm, t->group, values, bytes, 0, t->e);
}

/* Sets *other to the first rank of this rank's list of the file's group, if that one has other values. */
static int compare_file(const ga_ckpt_config *c, const ga_ckpt_file *f, const ga_ckpt_list *list, int *other,
                        ga_err *e) {
    uint64_t sums = 0, first;
    for (int k = 0; k < f->count; k++) GA_TRY(each_run(&f->arrays[k], add_sum, &sums, false, e));
    first = sums;
    GA_TRY(ga_comm_broadcast_in(c->comm, list->group, &first, sizeof first, 0, e));
    if (first != sums) *other = list->writer;
    return GA_OK;
}

int ga_start_same_values(const ga_ckpt_config *c, ga_err *e) {
    int low, rank, other = -1;
    if (ga_comm_size(c->comm) == 1) return GA_OK;
    for (int i = 0; i < c->file_count; i++) {
        const ga_ckpt_list list = ga_ckpt_list_of(c->comm, c->files[i].name);
        if (list.group == 0 || list.held) GA_TRY(compare_file(c, &c->files[i], &list, &other, e));
    }
    GA_TRY(ga_comm_lowest(c->comm, -1 - other, &low, &rank, e));
    if (low == 0) return GA_OK;
    if (ga_comm_rank(c->comm) == 0)
        ga_say("%s: rank %d has other parameters or state than rank %d, although all inputs agree: it takes those of "
               "rank %d", c->program, rank, -1 - low, -1 - low);
    for (int i = 0; i < c->file_count; i++) {
        const ga_ckpt_list list = ga_ckpt_list_of(c->comm, c->files[i].name);
        for (int k = 0; k < c->files[i].count && (list.group == 0 || list.held); k++)
            GA_TRY(each_run(&c->files[i].arrays[k], take_first, &(taking){c->comm, list.group, e}, true, e));
    }
    return GA_OK;
}
