/* data.c: split, epoch order, micro-batches, the read-ahead ring. data.h and epochs.h define the
 * order exactly. */
#include "data.h"

#include "rng.h"

#include <pthread.h>
#include <signal.h>
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

/* Slots are filled in the order of use: `filled` and `used` count micro-batches since the last
 * seek, the slot of micro-batch m is m % slots. Both are guarded by `lock`; slots between them
 * belong to the reader. */
struct ga_loader {
    ga_loader_config c;
    ga_epochs epochs;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool threaded, closing;
    int64_t slots, filled, used;
    int64_t generation;   /* seeks so far: a batch filled for an earlier one is dropped */
    ga_place fill, place; /* next micro-batch to fill, to consume */
    int64_t unread;       /* where the dropped tail of the epoch before `fill` begins, N: nowhere */
    size_t bytes;         /* of a slot */
    char *ring;
};

/* -- one micro-batch --------------------------------------------------------------------------- */

static size_t field_bytes(const ga_source *s, int field, int64_t rows) {
    return (size_t)(rows * s->field[field].width) * ga_dtype_bytes(s->field[field].type);
}

/* Where a field begins; that behind the last one is the ga_micro. */
static size_t field_offset(const ga_source *s, int field, int64_t rows) {
    size_t at = 0;
    for (int f = 0; f < field; f++) at += ga_padded(field_bytes(s, f, rows));
    return at;
}

size_t ga_batch_bytes(const ga_source *s, int64_t rows) {
    return field_offset(s, s->fields, rows) + ga_padded(sizeof(ga_micro));
}

/* Row b of a batch: row `row` of the files. */
static void fill_row(const ga_source *s, int64_t rows, char *batch, int64_t b, int64_t row,
                     const uint64_t *draw) {
    void *out[GA_FIELDS];
    for (int f = 0; f < s->fields; f++)
        out[f] = batch + field_offset(s, f, rows) + (size_t)b * field_bytes(s, f, 1);
    s->decode(s, row, draw, out);
}

/* Says what the batch holds: the rows from `first` of n on; those behind the end become zeros. */
static ga_micro *begin_batch(const ga_source *s, int64_t rows, char *batch, int64_t n,
                             int64_t first) {
    ga_micro *micro = (ga_micro *)(batch + field_offset(s, s->fields, rows));
    const int64_t there = n <= first ? 0 : n - first < rows ? n - first : rows;
    for (int f = 0; f < s->fields; f++)
        memset(batch + field_offset(s, f, rows) + field_bytes(s, f, there), 0,
               field_bytes(s, f, rows - there));
    *micro = (ga_micro){.rows = there};
    return micro;
}

/* The micro-batch at place p. */
static void fill_batch(const ga_loader_config *c, const ga_place *p, char *batch) {
    const ga_source *s = c->data.source;
    const int64_t n = ga_split_count(&c->data.split, false);
    const int64_t first = (p->position * c->world + c->rank) * c->batch;
    const uint64_t order = ga_rng_stream("epoch") + (uint64_t)p->epoch;
    const uint64_t augment = ga_rng_stream("augment");
    ga_micro *micro = begin_batch(s, c->batch, batch, n, first);
    micro->row = ((int64_t)p->r * c->world + c->rank) * c->batch;
    micro->cycle = p->cycle;
    micro->training = 1;
    micro->seed = c->seed;
    for (int64_t b = 0; b < micro->rows; b++) {
        uint64_t at = (uint64_t)(first + b);
        if (c->shuffle) at = ga_permute(c->seed, order, (uint64_t)n, at);
        const uint64_t draw = ga_draw_key(c->seed, augment, 0, (uint64_t)p->cycle,
                                          (uint64_t)(micro->row + b));
        fill_row(s, c->batch, batch, b, ga_split_row(&c->data.split, false, (int64_t)at), &draw);
    }
}

/* -- the ring ---------------------------------------------------------------------------------- */

ga_epochs ga_loader_epochs(const ga_loader_config *c) {
    const int64_t n = ga_split_count(&c->data.split, false), rows = c->batch * c->world;
    return (ga_epochs){.batches = (n + (c->pad ? rows - 1 : 0)) / rows,
                       .accumulate = c->accumulate,
                       .accumulates = c->accumulates,
                       .tail = c->tail};
}

static size_t slots_of(const ga_loader_config *c) {
    const ga_epochs epochs = ga_loader_epochs(c);
    return 2 * (size_t)ga_epochs_largest(&epochs);
}

size_t ga_loader_bytes(const ga_loader_config *c) {
    return 2048 + slots_of(c) * ga_batch_bytes(c->data.source, c->batch);
}

