/* safetensors_file.h: a .safetensors file of anybody: opened, and its header checked whole: dtypes,
 * shapes, and that the tensors' ranges follow each other without overlap or hole to the end. */
#ifndef GA_SAFETENSORS_FILE_H
#define GA_SAFETENSORS_FILE_H

#include "base/ga.h"

#include <jansson.h>

typedef struct ga_tensors_file {
    const char *path;
    int fd;
    int64_t bytes;  /* of the file */
    int64_t header; /* bytes of the header text; data begins at 8 + header */
    int64_t at;     /* next byte the JSON reader gets */
    int code;       /* of reading it */
    json_t *root;   /* name: { dtype, shape, data_offsets }; __metadata__ may be among them */
    ga_err *e;      /* of the open file: what all its functions fill in */
} ga_tensors_file;

/* GA_INPUT for the file's faults, also if it is missing; then nothing stays open. */
int ga_tensors_file_open(ga_tensors_file *f, const char *path, ga_err *e);
void ga_tensors_file_close(ga_tensors_file *f);

/* n bytes from place `from` of the file; GA_INPUT if it has become shorter. */
int ga_tensors_file_read(ga_tensors_file *f, void *to, int64_t n, int64_t from);

#endif
