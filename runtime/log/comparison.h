/* comparison.h: the same work done with two texts of the kernels, in two children of this process. The child with the
 * kernels in use sends all that each call has written; the child with the edited ones compares, and goes on with the
 * values that came, so that each call begins with equal inputs. This process and its memory stay as they are, also if
 * an edited kernel crashes. train-watch has this, `train` not. */
#ifndef GA_COMPARISON_H
#define GA_COMPARISON_H

#include "base/arena.h"
#include "files/layout.h"

/* Values that are compared: a result of a kernel, or a tensor behind an update. */
typedef struct ga_compared {
    const char *kernel, *at;  /* the function that wrote them, its place in the spec */
    const ga_param *tensor;   /* names and shape */
    int iteration;            /* of the tensor's loop */
    const char *suffix;       /* of its name */
    ga_dtype type;
    void *values;             /* its first element; the edited kernels' are replaced by those of the kernels in use */
} ga_compared;

typedef enum ga_verdict {
    GA_EQUAL,                 /* all bits */
    GA_ROUNDED,               /* no difference beyond rounding */
    GA_DIFFERS,               /* one beyond it: what follows was not compared */
    GA_ENDED                  /* a child came to an end before: `reason` */
} ga_verdict;

typedef struct ga_found {
    ga_verdict verdict;
    ga_compared what;         /* of the first difference beyond rounding, or of the largest of rounding */
    int64_t element;          /* of that tensor, from 0 */
    double before, after;     /* the element, with the kernels in use and with the edited ones */
    double most;              /* difference that counts as rounding there */
    int64_t rounded;          /* results that differ by rounding */
    bool skipped;             /* the update was skipped, so that its kernels were not called */
    const char *running;      /* the edited kernel that was called last */
    char reason[256];
} ga_found;

typedef struct ga_comparison ga_comparison;

typedef struct ga_comparing {
    /* Does the work in a child, and calls ga_compare_see behind each call; < 0: it cannot. */
    int (*run)(void *arg, ga_comparison *c, bool edited, ga_err *e);
    void *arg;
    ga_arena *arenas;         /* memory that the work needs; children get a copy of what they write */
    int arena_count;
    ga_dtype real;            /* the type that the program computes in: GA_F32 or GA_F64 */
} ga_comparing;

/* A difference counts as rounding up to ga_rounding of the greatest finite magnitude in the tensor: 2^-16 for GA_F32,
 * 2^-40 for GA_F64. 16-bit types round once more, by up to ga_rounding_step of the element's magnitude: 2^-7 for
 * GA_BF16, 2^-10 for GA_F16. Integers do not round. */
double ga_rounding(ga_dtype real);
double ga_rounding_step(ga_dtype type);

/* Does the work twice. GA_ENVIRONMENT if there can be no children; all else is in *found. A request to stop the run
 * ends the comparison. */
int ga_compare(ga_found *found, const ga_comparing *job, ga_err *e);

/* In the work: the update is skipped. */
void ga_compare_skipped(ga_comparison *c);

/* In the work: a kernel is called; it has written these values. Other values, types or sizes than those of the kernels
 * in use end the comparison. */
void ga_compare_call(ga_comparison *c, const char *kernel);
void ga_compare_see(ga_comparison *c, const ga_compared *v);

/* The same for one element of a tensor alone: found->what and found->element of an earlier comparison say which. */
void ga_compare_element(ga_comparison *c, const ga_found *of, const char *kernel, const char *at);

/* "d_fc1.weight[3, 17]", in out[GA_NAME_MAX + 128]; out is returned. */
char *ga_found_place(const ga_found *f, char *out);

#endif
