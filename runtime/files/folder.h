/* folder.h: makes, lists and removes folders of checkpoints, without allocation. */
#ifndef GA_FOLDER_H
#define GA_FOLDER_H

#include "base/ga.h"

/* Creates path and its missing parents, and syncs them. */
int ga_folder_make(const char *path, ga_err *e);

/* fsync of an open folder: 0 or an errno. EINVAL is ignored: some file systems have no fsync of
 * folders. */
int ga_folder_sync(int fd);

/* Calls visit with each name of the open folder except . and .., until a call returns a negative code,
 * which is returned; GA_ENVIRONMENT if the folder cannot be listed. */
int ga_folder_each(int fd, int (*visit)(void *arg, const char *name), void *arg);

/* Removes folder `name` of `parent` with the plain files in it, manifest.json first: 0 if it is gone,
 * else an errno. A missing folder is no error. A folder inside is kept, and so is `name` then. */
int ga_folder_remove(int parent, const char *name);

/* Reads an open file to its end and stores the crc32 of each GA_BLOCK bytes in checksums, which has room
 * for `blocks`. */
int ga_folder_checksum(int fd, const char *path, uint32_t *checksums, int64_t blocks,
                       int64_t *bytes, ga_err *e);

#endif
