/* paths.h: paths of a dataset's files, kept by a reader that opens them in every epoch. */
#ifndef GA_PATHS_H
#define GA_PATHS_H

#include "base/arena.h"
#include "data/scan.h"

#include <string.h>

enum { GA_PATH_BYTES = 1024 }; /* of a path, with its final zero */

typedef struct ga_paths {
    int count;
    const char *path[GA_PARTS];
} ga_paths;

/* Bytes that ga_paths_keep takes from an arena. */
static inline size_t ga_paths_bytes(int parts) {
    return (size_t)parts * GA_PATH_BYTES;
}

/* Copies the paths of the parts. */
static inline int ga_paths_keep(ga_paths *p, const ga_part *part, int parts, ga_arena *a, ga_err *e) {
    char *to = ga_take(a, ga_paths_bytes(parts), 64, e);
    if (!to) return GA_BUG;
    p->count = parts;
    for (int i = 0; i < parts; i++, to += GA_PATH_BYTES) {
        const size_t n = strlen(part[i].path);
        if (n >= GA_PATH_BYTES)
            return ga_fail(e, GA_INPUT, "%.64s...: the path is too long", part[i].path);
        p->path[i] = memcpy(to, part[i].path, n + 1);
    }
    return GA_OK;
}

#endif
