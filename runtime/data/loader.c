/* loader.c: the read-ahead ring: whole cycles (epochs.h), from rows in memory or from a feed of unknown
 * length. */
#include "data/data_private.h"

#include <pthread.h>
#include <signal.h>

/* A micro-batch in the ring; `cycle` is the number of micro-batches of its cycle, 0 while unknown. */
typedef struct slot {
    _Alignas(64) ga_place place;
    int cycle;
} slot;

/* Slots are filled in the order of use: `filled`, `settled` and `used` count micro-batches since the last
 * seek; micro-batch m is in slot m % slots. Micro-batches below `settled` belong to complete cycles and
 * can be served; later ones may still be dropped. `lock` guards all fields. */
struct ga_loader {
    ga_loader_config c;
    ga_epochs epochs;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool threaded, closing;
    int64_t slots, filled, settled, used;
    int64_t generation;   /* seeks so far: a micro-batch filled before the last seek is dropped */
    ga_place fill, place; /* of the next micro-batch to fill, and to consume */
    int64_t unread;       /* position of the dropped tail of the epoch before `fill`; N: no tail */
    int64_t at, passed;   /* of the feed: its position, -1: it must be rewound; rows read since the last
                             rewind */
    int code;             /* not GA_OK: reading stopped with `error` */
    ga_err error;
    size_t bytes; /* of a micro-batch */
    char *ring;
    slot *slot;
};

static bool streams(const ga_loader_config *c) {
    return c->data.source->feed.next != NULL;
}

ga_epochs ga_loader_epochs(const ga_loader_config *c) {
    const int64_t n = ga_split_count(&c->data.split, false), rows = c->batch * c->world;
    const int64_t batches = (n + (c->pad ? rows - 1 : 0)) / rows;
    return (ga_epochs){.batches = streams(c) ? GA_EPOCHS_OPEN : batches,
                       .accumulate = c->accumulate,
                       .accumulates = c->accumulates,
                       .tail = c->tail};
}

static size_t slots_of(const ga_loader_config *c) {
    const ga_epochs epochs = ga_loader_epochs(c);
    return 2 * (size_t)ga_epochs_largest(&epochs);
}

size_t ga_loader_bytes(const ga_loader_config *c) {
    return 2048 + slots_of(c) * (sizeof(slot) + ga_batch_bytes(c->data.source, c->batch));
}

/* -- filling: called with the lock held; it is released while rows are read --------------------- */

static slot *slot_of(const ga_loader *l, int64_t m) {
    return &l->slot[m % l->slots];
}

/* Completes the cycle of the last filled micro-batches: it has `count`. */
static void settle(ga_loader *l, int count) {
    for (; l->settled < l->filled; l->settled++) slot_of(l, l->settled)->cycle = count;
}

/* Counts the micro-batch at l->fill as filled, and advances l->fill. */
static void keep(ga_loader *l) {
    const ga_place p = l->fill;
    const int count = ga_epochs_cycle(&l->epochs, &p);
    *slot_of(l, l->filled++) = (slot){.place = p};
    if (p.r + 1 == count) settle(l, count);
    ga_epochs_advance(&l->epochs, &l->fill, 1);
    l->unread = l->fill.epoch > p.epoch ? p.position + 1 : l->epochs.batches;
}

static int refuse_place(const ga_place *p, int64_t batches, ga_err *e) {
    return ga_fail(e, GA_INPUT,
                   "data: epoch %lld, micro-batch %lld, cycle %lld, %d micro-batches into it: no "
                   "such place, the epoch ended after %lld micro-batches",
                   (long long)p->epoch, (long long)p->position, (long long)p->cycle, p->r,
                   (long long)batches);
}

static int check_epoch(const ga_loader_config *c, const ga_epochs *epochs, int64_t rows,
                       ga_err *e) {
    ga_err why;
    if (ga_epochs_check(epochs, &why) == GA_OK) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "data: %lld training rows in micro-batches of %lld rows on each of %d rank%s: %s",
                   (long long)rows, (long long)c->batch, c->world, c->world == 1 ? "" : "s", why.msg);
}

/* Ends the epoch, since the feed ended before the micro-batch at l->fill was full. A cycle begun is
 * dropped, becomes a shorter cycle, or continues, as `tail` says. */
