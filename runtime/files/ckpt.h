/* ckpt.h: checkpoints: a folder DIR/cycle-000001000/ (mid-cycle DIR/cycle-000001000-r3/) of safetensors
 * files and manifest.json. It is written as .tmp-000001000-RUN, synced and renamed; a folder with a
 * valid manifest is complete. */
#ifndef GA_CKPT_H
#define GA_CKPT_H

#include "ranks/comm.h"
#include "loop/best.h"
#include "loop/epochs.h"
#include "files/safetensors.h"

enum { GA_PATH_MAX = 1024, GA_DATA_FILES = 64, GA_CKPT_FILES = 56, GA_CKPT_NAME = 64, GA_CKPT_NUMBERS = 64 };

typedef struct ga_data_file {
    char path[256]; /* as in the spec */
    int64_t bytes;
    uint32_t checksum; /* crc32 of the file */
} ga_data_file;

/* Fills in size and crc32 of the file at path, for ga_ckpt_state.data; `name` is recorded as its path.
 */
int ga_data_file_read(const char *path, const char *name, ga_data_file *out, ga_err *e);

/* Sums of a rank over the present cycle, besides the gradient. */
enum { GA_SAVED_WEIGHT, GA_SAVED_LOSS, GA_SAVED_ROWS, GA_SAVED_SUMS };

/* A scalar of the state of an optimizer or schedule. */
typedef struct ga_ckpt_number {
    char name[48];
    double value;
} ga_ckpt_number;

/* The loss scale: none, a constant, or dynamic (scaler.h). */
typedef enum ga_scale_kind { GA_NO_SCALE, GA_STATIC_SCALE, GA_DYNAMIC_SCALE, GA_SCALE_KINDS } ga_scale_kind;
extern const char *const ga_scale_kind_names[GA_SCALE_KINDS]; /* in a manifest; "none" is not written */

/* Contents of a manifest. */
typedef struct ga_ckpt_state {
    int64_t micro, cycle, update, skipped, skipped_in_row;
    int64_t epoch, position; /* of the loader */
    int batch;         /* rows of a micro-step and rank */
    int accumulate, r; /* micro-steps of a full cycle, and done in the present one */
    double sums[GA_SAVED_SUMS];
    double nominal; /* weight of a full cycle over all ranks, the divisor of the partial gradient; 0: unknown */
    uint64_t seed; /* below 2^63 */
    ga_scale_kind scaler;
    double scale;  /* of the loss; 1 without a scaler */
    int64_t growth_step, hysteresis_step; /* of a dynamic scale (scaler.h) */
    int number_count;
    ga_ckpt_number numbers[GA_CKPT_NUMBERS];
    char best_metric[GA_CKPT_NAME]; /* the metric of `best`; "": the program looks at none */
    ga_best best;
    int world;
    char version[32], spec_sha256[65], target[16], profile[32], tuning_sha256[65];
    int data_count;
    ga_data_file data[GA_DATA_FILES];
    int file_count; /* files that all ranks share; set by loading, not used by saving */
    char files[GA_CKPT_FILES][GA_CKPT_NAME];
    char program[GA_CKPT_NAME]; /* set by loading, as file_count; "": unknown */
} ga_ckpt_state;

/* One file of a checkpoint, e.g. { "model.safetensors", arrays, 1 }. Rank 0 writes whole arrays; of arrays that are
 * divided over the ranks, on all ranks or on none, each rank writes its part, or rank 0 those of all. The bytes are the
 * same. The file group-NAME-I.safetensors has whole arrays that list I of the group NAME has for itself
 * (ckpt_manifest.h): its first rank writes it, its ranks read it. */
typedef struct ga_ckpt_file {
    const char *name;
    const ga_array *arrays;
    int count;
} ga_ckpt_file;

typedef struct ga_ckpt_config {
    const char *folder; /* made if missing */
    int keep;           /* newest checkpoints to keep, >= 1 */
    bool keep_best;     /* and that of state.best.cycle */
    const ga_ckpt_file *files;
    int file_count;           /* 1..GA_CKPT_FILES */
    const ga_array *gradient; /* partial sums of this rank: the gradient and its companions; saved mid-cycle only. Of
                                 divided ones the file has zeros where the rank holds nothing. */
    int gradient_count;
    ga_comm *comm;
    const ga_epochs *epochs; /* micro-steps of this run's cycles; NULL: all have now->accumulate */
    bool overflows;          /* a non-finite gradient skips its update, so it may be saved mid-cycle */
    const char *program;     /* its name */
    bool resumes;            /* starts from a checkpoint, maybe of another program */
    bool goes_on;            /* training goes on with what is loaded: rows follow in the order of the same seed */
} ga_ckpt_config;

