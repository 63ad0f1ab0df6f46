/* epochs.c: cycles over epochs, as defined in epochs.h. */
#include "loop/epochs.h"

#include <math.h>

int ga_epochs_accumulate(const ga_epochs *s, int64_t cycle) {
    int i = s->accumulates - 1;
    while (i > 0 && cycle < s->accumulate[i].from) i--;
    return s->accumulate[i].count;
}

int ga_epochs_largest(const ga_epochs *s) {
    int largest = 0;
    for (int i = 0; i < s->accumulates; i++)
        if (s->accumulate[i].count > largest) largest = s->accumulate[i].count;
    return largest;
}

int ga_epochs_check(const ga_epochs *s, ga_err *e) {
    const int needed = s->tail == GA_DROP ? ga_epochs_largest(s) : 1;
    if (s->batches >= needed) return GA_OK;
    if (s->batches == 0)
        return ga_fail(e, GA_INPUT,
                       "an epoch has 0 micro-batches, a cycle needs %d: use a smaller batch, fewer "
                       "ranks or data.last = \"pad\"",
                       needed);
    return ga_fail(e, GA_INPUT,
                   "an epoch has %lld micro-batches, a cycle needs %d: use a smaller batch or "
                   "accumulate, or accumulate's tail = \"carry\"",
                   (long long)s->batches, needed);
}

/* Moves to the next epoch at the end of this one, or where GA_DROP starts no further cycle. */
static void settle(const ga_epochs *s, ga_place *p) {
    const bool unserved = s->tail == GA_DROP && p->r == 0 &&
                          p->position + ga_epochs_accumulate(s, p->cycle) > s->batches;
    if (p->position < s->batches && !unserved) return;
    p->epoch++;
    p->position = 0;
}

int ga_epochs_place(const ga_epochs *s, ga_place *p, ga_err *e) {
    const int full = ga_epochs_accumulate(s, p->cycle);
    const int64_t start = p->position - p->r; /* position of the cycle's first micro-batch */
    bool there = p->epoch >= 0 && p->cycle >= 0 && p->position >= 0 && p->r >= 0 &&
                 p->position <= s->batches && p->r < full;
    if (p->r > 0 && s->tail == GA_DROP) there = there && start >= 0 && start + full <= s->batches;
    if (p->r > 0 && s->tail == GA_FLUSH) there = there && start >= 0 && p->position < s->batches;
    if (p->r > 0 && s->tail == GA_CARRY) there = there && (p->epoch > 0 || start >= 0);
    if (!there)
        return ga_fail(e, GA_INPUT,
                       "data: epoch %lld, micro-batch %lld, cycle %lld, %d micro-batches into it: "
                       "no such place, an epoch has %lld micro-batches, a full cycle %d",
                       (long long)p->epoch, (long long)p->position, (long long)p->cycle, p->r,
                       (long long)s->batches, full);
    settle(s, p);
    return GA_OK;
}

int ga_epochs_cycle(const ga_epochs *s, const ga_place *p) {
    const int full = ga_epochs_accumulate(s, p->cycle);
    const int64_t rest = s->batches - (p->position - p->r);
    return s->tail == GA_FLUSH && rest < full ? (int)rest : full;
}

void ga_epochs_advance(const ga_epochs *s, ga_place *p, int count) {
    for (int k = 0; k < count; k++) {
        const int total = ga_epochs_cycle(s, p);
        p->position++;
        if (++p->r == total) {
            p->r = 0;
            p->cycle++;
        }
        settle(s, p);
    }
}

int64_t ga_epochs_began(ga_place p) {
    return p.r > p.position ? p.epoch - 1 : p.epoch;
}

/* Number of whole cycles in `batches` micro-batches, without regard to epochs; `first`: number of the first one. */
static int64_t whole_cycles(const ga_epochs *s, int64_t first, int64_t batches) {
    int64_t cycle = first;
    for (int i = 0; i < s->accumulates && batches > 0; i++) {
        const bool last = i + 1 == s->accumulates;
        if (!last && s->accumulate[i + 1].from <= cycle) continue;
        const int64_t fit = batches / s->accumulate[i].count;
        if (last || cycle + fit < s->accumulate[i + 1].from) return cycle + fit - first;
        batches -= (s->accumulate[i + 1].from - cycle) * s->accumulate[i].count;
        cycle = s->accumulate[i + 1].from;
    }
    return cycle - first;
}

