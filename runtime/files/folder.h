/* folder.h: folders of checkpoints: made, listed, removed, without allocation. */
#ifndef GA_FOLDER_H
#define GA_FOLDER_H

#include "base/ga.h"

/* Makes path and its missing parents, durably. */
int ga_folder_make(const char *path, ga_err *e);

/* fsync of an open folder: 0 or an errno. Some file systems have no such thing for folders and say
 * EINVAL, which is no failure. */
int ga_folder_sync(int fd);

/* Calls visit with each name but . and .. of the open folder, until a call is negative, which is
 * returned; GA_ENVIRONMENT if the folder cannot be listed. */
int ga_folder_each(int fd, int (*visit)(void *arg, const char *name), void *arg);

/* Removes folder `name` of `parent` and the plain files in it, manifest.json first. What is not
 * there is no error; folders inside are left, and then the folder too: an errno, 0 if it is gone.
 */
int ga_folder_remove(int parent, const char *name);

/* crc32 of each GA_BLOCK bytes of an open file into checksums, which has room for `blocks`. Reads
 * to the end. */
int ga_folder_checksum(int fd, const char *path, uint32_t *checksums, int64_t blocks,
                       int64_t *bytes, ga_err *e);

#endif