/* Fills the next slot; called with the lock held, which is given up meanwhile. A tail that is
 * consumed passes through the slot first. */
static void fill_next(ga_loader *l) {
    const int64_t generation = l->generation, batches = l->epochs.batches;
    char *slot = l->ring + (size_t)(l->filled % l->slots) * l->bytes;
    const ga_place p = l->fill;
    ga_place next = p, tail = {.epoch = p.epoch - 1, .position = l->unread, .cycle = p.cycle};
    pthread_mutex_unlock(&l->lock);
    for (; l->c.consume && tail.position < batches; tail.position++) fill_batch(&l->c, &tail, slot);
    fill_batch(&l->c, &p, slot);
    ga_epochs_advance(&l->epochs, &next, 1);
    pthread_mutex_lock(&l->lock);
    if (generation != l->generation) return;
    l->filled++;
    l->fill = next;
    l->unread = next.epoch > p.epoch ? p.position + 1 : batches;
    pthread_cond_broadcast(&l->changed);
}

static void *read_ahead(void *arg) {
    ga_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->closing) {
        if (l->filled - l->used < l->slots)
            fill_next(l);
        else
            pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static int check_config(const ga_loader_config *c, ga_err *e) {
    const ga_epochs epochs = ga_loader_epochs(c);
    ga_err why;
    if (ga_epochs_check(&epochs, &why) == GA_OK) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "data: %lld training rows in micro-batches of %lld rows on each of %d ranks: %s",
                   (long long)ga_split_count(&c->data.split, false), (long long)c->batch, c->world,
                   why.msg);
}

static void start_reading(ga_loader *l) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Without a thread ga_loader_cycle fills the ring itself: slower, the same batches. */
    l->threaded = pthread_create(&l->thread, NULL, read_ahead, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e) {
    *out = NULL;
    GA_TRY(check_config(c, e));
    const size_t slots = slots_of(c), bytes = ga_batch_bytes(c->data.source, c->batch);
    ga_loader *l = ga_take(a, sizeof *l, 64, e);
    char *ring = l ? ga_take(a, slots * bytes, 64, e) : NULL;
    if (!ring) return GA_BUG;
    l->c = *c;
    l->epochs = ga_loader_epochs(c);
    l->slots = (int64_t)slots;
    l->bytes = bytes;
    l->ring = ring;
    l->unread = l->epochs.batches;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    start_reading(l);
    *out = l;
    return GA_OK;
}

void ga_loader_close(ga_loader *l) {
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    if (l->threaded) pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

int ga_loader_seek(ga_loader *l, ga_place to, ga_err *e) {
    GA_TRY(ga_epochs_place(&l->epochs, &to, e));
    pthread_mutex_lock(&l->lock);
    l->generation++;
    l->filled = l->used = 0;
    l->place = l->fill = to;
    l->unread = l->epochs.batches;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return GA_OK;
}

int ga_loader_cycle(ga_loader *l, ga_err *e) {
    const int count = ga_epochs_cycle(&l->epochs, &l->place) - l->place.r;
    (void)e; /* rows are in memory: nothing can fail here */
    pthread_mutex_lock(&l->lock);
    while (l->filled - l->used < count) {
        if (l->threaded)
            pthread_cond_wait(&l->changed, &l->lock);
        else
            fill_next(l);
    }
    pthread_mutex_unlock(&l->lock);
    return count;
}

int ga_loader_ahead(ga_loader *l) {
    ga_place p = l->place;
    const int coming = ga_epochs_cycle(&l->epochs, &p) - p.r;
    ga_epochs_advance(&l->epochs, &p, coming);
    const int behind = ga_epochs_cycle(&l->epochs, &p);
    pthread_mutex_lock(&l->lock);
    const bool there = l->filled - l->used >= coming + behind;
    pthread_mutex_unlock(&l->lock);
    return there ? behind : 0;
}

const void *ga_loader_field(const ga_loader *l, int k, int field) {
    return l->ring + (size_t)((l->used + k) % l->slots) * l->bytes +
           field_offset(l->c.data.source, field, l->c.batch);
}

const ga_micro *ga_loader_micro(const ga_loader *l, int k) {
    return ga_loader_field(l, k, l->c.data.source->fields);
}

void ga_loader_release(ga_loader *l, int count) {
    pthread_mutex_lock(&l->lock);
    l->used += count;
    ga_epochs_advance(&l->epochs, &l->place, count);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

ga_place ga_loader_place(const ga_loader *l) {
    return l->place;
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
    for (int64_t b = 0; b < micro->rows; b++)
        fill_row(c->data.source, c->batch, batch, b,
                 ga_split_row(&c->data.split, true, first + b), NULL);
    return micro->rows;
}