static int end_epoch(ga_loader *l, ga_err *e) {
    const ga_place p = l->fill;
    ga_epochs epoch = l->epochs;
    epoch.batches = p.position;
    GA_TRY(check_epoch(&l->c, &epoch, l->passed, e));
    const bool there = l->filled > l->settled;
    /* micro-batches of the cycle done before a seek into it */
    const int done = there ? slot_of(l, l->settled)->place.r : p.r;
    ga_place next = {.epoch = p.epoch + 1, .cycle = p.cycle};
    if (l->c.tail == GA_CARRY) {
        next.r = p.r;
    } else if (done > 0 && (!there || l->c.tail == GA_DROP)) {
        return refuse_place(&p, p.position, e);
    } else if (l->c.tail == GA_FLUSH && there) {
        settle(l, p.r);
        next.cycle++;
    } else {
        l->filled = l->settled;
    }
    if (!l->c.consume) l->epochs.batches = p.position;
    l->fill = next;
    return GA_OK;
}

/* Moves the feed to the micro-batch at p: 1, or a negative status if the feed is shorter or fails. */
static int seek_feed(ga_loader *l, const ga_place *p, ga_err *e) {
    const ga_feed *f = &l->c.data.source->feed;
    if (l->at == p->position) return 1;
    l->at = -1;
    GA_TRY(f->rewind(f->self, e));
    const int64_t all = l->c.batch * l->c.world, rows = p->position * all;
    for (l->passed = 0; l->passed < rows; l->passed++) {
        const int code = f->next(f->self, NULL, e);
        GA_TRY(code);
        if (code == 0) break;
    }
    const int64_t batches = (l->passed + (l->c.pad ? all - 1 : 0)) / all;
    if (batches < p->position) return refuse_place(p, batches, e);
    l->at = p->position;
    return 1;
}

/* Reads the micro-batch at p from the feed: rows read for all ranks, fewer only at the end of the feed. */
static int64_t read_next(ga_loader *l, const ga_place *p, char *batch, ga_err *e) {
    GA_TRY(seek_feed(l, p, e));
    l->at = -1;
    const int64_t rows = ga_batch_read(&l->c, p, batch, e);
    if (rows < 0) return rows;
    l->at = p->position + 1;
    l->passed += rows;
    return rows;
}

/* Fills micro-batch m since the last seek, at p. With `consume` the dropped tail is first read into the same slot. */
static void fill_from_memory(ga_loader *l, int64_t m, const ga_place *p, int64_t unread, char *batch) {
    const bool all = l->c.overfit == 0;
    const ga_place rows = {all ? p->epoch : 0, all ? p->position : m % l->c.overfit, p->cycle, p->r};
    ga_place tail = {.epoch = p->epoch - 1, .position = unread, .cycle = p->cycle};
    const int64_t batches = l->epochs.batches;
    for (; l->c.consume && tail.position < batches; tail.position++)
        ga_batch_fill(&l->c, &tail, batch);
    ga_batch_fill(&l->c, &rows, batch);
}

/* Fills the next slot. The lock is released meanwhile, so a seek may make the micro-batch obsolete. */
static void fill_next(ga_loader *l) {
    const int64_t generation = l->generation, unread = l->unread, full = l->c.batch * l->c.world, m = l->filled;
    char *batch = l->ring + (size_t)(m % l->slots) * l->bytes;
    const ga_place p = l->fill;
    int64_t rows = full;
    ga_err e;
    pthread_mutex_unlock(&l->lock);
    if (streams(&l->c)) rows = read_next(l, &p, batch, &e);
    else fill_from_memory(l, m, &p, unread, batch);
    pthread_mutex_lock(&l->lock);
    if (generation != l->generation) return;
    int code = rows < 0 ? (int)rows : GA_OK;
    if (code == GA_OK && (rows == full || (l->c.pad && rows > 0))) keep(l);
    else if (code == GA_OK) code = end_epoch(l, &e);
    if (code < 0) {
        l->code = code;
        l->error = e;
    }
    pthread_cond_broadcast(&l->changed);
}