/* Number of cycles in the last `left` micro-batches of an epoch; `first`: number of the first one. */
static int64_t cycles_from(const ga_epochs *s, int64_t first, int64_t left) {
    int64_t cycle = first;
    while (left > 0) {
        const int full = ga_epochs_accumulate(s, cycle);
        if (left < full && s->tail == GA_DROP) break;
        left -= full;
        cycle++;
    }
    return cycle - first;
}

/* The cycle with which epoch `to` begins in a run that is at place p of it or of an epoch before; not for GA_CARRY. */
static int64_t first_cycle(const ga_epochs *s, ga_place p, int64_t to) {
    const int64_t settled = s->accumulate[s->accumulates - 1].from; /* from here on all epochs have the same cycles */
    int64_t cycle = p.cycle, left = s->batches - (p.position - p.r);
    for (int64_t epoch = p.epoch; epoch < to; epoch++, left = s->batches) {
        if (left == s->batches && cycle >= settled) return cycle + (to - epoch) * cycles_from(s, cycle, left);
        cycle += cycles_from(s, cycle, left);
    }
    return cycle;
}

int64_t ga_epochs_cycles(const ga_epochs *s, double epochs) {
    if (s->tail == GA_CARRY) return whole_cycles(s, 0, (int64_t)floor(epochs * (double)s->batches));
    const int64_t settled = s->accumulate[s->accumulates - 1].from; /* from here on all epochs have the same cycles */
    int64_t cycle = 0, epoch = 0, here = cycles_from(s, 0, s->batches);
    for (; (double)(epoch + 1) <= epochs && cycle < settled; epoch++) {
        cycle += here;
        here = cycles_from(s, cycle, s->batches);
    }
    return cycle + (int64_t)floor((epochs - (double)epoch) * (double)here);
}

int64_t ga_epochs_end(const ga_epochs *s, ga_place p, double epochs) {
    const int64_t begins = p.position - p.r; /* the cycle; below 0: in an epoch before */
    if (s->tail == GA_CARRY) {
        const int64_t all = (int64_t)floor(epochs * (double)s->batches);
        return p.cycle + whole_cycles(s, p.cycle, all - p.epoch * s->batches - begins);
    }
    const int64_t whole = (int64_t)floor(epochs);
    if (p.epoch > whole) return p.cycle;
    /* The last epoch may be trained in part: up to micro-batch `end`, where a run of these cycles alone ends. */
    const int64_t before = first_cycle(s, (ga_place){0}, whole), all = ga_epochs_cycles(s, epochs);
    int64_t end = 0;
    for (int64_t k = before; k < all; k++) end += ga_epochs_accumulate(s, k);
    const int64_t cycle = first_cycle(s, p, whole);
    return cycle + whole_cycles(s, cycle, p.epoch == whole ? end - begins : end);
}

/* Micro-batches of the first cycles of a run that carries them over. */
static int64_t batches_of(const ga_epochs *s, int64_t cycles) {
    int64_t batches = 0;
    for (int i = 0; i < s->accumulates && s->accumulate[i].from < cycles; i++) {
        const bool last = i + 1 == s->accumulates || s->accumulate[i + 1].from > cycles;
        batches += ((last ? cycles : s->accumulate[i + 1].from) - s->accumulate[i].from) * s->accumulate[i].count;
    }
    return batches;
}

int64_t ga_epochs_shift(const ga_epochs *s, ga_place p) {
    if (s->tail == GA_CARRY) {
        const int64_t done = p.epoch * s->batches + p.position - p.r, cycles = whole_cycles(s, 0, done);
        return (p.cycle - cycles) * s->accumulate[0].count - (done - batches_of(s, cycles));
    }
    return first_cycle(s, p, p.epoch + 1) - first_cycle(s, (ga_place){0}, p.epoch + 1);
}
