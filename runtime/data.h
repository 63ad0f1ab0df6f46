/* data.h: which row of an in-memory dataset goes where: split, epochs, ranks, read-ahead,
 * evaluation. Everything is a function of (seed, epoch, position): nothing about the order needs
 * saving but two numbers. */
#ifndef GA_DATA_H
#define GA_DATA_H

#include "arena.h"

/* What a kernel may know of its micro-batch; travels with it to the device as it is. */
typedef struct ga_micro {
    int64_t rows;     /* true rows, 0..B; those behind have weight 0 */
    int64_t row;      /* place of the first one in the cycle's global batch: (k * world + rank) * B */
    int64_t cycle;    /* cycles done before this one */
    int64_t training; /* 0 in evaluation: nothing random happens */
    uint64_t seed;    /* of the run */
} ga_micro;

/* Rows of one file for training and evaluation. Position p (0..rows-1) stands for row
 * ga_permute(seed, ga_rng_stream("split"), rows, p); with neither fold nor eval_rows p is the row.
 *   of > 0:        positions with p % of == fold - 1 are for evaluation (1 <= fold <= of, of >= 2)
 *   eval_rows > 0: positions 0..eval_rows-1 are for evaluation
 *   neither:       all rows are for training, and all for evaluation too (two files: two splits) */
typedef struct ga_split {
    int64_t rows;
    int fold, of;
    uint64_t seed;
    int64_t eval_rows;
} ga_split;

int64_t ga_split_count(const ga_split *s, bool eval);
int64_t ga_split_row(const ga_split *s, bool eval, int64_t i); /* row of the file, 0 <= i < count */

typedef struct ga_dataset {
    const void *input; /* rows x width, of dtype (GA_F32 or GA_F64) */
    const int32_t *target;
    ga_dtype dtype;
    int64_t width;
    ga_split split;
} ga_dataset;

/* An epoch is a permutation of the n training positions: its place j holds position
 * ga_permute(seed, ga_rng_stream("epoch") + epoch, n, j), or j itself without shuffle. Micro-batch k of
 * rank q takes places (k * world + q) * batch ... + batch - 1. A rank has N = floor(n / (batch *
 * world)) of them, of which the first floor(N / accumulate) * accumulate are used. */
typedef struct ga_loader_config {
    ga_dataset data;
    int64_t batch;  /* rows per micro-batch and rank */
    int accumulate; /* micro-batches per cycle */
    int rank, world;
    uint64_t seed;
    bool shuffle;
} ga_loader_config;

typedef struct ga_loader ga_loader;

/* Taken from the arena: 1024 + 2 * accumulate * (P(batch * width * dtype bytes) + P(batch * 4))
 * with P = rounded up to a multiple of 64. */
size_t ga_loader_bytes(const ga_loader_config *c);

/* Starts the read-ahead thread at epoch 0, position 0. GA_INPUT if an epoch has no full cycle. */
int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e);
void ga_loader_close(ga_loader *l); /* joins; NULL allowed */

int64_t ga_loader_cycles(const ga_loader_config *c); /* cycles per epoch, 0 if none */

/* Goes to micro-batch `position` of `epoch`; inside a cycle is allowed. GA_INPUT if there is no
 * such place. */
int ga_loader_seek(ga_loader *l, int64_t epoch, int64_t position, ga_err *e);

/* Waits until all micro-batches of the coming cycle are in the ring: their number (accumulate, or
 * what is left of a cycle after a seek into it). Epochs follow each other by themselves. */
int ga_loader_cycle(ga_loader *l, ga_err *e);

/* Whether the full cycle behind a full one is in the ring too: its micro-batches are then k =
 * accumulate, accumulate + 1, ... below. Never waits. */
bool ga_loader_ahead(ga_loader *l);

/* Micro-batch k of that cycle; valid until released. */
const void *ga_loader_input(const ga_loader *l, int k);
const int32_t *ga_loader_target(const ga_loader *l, int k);

void ga_loader_release(ga_loader *l, int count); /* the first `count` micro-batches are consumed */
int64_t ga_loader_epoch(const ga_loader *l);     /* of the next micro-batch to consume, from 0 */
int64_t ga_loader_position(const ga_loader *l);  /* micro-batches of that epoch consumed so far */

/* Evaluation batches k = 0..ga_eval_batches-1, in the order of positions, sliced over ranks as
 * in training. Fills one batch; rows beyond the end are input 0, target 0. Returns the number of
 * true rows, 0..batch. */
int64_t ga_eval_batches(const ga_loader_config *c);
int64_t ga_eval_batch(const ga_loader_config *c, int64_t k, void *input, int32_t *target);

#endif
