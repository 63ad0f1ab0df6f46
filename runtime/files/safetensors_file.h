/* safetensors_file.h: opens a .safetensors file of any origin and checks its whole header: dtypes, shapes,
 * and that the tensors' ranges cover the data without overlap or gap. */
#ifndef GA_SAFETENSORS_FILE_H
#define GA_SAFETENSORS_FILE_H

#include "ranks/comm.h"

#include <jansson.h>

typedef struct ga_tensors_file {
    const char *path;
    ga_comm *comm;  /* rank 0 reads for all ranks, and all functions but close are collective; NULL: each for itself */
    int fd;         /* -1: on another rank */
    int64_t bytes;  /* of the file */
    int64_t header; /* bytes of the header text; data begins at 8 + header */
    json_t *root;   /* name: { dtype, shape, data_offsets }; __metadata__ may be among them */
    ga_err *e;      /* given to open; all functions report errors in it */
} ga_tensors_file;

/* GA_INPUT if the file is missing or faulty; then nothing stays open. */
int ga_tensors_file_open(ga_tensors_file *f, const char *path, ga_comm *comm, ga_err *e);
void ga_tensors_file_close(ga_tensors_file *f);

/* Reads n bytes at offset `from`; GA_INPUT if the file has become shorter. */
int ga_tensors_file_read(ga_tensors_file *f, void *to, int64_t n, int64_t from);

/* ga_comm_agree where rank 0 reads for all ranks; else the code. */
int ga_tensors_file_agree(const ga_tensors_file *f, int code);

#endif
