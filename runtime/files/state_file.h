/* state_file.h: the last elements of the optimizer's state in a file without a name, which a sweep over them reads and
 * writes in segments: one is read ahead and one written behind by a thread of its own. Each array has GA_STATE_WINDOWS
 * windows of host memory through which segments pass. On the CPU they lie behind the array's first elements, and
 * updates work in them; on a device one window lies there, to and from which the program copies the segment in use. The
 * file is never mapped: what the disk fails to do is an error, not a signal. */
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
    int places;   /* windows behind the first elements where updates work: GA_STATE_WINDOWS, 1 on a device */
} ga_state_config;

/* Bytes that have gone to and from the file. */
typedef struct ga_state_counts {
    int64_t bytes; /* of the file */
    int64_t read, written;
} ga_state_counts;

/* The elements of an array that a segment has, in their window. */
typedef struct ga_state_part {
    void *values; /* NULL: no segment is in use */
    size_t bytes;
} ga_state_part;

/* Makes the file and reserves its space. GA_INPUT without the folder; GA_ENVIRONMENT, with the bytes that are needed
 * and those that are free, if there is no room. Where no element lies in a file there is none. */
int ga_state_file_open(ga_state_file **out, const ga_state_config *config, ga_err *e);
void ga_state_file_close(ga_state_file *f); /* NULL allowed */

/* The first elements of each array, which do not lie in the file; the most elements of a window. */
int64_t ga_state_file_held(const ga_state_file *f);
int64_t ga_state_file_window(const ga_state_file *f);

/* Says where array i has its windows, one behind the other, and gives what ga_array needs to find the rest of it. */
const ga_rest *ga_state_file_array(ga_state_file *f, int i, void *windows);

/* Of n elements from `at` on: how many lie together, in memory or in one segment. */
int64_t ga_state_file_run(const ga_state_file *f, int64_t at, int64_t n);

/* Makes a segment of such elements, the next of the sweep; *memory becomes the place where they are updated, behind the
 * first elements. Elements that lie in memory are no segment: -1, and *memory is `at`. */
int ga_state_file_add(ga_state_file *f, int64_t at, int64_t n, int64_t *memory);

/* Behind this, a segment is in its window, and in use. The one that was in use before is written; the next is read.
 * arrays: the bits of those that the sweep goes over. */
int ga_state_file_need(ga_state_file *f, int segment, unsigned arrays, ga_err *e);
enum { GA_STATE_ALL = (1 << GA_STATE_ARRAYS) - 1 };

/* Where array i has the segment in use. */
ga_state_part ga_state_file_part(const ga_state_file *f, int i);

/* The end of a sweep: behind this, all segments that were needed are in the file. */
int ga_state_file_finish(ga_state_file *f, ga_err *e);

/* Between sweeps. NULL: no file. */
ga_state_counts ga_state_file_counted(const ga_state_file *f);

#endif
