/* data.h: the order of a dataset's rows: split, epochs, ranks, read-ahead, evaluation. The order is a
 * function of (seed, place): only the place needs saving. */
#ifndef GA_DATA_H
#define GA_DATA_H

#include "base/arena.h"
#include "loop/epochs.h"
#include "ranks/comm.h"
#include "data/source.h"

/* Facts about a micro-batch for kernels; copied to the device with it. */
typedef struct ga_micro {
    int64_t rows;     /* true rows, 0..B; the rows after them have weight 0 */
    int64_t before;   /* micro-steps of the cycle before this one, on each rank */
    int64_t row;      /* place of row 0 in the cycle's global batch: (k * world + rank) * B */
    int64_t cycle;    /* cycles done before this one */
    int64_t training; /* 0 in evaluation: no random numbers are used */
    uint64_t seed;    /* of the run */
} ga_micro;

/* Split of a dataset into rows for training and evaluation. Position p (0..rows-1) means row
 * ga_permute(seed, ga_rng_stream("split"), rows, p), or row p with neither fold nor eval_rows.
 *   of > 0:        positions with p % of == fold - 1 are for evaluation (1 <= fold <= of, of >= 2)
 *   eval_rows > 0: positions 0..eval_rows-1 are for evaluation; with at_end the last eval_rows rows,
 *                  not permuted, for rows that are pieces of one sequence
 *   neither:       all rows are for training and for evaluation (two files have two splits) */
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

/* An epoch is a permutation of the n training positions: its place j has position
 * ga_permute(seed, ga_rng_stream("epoch") + epoch, n, j), or position j without shuffle. Micro-batch k
 * of rank q takes the `batch` places from (k * world + q) * batch. An epoch has N full micro-batches on
 * every rank; with `pad` it has enough for all n places, and the last ones lack rows at their end.
 * epochs.h divides micro-batches into cycles.
 *
 * Rows of a feed (source.h) come in the order of their files, without split and shuffle. The length of
 * an epoch is known at the end of the feed, and may differ between epochs. The first epoch reads the
 * feed to its end; without `consume`, later epochs stop after the last cycle that the known length
 * allows. */
typedef struct ga_loader_config {
    ga_dataset data;
    int64_t batch;                   /* rows per micro-batch and rank, B */
    const ga_accumulate *accumulate; /* as in ga_epochs */
    int accumulates;
    ga_tail tail;
    bool consume; /* the micro-batches of a dropped tail are read too */
    bool pad;
    int rank, world;
    ga_comm *comm; /* is told while rows are waited for; NULL: nobody is */
    uint64_t seed;
    bool shuffle;
    int64_t overfit; /* > 0: micro-batch m since the last seek has the rows of micro-batch m mod `overfit` of epoch 0;
                        epochs, cycles and random draws are as without; not for a feed */
} ga_loader_config;

/* Micro-batches of an epoch, GA_EPOCHS_OPEN with a feed, and how cycles go through them. */
ga_epochs ga_loader_epochs(const ga_loader_config *c);

/* Bytes of a micro-batch in memory, a multiple of 64: the fields one after another, B x width elements
 * each, then its ga_micro, all at multiples of 64 bytes. Missing rows are copies of the first row, or of
 * a row of another rank if this rank has none. */
size_t ga_batch_bytes(const ga_source *s, int64_t rows);

typedef struct ga_loader ga_loader;

/* Bytes taken from the arena: 2048 + 2 * (largest A) * (64 + ga_batch_bytes). */
size_t ga_loader_bytes(const ga_loader_config *c);

/* Starts the read-ahead thread at epoch 0. GA_INPUT if no epoch can serve a cycle. */
int ga_loader_open(ga_loader **out, const ga_loader_config *c, ga_arena *a, ga_err *e);
void ga_loader_close(ga_loader *l); /* joins and closes a feed; NULL allowed */

/* GA_INPUT if the epochs have no such place. */
int ga_loader_check(ga_loader *l, ga_place place, ga_err *e);

/* Goes to a place, also inside a cycle. GA_INPUT if there is no such place; with a feed, where the rows
 * before it must be read first, ga_loader_cycle reports that. */
int ga_loader_seek(ga_loader *l, ga_place to, ga_err *e);

/* Waits until all micro-batches of the coming cycle are in the ring and returns their number: 1..A, or
 * the rest of a cycle after a seek into it. The next epoch begins by itself. Returns a negative status,
 * until a seek, when a feed's files are faulty, cannot be read, or give an epoch that cannot serve a
 * cycle; all cycles before that are served first. */
int ga_loader_cycle(ga_loader *l, ga_err *e);

/* Micro-batches of the cycle after the coming one if all of them are in the ring too, else 0. Their k
 * continues after those of the coming cycle. Never waits. */
int ga_loader_ahead(ga_loader *l);

/* A field and the ga_micro of micro-batch k of the coming cycle, valid until released. The micro-batch
 * begins at field 0. */
const void *ga_loader_field(const ga_loader *l, int k, int field);
const ga_micro *ga_loader_micro(const ga_loader *l, int k);

void ga_loader_release(ga_loader *l, int count); /* marks the first `count` micro-batches as consumed */

/* Place of the next micro-batch to consume. Its epoch is known only when its whole cycle is in the ring,
 * so this waits as ga_loader_cycle does. If that fails: the place where reading stopped, or the one after
 * the last micro-batch consumed. */
ga_place ga_loader_place(ga_loader *l);

/* ga_eval_batch fills evaluation batch k (0..ga_eval_batches-1), in the order of positions, divided over
 * ranks as in training. It returns the number of true rows, 0..batch, as in its ga_micro. */
int64_t ga_eval_batches(const ga_loader_config *c);
int64_t ga_eval_batch(const ga_loader_config *c, int64_t k, void *batch);

/* Rows of a file that are predicted, in their order. */
typedef struct ga_predicted {
    ga_source source; /* its last field, the target, is not read */
    ga_arena arena;   /* what the source keeps */
    int64_t done;     /* rows so far */
} ga_predicted;

/* Fills a batch of `rows` rows with the next ones of the file, targets 0. Returns the number of true rows, 0 at the
 * end, or a negative status. */
int64_t ga_predicted_next(ga_predicted *r, int64_t rows, void *batch, ga_err *e);
void ga_predicted_close(ga_predicted *r); /* all zero is allowed */

#endif
