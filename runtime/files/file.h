/* file.h: opens regular files from any source and reads them despite interrupts and short reads. */
#ifndef GA_FILE_H
#define GA_FILE_H

#include "base/ga.h"

/* Status for errno after a failed call on a path: GA_INPUT if the path is at fault (missing, not
 * permitted, not a folder), else GA_ENVIRONMENT. */
ga_status ga_file_status(void);

/* Opens `path` relative to the folder `at` (AT_FDCWD: the current one) and gives its size. Never waits;
 * refuses anything but a regular file. `shown` is its name in messages. Returns the descriptor or a
 * negative status. */
int ga_file_open(int at, const char *path, const char *shown, int64_t *bytes, ga_err *e);

/* Creates the folder `path` if missing and checks that it is writable; messages begin with `option`. */
int ga_file_folder(const char *path, const char *option, ga_err *e);

/* Writes n bytes at offset `at` despite interrupts and short writes: 0 or an errno. */
int ga_file_write(int fd, const void *from, int64_t n, int64_t at);

/* A file that appears under its name only when it is complete. */
typedef struct ga_new_file {
    const char *path;
    char temporary[4096]; /* PATH.tmp */
    int fd;
} ga_new_file;

/* Creates PATH.tmp for writing. GA_INPUT if something other than a regular file is at path. */
int ga_file_begin(ga_new_file *f, const char *path, ga_err *e);

/* Syncs the file and renames it to path; removes it if that fails, or if code is negative. Returns code, or that
 * failure. */
int ga_file_end(ga_new_file *f, int code, ga_err *e);

/* Reads n bytes at offset `from`: the number read, fewer only at the end of the file; -1 with errno. */
int64_t ga_file_read(int fd, void *to, int64_t n, int64_t from);

#endif
