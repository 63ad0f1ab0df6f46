/* json_file.h: reads JSON of any origin. Where memory runs out inside a word or a number, jansson stops at an assertion
 * or writes behind the end of a block (its issue 362). So a reserve serves the rest of the text. */
#ifndef GA_JSON_FILE_H
#define GA_JSON_FILE_H

#include "base/ga.h"

#include <jansson.h>

/* Each function leaves a value that the caller releases by json_decref, or NULL and a negative status: GA_INPUT where
 * the text is no JSON, has a key twice or is cut off; GA_ENVIRONMENT where memory is missing or the file cannot be
 * read. Messages begin with `what`. Threads may read at the same time. */

/* n bytes at offset `from` of an open file; never all of them in memory at once. */
int ga_json_read(json_t **out, int fd, int64_t from, int64_t n, const char *what, ga_err *e);

/* n bytes of memory. */
int ga_json_parse(json_t **out, const char *text, int64_t n, const char *what, ga_err *e);

/* The whole file at path. */
int ga_json_open(json_t **out, const char *path, ga_err *e);

#endif
