/* data.c: split, epoch order, the read-ahead ring, evaluation batches. data.h defines the order
 * exactly. */
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
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool threaded, closing;
    int64_t slots, filled, used;
    int64_t generation;             /* seeks so far: a batch filled for an earlier one is dropped */
    int64_t fill_epoch, fill_place; /* next micro-batch to fill */
    int64_t epoch, position;        /* next micro-batch to consume */
    int64_t per_epoch;              /* micro-batches used of an epoch */
    size_t input_bytes, target_bytes;
    char *input;
    int32_t *target;
};

static size_t slot_input_bytes(const ga_loader_config *c) {
    return ga_padded((size_t)(c->batch * c->data.width) * ga_dtype_bytes(c->data.dtype));
}

static size_t slot_target_bytes(const ga_loader_config *c) {
    return ga_padded((size_t)c->batch * sizeof(int32_t));
}

size_t ga_loader_bytes(const ga_loader_config *c) {
    return 1024 + 2 * (size_t)c->accumulate * (slot_input_bytes(c) + slot_target_bytes(c));
}

int64_t ga_loader_cycles(const ga_loader_config *c) {
    return ga_split_count(&c->data.split, false) / (c->batch * c->world) / c->accumulate;
}

static void copy_row(const ga_dataset *d, int64_t row, void *input, int32_t *target, int64_t to) {
    size_t bytes = (size_t)d->width * ga_dtype_bytes(d->dtype);
    memcpy((char *)input + (size_t)to * bytes, (const char *)d->input + (size_t)row * bytes, bytes);
    target[to] = d->target[row];
}

static void fill_slot(const ga_loader *l, int64_t slot, int64_t epoch, int64_t k) {
    const ga_loader_config *c = &l->c;
    uint64_t n = (uint64_t)ga_split_count(&c->data.split, false);
    uint64_t stream = ga_rng_stream("epoch") + (uint64_t)epoch;
    void *input = l->input + (size_t)slot * l->input_bytes;
    int32_t *target = (int32_t *)((char *)l->target + (size_t)slot * l->target_bytes);
    for (int64_t b = 0; b < c->batch; b++) {
        uint64_t place = (uint64_t)((k * c->world + c->rank) * c->batch + b);
        uint64_t position = c->shuffle ? ga_permute(c->seed, stream, n, place) : place;
        copy_row(&c->data, ga_split_row(&c->data.split, false, (int64_t)position), input, target,
                 b);
    }
}

/* Fills the next slot; called with the lock held, which is given up meanwhile. */
static void fill_next(ga_loader *l) {
    int64_t slot = l->filled % l->slots, generation = l->generation;
    int64_t epoch = l->fill_epoch, place = l->fill_place;
    pthread_mutex_unlock(&l->lock);
    fill_slot(l, slot, epoch, place);
    pthread_mutex_lock(&l->lock);
    if (generation != l->generation) return;
    l->filled++;
    if (++l->fill_place == l->per_epoch) {
        l->fill_place = 0;
        l->fill_epoch++;
    }
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
    int64_t rows = ga_split_count(&c->data.split, false), batches = rows / (c->batch * c->world);
    if (batches >= c->accumulate) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "data: %lld training rows give %lld micro-batches of %lld rows on each of %d "
                   "ranks, one cycle needs "
                   "%d: use a smaller batch or accumulate",
                   (long long)rows, (long long)batches, (long long)c->batch, c->world,
                   c->accumulate);
}

int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e) {
    *out = NULL;
    GA_TRY(check_config(c, e));
    size_t slots = 2 * (size_t)c->accumulate;
    ga_loader *l = ga_take(a, sizeof *l, 64, e);
    char *input = l ? ga_take(a, slots * slot_input_bytes(c), 64, e) : NULL;
    int32_t *target = input ? ga_take(a, slots * slot_target_bytes(c), 64, e) : NULL;
    if (!target) return GA_BUG;
    l->c = *c;
    l->slots = (int64_t)slots;
    l->per_epoch = ga_loader_cycles(c) * c->accumulate;
    l->input_bytes = slot_input_bytes(c);
    l->target_bytes = slot_target_bytes(c);
    l->input = input;
    l->target = target;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Without a thread ga_loader_cycle fills the ring itself: slower, the same batches. */
    l->threaded = pthread_create(&l->thread, NULL, read_ahead, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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

int ga_loader_seek(ga_loader *l, int64_t epoch, int64_t position, ga_err *e) {
    if (epoch < 0 || position < 0 || position > l->per_epoch)
        return ga_fail(
            e, GA_INPUT,
            "data: epoch %lld, micro-batch %lld: no such place, an epoch has %lld micro-batches",
            (long long)epoch, (long long)position, (long long)l->per_epoch);
    if (position == l->per_epoch) {
        epoch++;
        position = 0;
    }
    pthread_mutex_lock(&l->lock);
    l->generation++;
    l->filled = l->used = 0;
    l->epoch = l->fill_epoch = epoch;
    l->position = l->fill_place = position;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return GA_OK;
}

int ga_loader_cycle(ga_loader *l, ga_err *e) {
    int count = l->c.accumulate - (int)(l->position % l->c.accumulate);
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

bool ga_loader_ahead(ga_loader *l) {
    pthread_mutex_lock(&l->lock);
    bool ahead = l->position % l->c.accumulate == 0 && l->filled - l->used == l->slots;
    pthread_mutex_unlock(&l->lock);
    return ahead;
}

const void *ga_loader_input(const ga_loader *l, int k) {
    return l->input + (size_t)((l->used + k) % l->slots) * l->input_bytes;
}

const int32_t *ga_loader_target(const ga_loader *l, int k) {
    return (const int32_t *)((const char *)l->target +
                             (size_t)((l->used + k) % l->slots) * l->target_bytes);
}

void ga_loader_release(ga_loader *l, int count) {
    pthread_mutex_lock(&l->lock);
    l->used += count;
    l->position += count;
    if (l->position >= l->per_epoch) {
        l->position = 0;
        l->epoch++;
    }
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

int64_t ga_loader_epoch(const ga_loader *l) {
    return l->epoch;
}

int64_t ga_loader_position(const ga_loader *l) {
    return l->position;
}

int64_t ga_eval_batches(const ga_loader_config *c) {
    int64_t rows = c->batch * c->world;
    return (ga_split_count(&c->data.split, true) + rows - 1) / rows;
}

int64_t ga_eval_batch(const ga_loader_config *c, int64_t k, void *input, int32_t *target) {
    int64_t n = ga_split_count(&c->data.split, true), first = (k * c->world + c->rank) * c->batch;
    int64_t rows = n - first < 0 ? 0 : n - first < c->batch ? n - first : c->batch;
    size_t bytes = (size_t)c->data.width * ga_dtype_bytes(c->data.dtype);
    for (int64_t b = 0; b < rows; b++)
        copy_row(&c->data, ga_split_row(&c->data.split, true, first + b), input, target, b);
    memset((char *)input + (size_t)rows * bytes, 0, (size_t)(c->batch - rows) * bytes);
    memset(target + rows, 0, (size_t)(c->batch - rows) * sizeof *target);
    return rows;
}
