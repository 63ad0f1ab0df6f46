/* start.c: see start.h. */
#include "log/start.h"

#include <stdio.h>
#include <zlib.h>

enum { OPTIONS = 16, TEXT = 64 };

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

/* Bytes of an array from its base to the end of its last parameter. */
static size_t bytes_of(const ga_array *a) {
    int64_t end = 0;
    for (int i = 0; i < a->count; i++) {
        const ga_param *p = &a->params[i];
        const int64_t own = p->offset + (p->count - 1) * p->stride + p->n;
        if (own > end) end = own;
    }
    return (size_t)end * ga_dtype_bytes(a->dtype);
}

int ga_start_same_values(const ga_ckpt_config *c, ga_err *e) {
    uint64_t sums = 0;
    int rank;
    if (ga_comm_size(c->comm) == 1) return GA_OK;
    for (int i = 0; i < c->file_count; i++)
        for (int k = 0; k < c->files[i].count; k++) {
            const ga_array *a = &c->files[i].arrays[k];
            if (!a->shard) sums = sums * 0x100000001b3u + crc32_z(0, a->base, bytes_of(a));
        }
    GA_TRY(ga_comm_compare(c->comm, sums, &rank, e));
    if (rank < 0) return GA_OK;
    if (ga_comm_rank(c->comm) == 0)
        ga_say("%s: rank %d has other parameters or state than rank 0, although all inputs agree: all ranks take those "
               "of rank 0", c->program, rank);
    for (int i = 0; i < c->file_count; i++)
        for (int k = 0; k < c->files[i].count; k++) {
            const ga_array *a = &c->files[i].arrays[k];
            if (!a->shard) GA_TRY(ga_comm_broadcast(c->comm, a->base, bytes_of(a), 0, e));
        }
    return GA_OK;
}
