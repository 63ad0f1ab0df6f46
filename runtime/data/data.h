/* data.h: which row of a dataset goes where: split, epochs, ranks, read-ahead, evaluation.
 * Everything is a function of (seed, place): nothing about the order needs saving but a place. */
#ifndef GA_DATA_H
#define GA_DATA_H

#include "base/arena.h"
#include "loop/epochs.h"
#include "data/source.h"

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
 *   eval_rows > 0: positions 0..eval_rows-1 are for evaluation; with at_end the last eval_rows rows
 *                  as they stand, for rows that are pieces of one sequence
 *   neither:       all rows are for training, and all for evaluation too (two files: two splits) */
typedef struct ga_split {
    int64_t rows;
    int fold, of;
    uint64_t seed;
    int64_t eval_rows;
    bool at_end;
} ga_split;

int64_t ga_split_count(const ga_split *s, bool eval);
int64_t ga_split_row(const ga_split *s, bool eval, int64_t i); /* row of the file, 0 <= i < count */

typedef struct ga_dataset {
    const ga_source *source;
    ga_split split; /* of source->rows rows */
} ga_dataset;

/* Rows of a feed (source.h) come in the order of their files: without split and shuffle. How long an
 * epoch is says the feed when it ends, in each epoch anew; before, and with `consume` always, it is
 * read to its end. Without `consume` a feed that has been read once is left behind the last cycle
 * that its length allows.
 *
 * An epoch is a permutation of the n training positions: its place j holds position
 * ga_permute(seed, ga_rng_stream("epoch") + epoch, n, j), or j itself without shuffle. Micro-batch k
 * of rank q takes places (k * world + q) * batch ... + batch - 1; an epoch has N of them on every
 * rank, full ones, or with `pad` as many as hold all n places: then rows are missing from the end
 * of the last ones. Which of them a cycle has: epochs.h. */
typedef struct ga_loader_config {
    ga_dataset data;
    int64_t batch;                   /* rows per micro-batch and rank, B */
    const ga_accumulate *accumulate; /* as in ga_epochs */
    int accumulates;
    ga_tail tail;
    bool consume; /* what a dropped tail holds is read all the same */
    bool pad;
    int rank, world;
    uint64_t seed;
    bool shuffle;
} ga_loader_config;

/* Micro-batches of an epoch, GA_EPOCHS_OPEN with a feed, and how cycles go through them. */
ga_epochs ga_loader_epochs(const ga_loader_config *c);

/* A micro-batch in memory: of each field B x width elements at a multiple of 64 bytes, one field
 * behind the other, then its ga_micro; a multiple of 64 bytes. Missing rows are copies of the first one;
 * where all are missing, of one that another rank has. */
size_t ga_batch_bytes(const ga_source *s, int64_t rows);

typedef struct ga_loader ga_loader;

/* Taken from the arena: 2048 + 2 * (largest A) * (64 + ga_batch_bytes). */
size_t ga_loader_bytes(const ga_loader_config *c);

/* Starts the read-ahead thread at the beginning. GA_INPUT if no epoch can serve a cycle. */
int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e);
void ga_loader_close(ga_loader *l); /* joins and closes a feed; NULL allowed */

/* Goes to a place, also inside a cycle. GA_INPUT if there is no such place; ga_loader_cycle says it
 * of a feed, which passes over the rows before. */
int ga_loader_seek(ga_loader *l, ga_place to, ga_err *e);

/* Waits until all micro-batches of the coming cycle are in the ring: their number, 1..A, or what is
 * left of a cycle after a seek into it. Epochs follow each other by themselves. Negative, once all
 * cycles before were served, if a feed's files are at fault, cannot be read, or give an epoch that
 * cannot serve a cycle; it stays so until a seek. */
int ga_loader_cycle(ga_loader *l, ga_err *e);

/* Micro-batches of the cycle behind the coming one if they all are in the ring too, else 0: then k
 * goes on below. Never waits. */
int ga_loader_ahead(ga_loader *l);

/* Micro-batch k of that cycle, valid until released: one of its fields, what is known of it. Field
 * 0 is where the whole micro-batch begins. */
const void *ga_loader_field(const ga_loader *l, int k, int field);
const ga_micro *ga_loader_micro(const ga_loader *l, int k);

void ga_loader_release(ga_loader *l, int count); /* the first `count` micro-batches are consumed */

/* Of the next micro-batch to consume: in which epoch that is, is known when its whole cycle is in the
 * ring, so this waits as ga_loader_cycle does. If that fails: where reading stopped, or behind the
 * last micro-batch consumed. */
ga_place ga_loader_place(ga_loader *l);

/* Evaluation batches k = 0..ga_eval_batches-1, in the order of positions, sliced over ranks as
 * in training. Fills one micro-batch; the number of true rows, 0..batch, is in its ga_micro and is
 * returned. */
int64_t ga_eval_batches(const ga_loader_config *c);
int64_t ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch);

#endif
