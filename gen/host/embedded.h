/* embedded.h: the files inside the binary: gagen's own Lua, compiled, and the texts of templates, the runtime and
 * specs. */
#ifndef GA_EMBEDDED_H
#define GA_EMBEDDED_H

#include <stddef.h>

typedef struct {
    const char *name; /* path in the repository, such as gen/base/diag.lua */
    const unsigned char *text; /* of a file of gen the chunk that Lua made of it */
    size_t size;
} ga_embedded;

extern const ga_embedded ga_embedded_files[]; /* sorted by name; ends with name NULL */

#endif
