/* data.c: split, order of an epoch, filling a micro-batch, evaluation. data.h and epochs.h define the
 * order exactly. */
#include "data/data_private.h"

#include "base/rng.h"

#include <string.h>

int64_t ga_split_count(const ga_split *s, bool eval) {
    int64_t n = s->rows;
    if (s->of > 0)
        n = (s->rows - (s->fold - 1) + s->of - 1) / s->of;
    else if (s->eval_rows > 0)
        n = s->eval_rows;
    else
        return s->rows;
    return eval ? n : s->rows - n;
}

int64_t ga_split_row(const ga_split *s, bool eval, int64_t i) {
    int64_t p = i;
    if (s->at_end) return eval ? s->rows - s->eval_rows + i : i;
    if (s->of > 0 && eval) {
        p = s->fold - 1 + i * s->of;
    } else if (s->of > 0) {
        int64_t rest = i % (s->of - 1);
        p = i / (s->of - 1) * s->of + rest + (rest >= s->fold - 1);
    } else if (s->eval_rows > 0) {
        p = eval ? i : s->eval_rows + i;
    } else {
        return i;
    }
    return (int64_t)ga_permute(s->seed, ga_rng_stream("split"), (uint64_t)s->rows, (uint64_t)p);
}

/* -- one micro-batch --------------------------------------------------------------------------- */

static size_t field_bytes(const ga_source *s, int field, int64_t rows) {
    return (size_t)(rows * s->field[field].width) * ga_dtype_bytes(s->field[field].type);
}

size_t ga_batch_offset(const ga_source *s, int field, int64_t rows) {
    size_t at = 0;
    for (int f = 0; f < field; f++) at += ga_padded(field_bytes(s, f, rows));
    return at;
}

size_t ga_batch_bytes(const ga_source *s, int64_t rows) {
    return ga_batch_offset(s, s->fields, rows) + ga_padded(sizeof(ga_micro));
}

/* Addresses of the fields of row b of a batch. */
static void row_places(const ga_source *s, int64_t rows, char *batch, int64_t b,
                       void *out[GA_FIELDS]) {
    for (int f = 0; f < s->fields; f++)
        out[f] = batch + ga_batch_offset(s, f, rows) + (size_t)b * field_bytes(s, f, 1);
}

/* Fills row b of a batch with row `row` of the files. */
static void fill_row(const ga_source *s, int64_t rows, char *batch, int64_t b, int64_t row,
                     const uint64_t *draw) {
    void *out[GA_FIELDS];
    row_places(s, rows, batch, b, out);
    s->decode(s, row, draw, out);
}

/* Fills in the ga_micro of a batch with the rows from `first` on, of n in all. */
static ga_micro *begin_batch(const ga_source *s, int64_t rows, char *batch, int64_t n,
                             int64_t first) {
    ga_micro *micro = (ga_micro *)(batch + ga_batch_offset(s, s->fields, rows));
    const int64_t there = n <= first ? 0 : n - first < rows ? n - first : rows;
    *micro = (ga_micro){.rows = there};
    return micro;
}

/* Fills missing rows with copies of the first one, not with zeros: a model may compute NaN from zeros, and
 * weight 0 would not remove it. */
static void fill_rest(const ga_source *s, int64_t rows, char *batch, int64_t there) {
    for (int f = 0; f < s->fields; f++) {
        char *const first = batch + ga_batch_offset(s, f, rows);
        for (int64_t b = there > 0 ? there : 1; b < rows; b++)
            memcpy(first + field_bytes(s, f, b), first, field_bytes(s, f, 1));
    }
}

/* The same for the training micro-batch at place p. */
static ga_micro *begin_training(const ga_loader_config *c, const ga_place *p, char *batch,
                                int64_t n, int64_t first) {
    ga_micro *micro = begin_batch(c->data.source, c->batch, batch, n, first);
    micro->row = ((int64_t)p->r * c->world + c->rank) * c->batch;
    micro->before = p->r;
    micro->cycle = p->cycle;
    micro->training = 1;
    micro->seed = c->seed;
    return micro;
}

