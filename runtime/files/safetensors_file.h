/* safetensors_file.h: opens a .safetensors file of any origin and checks its whole header: dtypes, shapes,
 * and that the tensors' ranges cover the data without overlap or gap. */
#ifndef GA_SAFETENSORS_FILE_H
#define GA_SAFETENSORS_FILE_H

#include "base/ga.h"

#include <jansson.h>

typedef struct ga_tensors_file {
    const char *path;
    int fd;
    int64_t bytes;  /* of the file */
    int64_t header; /* bytes of the header text; data begins at 8 + header */
    int64_t at;     /* next byte of the header for the JSON reader */
    int code;       /* status of reading the header */
    json_t *root;   /* name: { dtype, shape, data_offsets }; __metadata__ may be among them */
    ga_err *e;      /* given to open; all functions report errors in it */
} ga_tensors_file;

/* GA_INPUT if the file is missing or faulty; then nothing stays open. */
int ga_tensors_file_open(ga_tensors_file *f, const char *path, ga_err *e);
void ga_tensors_file_close(ga_tensors_file *f);

/* Reads n bytes at offset `from`; GA_INPUT if the file has become shorter. */
int ga_tensors_file_read(ga_tensors_file *f, void *to, int64_t n, int64_t from);

#endif