typedef struct ga_ckpt ga_ckpt;

size_t ga_ckpt_bytes(const ga_ckpt_config *c); /* taken from the arena */

/* Opens the folder and locks it (rank 0): a second run is refused, and the message gives the first
 * one's pid and host. Removes the leftovers of a killed run. Refuses a disk without room for the
 * checkpoints. Finds out whether all ranks see the folder; if not, rank 0 writes for them. Collective, as all
 * functions below. */
int ga_ckpt_open(ga_ckpt **out, const ga_ckpt_config *c, ga_arena *a, ga_err *e);
void ga_ckpt_close(ga_ckpt *c); /* NULL allowed */

/* Whether the open folder has the checkpoint of this cycle. For rank 0 alone. */
bool ga_ckpt_has(const ga_ckpt *c, int64_t cycle);

/* Writes a checkpoint, mid-cycle if s->r > 0, and deletes older ones beyond `keep` but the best. On failure the
 * earlier checkpoints stay; the caller may go on training and try again later. No allocation. path
 * (GA_PATH_MAX bytes, NULL allowed) gets the path of the new checkpoint. GA_NONFINITE: a value to be
 * saved is not finite; a gradient may hold such values if config.overflows is set. */
int ga_ckpt_save(ga_ckpt *c, const ga_ckpt_state *s, char *path, ga_err *e);

/* GA_INPUT if the open folder, at `path`, has a checkpoint of a program with another name. */
int ga_ckpt_check_owner(int folder, const char *path, const char *program, ga_err *e);

/* Finds the checkpoint of `folder` with the highest micro whose manifest, sizes and checksums are right; stderr names
 * each one rejected. path gets GA_PATH_MAX bytes. GA_INPUT if there is none. Not collective. */
int ga_ckpt_find_newest(const char *folder, char *path, ga_err *e);

/* The same for the best evaluation's checkpoint that the newest one knows of; where that is not kept, the newest. */
int ga_ckpt_find_best(const char *folder, char *path, ga_err *e);

/* Checks the checkpoint at `what` in the same way; path gets `what`, and may be `what`. Not collective. */
int ga_ckpt_find_path(const char *what, char *path, ga_err *e);

/* Reads and checks the manifest of a checkpoint, not its files. */
int ga_ckpt_read(const char *path, ga_ckpt_state *out, ga_err *e);

/* Loads the arrays of files and fills out, with position and r in micro-batches of this run. `now` is the
 * state of this run. Data files and the names of numbers must be equal, with config.goes_on the seed, too; a
 * checkpoint that differs changes no array. Other differences are reported on stderr. At a boundary the position is
 * rounded down to a whole cycle, and the loss scale of this run is used if the kinds of scale differ. The best
 * evaluation of another metric is forgotten. Mid-cycle the global batch, its weight, the rows of a micro-step and the
 * loss scale must be equal; then the gradient is loaded too: unchanged with the same number of ranks and whole arrays,
 * else summed in the order of the ranks. Each rank reads for itself; where some ranks do not see the checkpoint of
 * rank 0, it reads for all. */
int ga_ckpt_load(const char *path, const ga_ckpt_config *c, const ga_ckpt_state *now,
                 ga_ckpt_state *out, ga_err *e);

/* Name of the file with the gradient of one rank, into out[GA_CKPT_NAME]; names of the sums in its notes. */
const char *ga_ckpt_gradient_name(int rank, int world, char *out);
extern const char *const ga_saved_sum_names[GA_SAVED_SUMS];

/* Name of a checkpoint's folder, into out[GA_CKPT_NAME]; and its inverse: false if `name` is no such name. A
 * name ending in "-old" is a checkpoint that was being replaced when the run was killed. */
void ga_ckpt_name(int64_t cycle, int r, char *out);
bool ga_ckpt_name_parse(const char *name, int64_t *cycle, int *r);

#endif
