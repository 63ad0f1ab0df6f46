// predict: NAME_predict.h, the forward pass for one row, without anything else.

//@ face(header, name, upper, bytes, fields, outputs, shape, values, rows)
$header
/* A program that predicts:
 *
 *   #define $(upper)_PREDICT_IMPLEMENTATION         in one file of C11 that GCC or clang compile (cc -c)
 *   #include "$(name)_predict.h"
 *
 *   static double memory[$(upper)_PREDICT_MEMORY / sizeof(double)];
 *   static float output[$(upper)_PREDICT_OUTPUT];
 *   if ($(name)_predict_check(weights, bytes) < 0) ...    once
 *   $(name)_predict(weights, memory, &rows, 1, output);
 *
 * The weights are what `make weights` writes from the best checkpoint: $(name)_predict.bin for a file that is read or
 * mapped, or, by ./train --save-weights weights.h, an array of C, which a device may keep in its read-only memory. They
 * are never changed. Nothing is allocated, no file is read, no variable is kept from call to call; libc and libm are
 * needed. Outputs are those of the program's evaluation: the same bits where this file is compiled with the flags of
 * the program's Makefile, and the program computes its products by multiply-adds, not in blocks of bf16. */
#ifndef $(upper)_PREDICT_H
#define $(upper)_PREDICT_H

#include <stddef.h>
#include <stdint.h>

#define $(upper)_PREDICT_OUTPUT $outputs  /* floats of the output of a row, $shape */
#define $(upper)_PREDICT_WEIGHTS $bytes /* bytes of the weights */
#define $(upper)_PREDICT_MEMORY $values   /* bytes for the values of a row */

#ifdef __cplusplus
extern "C" {
#endif

/* The first of some rows that follow each other:
 * $rows. */
typedef struct $(name)_predict_rows {
    $fields
} $(name)_predict_rows;

/* Whether these are whole weights of this model: 0; -1: of another one, or of another size; -2: damaged. */
int $(name)_predict_check(const void *weights, size_t bytes);

/* Writes the outputs of n rows to output[n * $(upper)_PREDICT_OUTPUT]: what the loss is given, such as logits. weights
 * and memory are aligned as a double is. Several threads may call it, each with memory of its own. */
void $(name)_predict(const void *weights, void *memory, const $(name)_predict_rows *rows, size_t n, float *output);

#ifdef __cplusplus
}
#endif
#endif

//@ runtime(upper, real, half, denormals, micro)
#ifdef $(upper)_PREDICT_IMPLEMENTATION
#if !defined __GNUC__ || defined __cplusplus
#error "the implementation is C11 with the vectors of GCC and clang"
#endif

#include <stdbool.h>

typedef $real real;

//% if half.text ~= "" then
$half

//% end
$denormals

/* Kernels are those of the training program. Here one worker computes all tiles of a kernel. */
typedef struct ga_worker {
    int count;
} ga_worker;

typedef struct ga_tiles {
    int64_t index, count;
} ga_tiles;

static inline ga_tiles ga_tiles_begin(ga_worker *w, int64_t count) {
    (void)w;
    return (ga_tiles){-1, count};
}

static inline bool ga_tile_next(ga_tiles *t) { return ++t->index < t->count; }
//% if micro then

#ifndef GA_DATA_H
/* Facts about rows: here, that they are not trained on. */
typedef struct ga_micro {
    int64_t training;
} ga_micro;
#endif
//% end

//@ kernels(functions)
$functions

//@ forward(sizes, weights, values, rows, micro, calls)
//% if sizes.text ~= "" then
$sizes

//% end
typedef struct weights {
    $weights
} weights;

typedef struct values {
    $values
} values;

typedef struct model {
    weights w;
    values a;
} model;

typedef struct batch {
    $rows
//% if micro then
    const ga_micro *micro;
//% end
} batch;

static void forward(const model *m, const batch *b) {
    ga_worker alone = {1}, *const w = &alone;
    $calls
}

//@ predict(name, upper, identity, bytes, head, weights, values, row, micro, outputs, number)
/* The head of the weights. */
typedef struct weights_head {
    uint64_t model, bytes, checksum;
} weights_head;

int $(name)_predict_check(const void *all, size_t bytes) {
    const weights_head *h = all;
    const uint32_t *x = (const uint32_t *)((const char *)all + $head);
    uint64_t sum = 14695981039346656037ull;
    if (bytes != $(upper)_PREDICT_WEIGHTS || h->model != $identity || h->bytes != $bytes) return -1;
    for (size_t i = 0; i < $bytes / sizeof *x; i++) sum = (sum ^ x[i]) * 1099511628211ull;
    return sum == h->checksum ? 0 : -2;
}

void $(name)_predict(const void *all, void *memory, const $(name)_predict_rows *rows, size_t n, float *output) {
//% if micro then
    static const ga_micro micro = {.training = 0};
//% end
    const real *const w = (const real *)((const char *)all + $head);
    real *const v = memory;
    const model own = {
        .w = {
            $weights
        },
        .a = {
            $values
        },
    }, *const m = &own;
    const uint64_t mode = ga_flush_denormals();
    for (size_t r = 0; r < n; r++, output += $outputs) {
        const batch b = {
            $row
//% if micro then
            .micro = &micro,
//% end
        };
        forward(m, &b);
        for (size_t i = 0; i < $outputs; i++) output[i] = (float)$number;
    }
    ga_restore_denormals(mode);
}
#endif
