/* state_file.h: the last elements of the optimizer's state in a file without a name, which a sweep over them reads and
 * writes in segments: one is read ahead and one written behind by a thread of its own. Memory has the first elements of
 * each array, and behind them GA_STATE_WINDOWS windows through which segments pass. The file is never mapped: what the
 * disk fails to do is an error, not a signal. */
#ifndef GA_STATE_FILE_H
#define GA_STATE_FILE_H

#include "files/layout.h"

enum { GA_STATE_ARRAYS = 8, GA_STATE_WINDOWS = 3 };

typedef struct ga_state_file ga_state_file;

typedef struct ga_state_config {
    const char *folder; /* where the file lies; it must be there */
    double fraction;    /* of the elements of each array that lie in the file */
    int64_t elements;   /* of each array */
    int64_t window;     /* elements of each array that pass through memory at once, at most: a multiple of GA_CUT */
    int arrays;
    size_t size;  /* bytes of an element */
    int segments; /* room for so many */
} ga_state_config;

/* Makes the file and reserves its space. GA_INPUT without the folder; GA_ENVIRONMENT, with the bytes that are needed
 * and those that are free, if there is no room. Where no element lies in a file there is none. */
int ga_state_file_open(ga_state_file **out, const ga_state_config *config, ga_err *e);
void ga_state_file_close(ga_state_file *f); /* NULL allowed */

/* Elements of memory that each array needs. */
int64_t ga_state_file_memory(const ga_state_file *f);

/* Says where array i has its memory, and gives what ga_array needs to find the rest of it. */
const ga_rest *ga_state_file_array(ga_state_file *f, int i, void *base);

/* Of n elements from `at` on: how many lie together, in memory or in one segment. */
int64_t ga_state_file_run(const ga_state_file *f, int64_t at, int64_t n);

/* Makes a segment of such elements, the next of the sweep; *memory becomes the place in memory that they pass through.
 * Elements that lie in memory are no segment: -1, and *memory is `at`. */
int ga_state_file_add(ga_state_file *f, int64_t at, int64_t n, int64_t *memory);

/* Behind this, a segment is in its window. The segment that was needed before is written; the next is read. */
int ga_state_file_need(ga_state_file *f, int segment, ga_err *e);

/* The end of a sweep: behind this, all segments that were needed are in the file. */
int ga_state_file_finish(ga_state_file *f, ga_err *e);

#endif