static void *read_ahead(void *arg) {
    ga_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->closing) {
        if (l->code == GA_OK && l->filled - l->used < l->slots)
            fill_next(l);
        else
            pthread_cond_wait(&l->changed, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* Waits until the coming cycle is in the ring; false if reading stopped before. */
static bool wait_for_cycle(ga_loader *l) {
    while (l->settled == l->used && l->code == GA_OK) {
        if (l->threaded)
            pthread_cond_wait(&l->changed, &l->lock);
        else
            fill_next(l);
    }
    return l->settled > l->used;
}

/* -- open, seek, close ------------------------------------------------------------------------- */

static void start_reading(ga_loader *l) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* If no thread can be started, ga_loader_cycle fills the ring: slower, with the same batches. */
    l->threaded = pthread_create(&l->thread, NULL, read_ahead, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Refuses more micro-batches than an epoch has. */
static int check_overfit(const ga_loader_config *c, const ga_epochs *epochs, ga_err *e) {
    if (c->overfit > 0 && streams(c))
        return ga_fail(e, GA_INPUT, "--overfit %lld: a stream is read forward only: leave stream = true out of the "
                       "spec's data", (long long)c->overfit);
    if (c->overfit > epochs->batches)
        return ga_fail(e, GA_INPUT, "--overfit %lld: an epoch has %lld micro-batches on each rank, a number from 1 to "
                       "%lld expected", (long long)c->overfit, (long long)epochs->batches, (long long)epochs->batches);
    return GA_OK;
}

int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e) {
    *out = NULL;
    const ga_epochs epochs = ga_loader_epochs(c);
    GA_TRY(check_epoch(c, &epochs, ga_split_count(&c->data.split, false), e));
    GA_TRY(check_overfit(c, &epochs, e));
    const size_t slots = slots_of(c), bytes = ga_batch_bytes(c->data.source, c->batch);
    ga_loader *l = ga_take(a, sizeof *l, 64, e);
    slot *table = l ? ga_take(a, slots * sizeof *table, 64, e) : NULL;
    char *ring = table ? ga_take(a, slots * bytes, 64, e) : NULL;
    if (!ring) return GA_BUG;
    l->c = *c;
    l->epochs = epochs;
    l->slots = (int64_t)slots;
    l->bytes = bytes;
    l->ring = ring;
    l->slot = table;
    l->unread = l->epochs.batches;
    l->at = -1;
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
    const ga_feed *f = &l->c.data.source->feed;
    if (streams(&l->c)) f->close(f->self);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

int ga_loader_check(ga_loader *l, ga_place place, ga_err *e) {
    pthread_mutex_lock(&l->lock);
    const int code = ga_epochs_place(&l->epochs, &place, e);
    pthread_mutex_unlock(&l->lock);
    return code;
}

int ga_loader_seek(ga_loader *l, ga_place to, ga_err *e) {
    pthread_mutex_lock(&l->lock);
    const int code = ga_epochs_place(&l->epochs, &to, e);
    if (code == GA_OK) {
        l->generation++;
        l->filled = l->settled = l->used = 0;
        l->place = l->fill = to;
        l->unread = l->epochs.batches;
        l->code = GA_OK;
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return code;
}

/* -- serving ----------------------------------------------------------------------------------- */

int ga_loader_cycle(ga_loader *l, ga_err *e) {
    if (l->c.comm) ga_comm_says(l->c.comm, GA_READS, l->place.cycle + 1);
    pthread_mutex_lock(&l->lock);
    int count;
    if (wait_for_cycle(l)) {
        const slot *first = slot_of(l, l->used);
        count = first->cycle - first->place.r;
    } else {
        count = ga_fail(e, l->code, "%s", l->error.msg);
    }
    pthread_mutex_unlock(&l->lock);
    if (l->c.comm) ga_comm_says(l->c.comm, GA_COMPUTES, l->place.cycle + 1);
    return count;
}

int ga_loader_ahead(ga_loader *l) {
    pthread_mutex_lock(&l->lock);
    const slot *first = slot_of(l, l->used);
    const int64_t behind = l->used + first->cycle - first->place.r;
    const int count = l->settled > behind ? slot_of(l, behind)->cycle : 0;
    pthread_mutex_unlock(&l->lock);
    return count;
}

const void *ga_loader_field(const ga_loader *l, int k, int field) {
    return l->ring + (size_t)((l->used + k) % l->slots) * l->bytes +
           ga_batch_offset(l->c.data.source, field, l->c.batch);
}

const ga_micro *ga_loader_micro(const ga_loader *l, int k) {
    return ga_loader_field(l, k, l->c.data.source->fields);
}

void ga_loader_release(ga_loader *l, int count) {
    pthread_mutex_lock(&l->lock);
    l->used += count;
    const slot *last = slot_of(l, l->used - 1);
    const bool ends = last->place.r + 1 == last->cycle;
    l->place = (ga_place){last->place.epoch, last->place.position + 1, last->place.cycle + ends,
                          ends ? 0 : last->place.r + 1};
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

ga_place ga_loader_place(ga_loader *l) {
    pthread_mutex_lock(&l->lock);
    const ga_place p = wait_for_cycle(l) ? slot_of(l, l->used)->place : l->place;
    pthread_mutex_unlock(&l->lock);
    return p;
}
