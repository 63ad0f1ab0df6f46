/* ckpt.h: checkpoints: DIR/cycle-000001000/ (mid-cycle cycle-000001000-r3/) with safetensors files
 * and manifest.json. Written under .tmp-000001000-RUN, synced, renamed; a folder with a valid
 * manifest is whole. */
#ifndef GA_CKPT_H
#define GA_CKPT_H

#include "ranks/comm.h"
#include "loop/epochs.h"
#include "files/safetensors.h"

enum { GA_PATH_MAX = 1024, GA_DATA_FILES = 64, GA_CKPT_FILES = 8, GA_CKPT_NAME = 64, GA_CKPT_NUMBERS = 64 };

typedef struct ga_data_file {
    char path[256]; /* as in the spec */
    int64_t bytes;
    uint32_t checksum; /* crc32 of the file */
} ga_data_file;

/* Size and crc32 of a file, for ga_ckpt_state.data; path may differ from the name that is recorded.
 */
int ga_data_file_read(const char *path, const char *name, ga_data_file *out, ga_err *e);

/* What a rank has summed up in the present cycle, beside the gradient. */
enum { GA_SAVED_WEIGHT, GA_SAVED_LOSS, GA_SAVED_ROWS, GA_SAVED_SUMS };

/* A number that an optimizer or schedule keeps beside its arrays. */
typedef struct ga_ckpt_number {
    char name[48];
    double value;
} ga_ckpt_number;

/* What the loss is multiplied by: nothing, a number, or a scale that moves. */
typedef enum ga_scale_kind { GA_NO_SCALE, GA_STATIC_SCALE, GA_DYNAMIC_SCALE, GA_SCALE_KINDS } ga_scale_kind;
extern const char *const ga_scale_kind_names[GA_SCALE_KINDS]; /* in a manifest; that of none is not written */

/* All that a manifest says. */
typedef struct ga_ckpt_state {
    int64_t micro, cycle, update, skipped, skipped_in_row;
    int64_t epoch, position; /* of the loader */
    int batch;         /* rows of a micro-step and rank */
    int accumulate, r; /* micro-steps of a full cycle, and those done of the present one */
    double sums[GA_SAVED_SUMS];
    double nominal; /* weight of a full cycle over all ranks, which the partial gradient is divided by; 0: not said */
    uint64_t seed; /* below 2^63 */
    ga_scale_kind scaler;
    double scale;  /* of the loss; 1 without */
    int64_t growth_step, hysteresis_step; /* of a scale that moves (scaler.h) */
    int number_count;
    ga_ckpt_number numbers[GA_CKPT_NUMBERS];
    int world;
    char version[32], spec_sha256[65], target[16], profile[32], tuning_sha256[65];
    int data_count;
    ga_data_file data[GA_DATA_FILES];
    int file_count; /* of the files that all ranks share; filled in by loading, not looked at by saving */
    char files[GA_CKPT_FILES][GA_CKPT_NAME];
    char program[GA_CKPT_NAME]; /* as the files; "": not said */
} ga_ckpt_state;

/* One file of a checkpoint, e.g. { "model.safetensors", arrays, 1 }. */
typedef struct ga_ckpt_file {
    const char *name;
    const ga_array *arrays;
    int count;
} ga_ckpt_file;

typedef struct ga_ckpt_config {
    const char *folder; /* made if missing */
    int keep;           /* how many stay, >= 1 */
    const ga_ckpt_file *files;
    int file_count;           /* 1..GA_CKPT_FILES */
    const ga_array *gradient; /* of this rank, and what else belongs to a partial sum; saved mid-cycle only */
    int gradient_count;
    ga_comm *comm;
    const ga_epochs *epochs; /* micro-steps of this run's cycles; NULL: always now's accumulate */
    bool overflows;          /* what is not finite in a gradient is a skipped update: it may be saved in a cycle */
    const char *program;     /* its name */
    bool resumes;            /* begins with a checkpoint, which another program may have written */
} ga_ckpt_config;

typedef struct ga_ckpt ga_ckpt;

size_t ga_ckpt_bytes(const ga_ckpt_config *c); /* taken from the arena */

/* Opens the folder and locks it (rank 0): a second run is refused with the first one's pid and
 * host. Removes what a killed run left. Refuses a disk without room for the checkpoints.
 * Collective, as all below. */
int ga_ckpt_open(ga_ckpt **out, const ga_ckpt_config *c, ga_arena *a, ga_err *e);
void ga_ckpt_close(ga_ckpt *c); /* NULL allowed */

/* Writes a checkpoint, mid-cycle if s->r > 0, and deletes older ones beyond `keep`. On failure what
 * was there stays as it was; the caller may go on training and try again later. No allocation. The
 * path of the new checkpoint, GA_PATH_MAX bytes, is left in path (NULL allowed). GA_NONFINITE:
 * refused for a value in it; in the gradient of a cycle whose boundary may skip its update, any may be. */
int ga_ckpt_save(ga_ckpt *c, const ga_ckpt_state *s, char *path, ga_err *e);

/* GA_INPUT if the open folder, at `path`, has a checkpoint of a program with another name. */
int ga_ckpt_check_owner(int folder, const char *path, const char *program, ga_err *e);

/* Where `--resume what` points: "latest" is the checkpoint of `folder` with the highest micro whose
 * manifest, sizes and checksums are right (each one rejected is named on stderr), else a path,
 * which is checked too. Rank 0 decides; the path (GA_PATH_MAX bytes) is the same on all ranks.
 * GA_INPUT if there is none. */
int ga_ckpt_find(const char *folder, const char *what, ga_comm *comm, char *path, ga_err *e);

/* Reads and checks the manifest of a checkpoint, not its files. */
int ga_ckpt_read(const char *path, ga_ckpt_state *out, ga_err *e);

/* Loads the arrays of files and fills out, with position and r in micro-batches of this run. `now` is
 * what this run has. Data files must be equal, and so the names of its numbers. Other differences are
 * said on stderr: at a boundary the place goes down to a whole cycle, and a scale of the loss that one of the
 * two has not, or that moves in one of them only, is now's. Inside a cycle the global batch and its weight, the
 * rows of a micro-step and the scale of the loss must be the same; then the gradient is loaded too, bit by bit
 * with the same number of ranks, else summed in the order of ranks. */
int ga_ckpt_load(const char *path, const ga_ckpt_config *c, const ga_ckpt_state *now,
                 ga_ckpt_state *out, ga_err *e);

/* The file with the gradient of one rank, into out[GA_CKPT_NAME], and the names of the sums in its notes. */
const char *ga_ckpt_gradient_name(int rank, int world, char *out);
extern const char *const ga_saved_sum_names[GA_SAVED_SUMS];

/* Name of a checkpoint's folder, into out[GA_CKPT_NAME]; and back: false if name is none. "-old" behind it is
 * one that was to be replaced when the run was killed. */
void ga_ckpt_name(int64_t cycle, int r, char *out);
bool ga_ckpt_name_parse(const char *name, int64_t *cycle, int *r);

#endif
