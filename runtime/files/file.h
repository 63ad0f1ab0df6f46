/* file.h: regular files, whoever made them: opened for reading, and read whole over interrupts and
 * short reads. */
#ifndef GA_FILE_H
#define GA_FILE_H

#include "base/ga.h"

/* What errno says after a call on a path failed: GA_INPUT if another path would do (it is missing,
 * not allowed, not a folder), else GA_ENVIRONMENT. */
ga_status ga_file_status(void);

/* Opens `path` seen from the folder `at` (AT_FDCWD: the current one) and gives its size. Never waits
 * and refuses what is no regular file. `shown` is its name in messages. The descriptor, or a negative
 * status. */
int ga_file_open(int at, const char *path, const char *shown, int64_t *bytes, ga_err *e);

/* Makes the folder `path` unless it is there, and says whether files can be made in it; `option` is what named it. */
int ga_file_folder(const char *path, const char *option, ga_err *e);

/* Reads n bytes from place `from`: their number, fewer only at the end of the file; -1 with errno. */
int64_t ga_file_read(int fd, void *to, int64_t n, int64_t from);

#endif
