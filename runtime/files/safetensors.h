/* safetensors.h: named arrays in a .safetensors file, written and read whole.
 * Files are written as F32, F64 or BF16, as memory is; files are also read from F16. */
#ifndef GA_SAFETENSORS_H
#define GA_SAFETENSORS_H

#include "files/layout.h"

enum { GA_BLOCK = 4 << 20 }; /* bytes covered by one checksum */

/* A text pair of __metadata__. */
typedef struct ga_note {
    const char *key;
    char value[48];
} ga_note;

/* What was written, for the manifest. */
typedef struct ga_written {
    int64_t bytes;
    uint32_t *checksums; /* crc32 of each GA_BLOCK bytes; NULL: not wanted */
    int64_t blocks;      /* in: room, out: used */
} ga_written;

/* Exact size of the file; dtype of file = dtype of the arrays. */
int64_t ga_safetensors_bytes(const ga_array *arrays, int count, const ga_note *notes,
                             int note_count);

/* Writes to an open, empty file; no allocation, no sync. Refuses a non-finite value (GA_NONFINITE,
 * tensor named) if finite_only. path is for messages. */
int ga_safetensors_write(int fd, const char *path, const ga_array *arrays, int count,
                         const ga_note *notes, int note_count, bool finite_only, ga_written *out,
                         ga_err *e);

/* Writes the header to an open, empty file and gives it its full size: the values are to follow, at
 * `data` + their place among the arrays, in any order. */
int ga_safetensors_begin(int fd, const char *path, const ga_array *arrays, int count, int64_t *data,
                         ga_err *e);

/* Writes PATH.tmp, syncs, renames to path. Values are written as they are. For --save-init and
 * --dump. */
int ga_safetensors_save(const char *path, const ga_array *arrays, int count, ga_err *e);

/* Reads a file that must hold exactly these names, in any order, with these shapes, as F16, BF16,
 * F32 or F64 and no wider than memory. Everything about the header is checked first: with any
 * difference nothing is loaded and e says which (GA_INPUT). Notes with the given keys are filled in
 * ("" if absent). For checkpoints. Not after `ready`. */
int ga_safetensors_load(const char *path, const ga_array *arrays, int count, ga_note *notes,
                        int note_count, ga_err *e);

/* The same, but the values are added to those in memory. */
int ga_safetensors_add(const char *path, const ga_array *arrays, int count, ga_note *notes,
                       int note_count, ga_err *e);

/* The same as load for `--init`, from a file of any origin: it must hold all these names, but what else it
 * holds is left, and wider values are rounded once; one that is finite but too large is refused.
 * Names may differ as safetensors_names.h says. fresh: globs of names (ga_name_fits) that it may
 * lack and lacks at least one of: their values in memory stay; NULL: none.
 * speak: stderr names what is left or stays, and every difference where e has no room for them. */
int ga_safetensors_init(const char *path, const ga_array *arrays, int count, const char *fresh, bool speak,
                        ga_err *e);

/* The checks of ga_safetensors_load without loading; speak as above. */
int ga_safetensors_check(const char *path, const ga_array *arrays, int count, bool speak,
                         ga_err *e);

#endif
