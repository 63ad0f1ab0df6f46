/* safetensors.h: writes and reads named arrays as .safetensors files. Files have the type of memory, F32,
 * F64 or BF16; F16 is read too. */
#ifndef GA_SAFETENSORS_H
#define GA_SAFETENSORS_H

#include "files/layout.h"

enum { GA_BLOCK = 4 << 20 }; /* bytes covered by one checksum */

/* A pair of texts in __metadata__. */
typedef struct ga_note {
    const char *key;
    char value[48];
} ga_note;

/* Size and checksums of a written file, for the manifest. */
typedef struct ga_written {
    int64_t bytes;
    uint32_t *checksums; /* crc32 of each GA_BLOCK bytes; NULL: not computed */
    int64_t blocks;      /* in: room, out: used */
} ga_written;

/* Exact size of the file; dtype of file = dtype of the arrays. */
int64_t ga_safetensors_bytes(const ga_array *arrays, int count, const ga_note *notes,
                             int note_count);

/* Writes whole arrays to an open, empty file; no allocation, no sync. Refuses a non-finite value (GA_NONFINITE,
 * tensor named) if finite_only. path is for messages. */
int ga_safetensors_write(int fd, const char *path, const ga_array *arrays, int count,
                         const ga_note *notes, int note_count, bool finite_only, ga_written *out,
                         ga_err *e);

/* Writes the header to an open, empty file and gives the file its full size. The values may follow in
 * any order; *data becomes the offset of the first. */
int ga_safetensors_begin(int fd, const char *path, const ga_array *arrays, int count, const ga_note *notes,
                         int note_count, int64_t *data, ga_err *e);

/* This offset in a file without notes. */
int64_t ga_safetensors_data(const ga_array *arrays, int count);

/* A file that has its header and gets values. */
typedef struct ga_values_file {
    int fd;
    const char *path; /* for messages */
    bool finite_only; /* a non-finite value is refused, as above */
    int64_t at;       /* offset of the first value of the file, or of a tensor */
} ga_values_file;

/* Writes the values that this rank holds, those of arrays that are not divided only if `whole`: each rank has its own,
 * and a file has those of one. No allocation, no sync. */
int ga_safetensors_put(ga_values_file f, const ga_array *arrays, int count, bool whole, ga_err *e);

/* Writes elements i .. i + n - 1 of iteration l of a parameter, whose values begin at f->at. */
int ga_safetensors_put_run(const ga_values_file *f, const ga_array *a, const ga_param *p, int l, const void *values,
                           int64_t i, int64_t n, ga_err *e);

/* Writes PATH.tmp of whole arrays, syncs it, renames it to path. Non-finite values are allowed. For --save-init and
 * --dump. */
int ga_safetensors_save(const char *path, const ga_array *arrays, int count, ga_err *e);

/* Reads a file that must hold exactly these names, in any order, with these shapes, as F16, BF16, F32 or
 * F64 and no wider than memory. The header is checked first: with any difference nothing is loaded, and
 * e lists the differences (GA_INPUT). Of a divided array this rank's part is read. Notes with the given keys
 * are filled in ("" if absent). For checkpoints. It allocates, so it is not called while training runs. comm: rank 0
 * alone has the file and reads it for all, a collective call that succeeds on all ranks or on none; NULL: each rank
 * reads for itself. */
int ga_safetensors_load(const char *path, ga_comm *comm, const ga_array *arrays, int count, ga_note *notes,
                        int note_count, ga_err *e);

/* The same, but the values are added to those in memory. */
int ga_safetensors_add(const char *path, ga_comm *comm, const ga_array *arrays, int count, ga_note *notes,
                       int note_count, ga_err *e);

/* Loads `--init` from a file of any origin. It must hold all these names; other tensors are ignored. Wider
 * values are rounded once; a finite value too large for the type is refused. Names may differ as
 * safetensors_names.h says. fresh: globs of names (ga_name_fits) that the file may lack or have with
 * another shape, NULL: none; their values in memory stay, and there must be at least one of them. speak: stderr
 * names the ignored and the fresh tensors, and every difference if e has no room for them. */
int ga_safetensors_init(const char *path, const ga_array *arrays, int count, const char *fresh, bool speak,
                        ga_err *e);

/* The checks of ga_safetensors_load without loading; speak as above. */
int ga_safetensors_check(const char *path, ga_comm *comm, const ga_array *arrays, int count, bool speak,
                         ga_err *e);

#endif
