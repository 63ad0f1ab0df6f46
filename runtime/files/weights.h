/* weights.h: the weights of a program that only predicts, as a file: 64 bytes that say of which model they are, then
 * each weight once in the form that the forward pass reads, at the places of NAME_predict.h. */
#ifndef GA_WEIGHTS_H
#define GA_WEIGHTS_H

#include "base/ga.h"

enum { GA_WEIGHTS_HEAD = 64 };

/* A parameter of `count` layers: n elements of the flat space from `from` on go to `at` bytes behind the head; from
 * layer to layer it is `from_next` elements, `next` bytes. half: they are stored in 16 bits. */
typedef struct ga_weight {
    int64_t from, from_next, count, n, at, next;
    bool half;
} ga_weight;

typedef struct ga_weights {
    const char *name; /* of the program */
    uint64_t model;   /* what the head begins with */
    const ga_weight *weight;
    int count;
    int64_t bytes; /* behind the head, a multiple of 64 */
    const void *flat;
    ga_dtype type;              /* of the flat space */
    uint16_t (*narrow)(float x); /* a number in 16 bits; NULL: no weight has them */
} ga_weights;

/* Writes the file; under a name that ends in .h as an array of C, NAME_predict_weights. */
int ga_weights_save(const char *path, const ga_weights *w, ga_err *e);

#endif