void ga_batch_fill(const ga_loader_config *c, const ga_place *p, char *batch) {
    const int64_t n = ga_split_count(&c->data.split, false);
    const int64_t first = (p->position * c->world + c->rank) * c->batch;
    const uint64_t order = ga_rng_stream("epoch") + (uint64_t)p->epoch;
    const uint64_t augment = ga_rng_stream("augment");
    const ga_micro *micro = begin_training(c, p, batch, n, first);
    for (int64_t b = 0; b == 0 || b < micro->rows; b++) {
        uint64_t at = (uint64_t)(micro->rows > 0 ? first + b : p->position * c->world * c->batch);
        if (c->shuffle) at = ga_permute(c->seed, order, (uint64_t)n, at);
        const uint64_t draw = ga_draw_key(c->seed, augment, 0, (uint64_t)p->cycle,
                                          (uint64_t)(micro->row + b));
        fill_row(c->data.source, c->batch, batch, b,
                 ga_split_row(&c->data.split, false, (int64_t)at), &draw);
    }
    fill_rest(c->data.source, c->batch, batch, micro->rows);
}

int64_t ga_batch_read(const ga_loader_config *c, const ga_place *p, char *batch, ga_err *e) {
    const ga_source *s = c->data.source;
    const int64_t first = c->rank * c->batch, all = c->batch * c->world;
    void *out[GA_FIELDS];
    int64_t n = 0;
    for (; n < all; n++) {
        const bool own = n >= first && n < first + c->batch;
        const bool kept = own || n == 0; /* row 0 of all ranks is kept to copy, in case this rank has no row */
        if (kept) row_places(s, c->batch, batch, own ? n - first : 0, out);
        const int code = s->feed.next(s->feed.self, kept ? out : NULL, e);
        GA_TRY(code);
        if (code == 0) break;
    }
    fill_rest(s, c->batch, batch, begin_training(c, p, batch, n, first)->rows);
    return n;
}

/* -- evaluation -------------------------------------------------------------------------------- */

int64_t ga_eval_batches(const ga_loader_config *c) {
    int64_t rows = c->batch * c->world;
    return (ga_split_count(&c->data.split, true) + rows - 1) / rows;
}

int64_t ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch) {
    const int64_t n = ga_split_count(&c->data.split, true);
    const int64_t first = (k * c->world + c->rank) * c->batch;
    ga_micro *micro = begin_batch(c->data.source, c->batch, batch, n, first);
    micro->row = first;
    micro->seed = c->seed;
    for (int64_t b = 0; b == 0 || b < micro->rows; b++)
        fill_row(c->data.source, c->batch, batch, b,
                 ga_split_row(&c->data.split, true, micro->rows > 0 ? first + b : 0), NULL);
    fill_rest(c->data.source, c->batch, batch, micro->rows);
    return micro->rows;
}

/* -- predictions ------------------------------------------------------------------------------- */

int64_t ga_predicted_next(ga_predicted *r, int64_t rows, void *batch, ga_err *e) {
    const ga_source *s = &r->source;
    const bool streamed = s->feed.next != NULL;
    const int target = s->fields - 1;
    int64_t n = 0;
    void *out[GA_FIELDS];
    for (; n < rows && (streamed || r->done + n < s->rows); n++) {
        row_places(s, rows, batch, n, out);
        const int code = streamed ? s->feed.next(s->feed.self, out, e) : 1;
        GA_TRY(code);
        if (code == 0) break;
        if (!streamed) s->decode(s, r->done + n, NULL, out);
    }
    memset((char *)batch + ga_batch_offset(s, target, rows), 0, field_bytes(s, target, rows));
    begin_batch(s, rows, batch, n, 0);
    fill_rest(s, rows, batch, n);
    r->done += n;
    return n;
}

void ga_predicted_close(ga_predicted *r) {
    if (r->source.feed.close) r->source.feed.close(r->source.feed.self);
    ga_arena_close(&r->arena);
}
