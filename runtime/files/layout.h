/* layout.h: places of named arrays in the flat space, used by checkpoint, init, dump and watch. The
 * layout is row-major, and one iteration of a region is contiguous. */
#ifndef GA_LAYOUT_H
#define GA_LAYOUT_H

#include "ranks/shard.h"

enum { GA_NAME_MAX = 256 }; /* bytes of an expanded name, with the final zero */

/* One parameter, or one per iteration of a region: then the name contains one %d. */
typedef struct ga_param {
    const char *name; /* "fc1.weight", or "h.%d.ln_1.weight" */
    int first;        /* number of iteration 0 in names */
    int count;        /* iterations; 1 outside regions */
    int rank;         /* 0..6 */
    int64_t shape[6];
    int64_t offset; /* element of the flat space where iteration 0 starts */
    int64_t stride; /* elements from one iteration to the next */
    int64_t n;      /* elements of one iteration = product of the shape */
} ga_param;

/* The last elements of an array, which do not lie in memory (state_file.h). */
typedef struct ga_rest {
    int64_t from; /* the first of them */
    int (*read)(const struct ga_rest *r, int64_t at, int64_t n, void *to, ga_err *e);
    int (*write)(const struct ga_rest *r, int64_t at, int64_t n, const void *values, ga_err *e);
} ga_rest;

/* An array over a table of parameters: parameters, gradients, one optimizer state or buffers. */
typedef struct ga_array {
    const ga_param *params;
    int count;
    const char *suffix; /* appended to each name, e.g. ".m"; "" for parameters */
    ga_dtype dtype;     /* in memory: GA_F32, GA_F64 or GA_BF16 */
    void *base;         /* element 0 of the flat space, or of the shard */
    const ga_shard *shard; /* the elements that this rank has; NULL: all of them */
    const ga_rest *rest;   /* where the last of these lie; NULL: all are in memory */
} ga_array;

/* Name of iteration l (0..count-1) with suffix, into out[GA_NAME_MAX]; out is returned. */
char *ga_param_name(const ga_param *p, int l, const char *suffix, char *out);

/* Index in the flat space of element i (0..n-1) of iteration l. */
int64_t ga_layout_index(const ga_param *p, int l, int64_t i);

/* Elements i .. i + n - 1 of a tensor, at element `at` of the memory of its array. */
typedef struct ga_held {
    int64_t i, n, at;
} ga_held;

/* The next elements of iteration l behind *h that this rank holds in one run, beginning with {0}; false: no more. A run
 * that is not in memory has at most GA_RUN bytes. */
bool ga_array_next(const ga_array *a, const ga_param *p, int l, ga_held *h);

enum { GA_RUN = 1 << 16 };

/* The values of such a run where they lie in memory, else read into `buffer`, which has room for GA_RUN bytes; NULL:
 * reading failed. */
void *ga_array_get(const ga_array *a, const ga_held *h, void *buffer, ga_err *e);

/* Gives a run these values; where ga_array_get gave them and they have been changed, too. */
int ga_array_put(const ga_array *a, const ga_held *h, const void *values, ga_err *e);

/* Whether one of the arrays is divided over the ranks. */
bool ga_array_divided(const ga_array *arrays, int count);

/* Finds a name without suffix: its index in params and its iteration. False if there is none. */
bool ga_layout_find(const ga_param *params, int count, const char *name, int *param, int *l);

/* FNV-1a 64 of all names and shapes in order, continuing from `hash` (GA_LAYOUT_HASH to begin). */
uint64_t ga_layout_hash(const ga_param *params, int count, uint64_t hash);

#define GA_LAYOUT_HASH 0xcbf29ce484222325u

#endif
