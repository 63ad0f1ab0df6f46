/* embedded.h: the texts inside the binary: gagen's own Lua, the templates and the runtime. */
#ifndef GA_EMBEDDED_H
#define GA_EMBEDDED_H

#include <stddef.h>

typedef struct {
    const char *name; /* path in the repository, such as gen/base/diag.lua */
    const unsigned char *text;
    size_t size;
} ga_embedded;

extern const ga_embedded ga_embedded_files[]; /* sorted by name; ends with name NULL */

#endif
