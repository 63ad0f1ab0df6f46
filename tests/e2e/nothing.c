/* nothing: each function of looped.h that returns a status, without a model and without each thing that it needs: NULL
 * where it may not be is GA_INPUT with a text. Prints "ok". Exit 0, or 1 with what was wrong. */
#include "looped.h"

#include "looped_checks.h"

#include <stdio.h>

enum { BATCH = 3, WIDTH = 4, CLASSES = 3 };

static int ignores(void *context, ga_tensor *t) {
    (void)context, (void)t;
    return 0;
}

int main(void) {
    ga_err e = {0};
    looped *m = NULL;
    static const float input[BATCH * WIDTH];
    static const int32_t target[BATCH];
    looped_batch b = {input, target, BATCH};
    looped_metrics sums;
    float d[BATCH * CLASSES] = {0};
    static const char NO_MODEL[] = "the model is NULL, expected the one of looped_open";
    CHECK(looped_open(&m, NULL, &e) == 0);
    FAILS(looped_open(NULL, NULL, &e), "open: the place for the model is NULL");
    FAILS(looped_next(NULL, &b, &e), NO_MODEL);
    FAILS(looped_next(m, NULL, &e), "next: the micro-batch is NULL");
    FAILS(looped_backward(NULL, &b, &e), NO_MODEL);
    FAILS(looped_backward(m, NULL, &e), "backward: the micro-batch is NULL");
    FAILS(looped_backward_by_grad(NULL, &b, d, &e), NO_MODEL);
    FAILS(looped_backward_by_grad(m, NULL, d, &e), "the micro-batch is NULL");
    FAILS(looped_backward_by_grad(m, &b, NULL, &e), "d_output is NULL");
    FAILS(looped_step(NULL, &e), NO_MODEL);
    FAILS(looped_flush(NULL, &e), NO_MODEL);
    FAILS(looped_cycle(NULL, &e), NO_MODEL);
    FAILS(looped_validation_step(NULL, &b, &sums, &e), NO_MODEL);
    FAILS(looped_validation_step(m, NULL, &sums, &e), "the micro-batch is NULL");
    FAILS(looped_validation_step(m, &b, NULL, &e), "the place for the sums is NULL");
    FAILS(looped_predict_step(NULL, &b, d, &e), NO_MODEL);
    FAILS(looped_predict_step(m, NULL, d, &e), "the micro-batch is NULL");
    FAILS(looped_forward_step(m, &b, NULL, &e), "the place for the output is NULL");
    FAILS(looped_state_dict(NULL, false, NULL, NULL, &e), NO_MODEL);
    FAILS(looped_state_dict(m, false, NULL, NULL, &e), "state_dict: the function is NULL");
    FAILS(looped_load_state_dict(NULL, ignores, NULL, &e), NO_MODEL);
    FAILS(looped_load_state_dict(m, NULL, NULL, &e), "load_state_dict: the function is NULL");
    FAILS(looped_save(NULL, ".", &e), NO_MODEL);
    FAILS(looped_load(NULL, "latest", &e), NO_MODEL);
    FAILS(looped_load(m, NULL, &e), "load: the path is NULL");
    FAILS(looped_all_gather(NULL, d, d, 1, GA_F32, &e), NO_MODEL);
    FAILS(looped_all_gather(m, NULL, d, 1, GA_F32, &e), "gather: in is NULL, expected room for 1 values");
    FAILS(looped_all_gather(m, d, NULL, 1, GA_F32, &e), "gather: out is NULL");
    FAILS(looped_all_gather(m, d, d, 1, (ga_dtype)99, &e), "gather: type 99, expected GA_F32 to GA_U8");
    FAILS(looped_reduce(NULL, d, 1, GA_F32, GA_SUM, -1, &e), NO_MODEL);
    FAILS(looped_reduce(m, NULL, 1, GA_F32, GA_SUM, -1, &e), "reduce: buf is NULL");
    FAILS(looped_reduce(m, d, 1, (ga_dtype)99, GA_SUM, -1, &e), "reduce: no type, expected F32 or F64");
    FAILS(looped_reduce(m, d, 1, GA_F32, (ga_op)99, -1, &e), "reduce: operation 99, expected GA_SUM");
    FAILS(looped_broadcast(NULL, d, 4, 0, &e), NO_MODEL);
    FAILS(looped_broadcast(m, NULL, 4, 0, &e), "broadcast: buf is NULL");
    FAILS(looped_least(NULL, 3, &e), NO_MODEL);
    CHECK(looped_set_gradient_handler(NULL, NULL, NULL) == GA_INPUT && looped_root_device(NULL) == -1);
    CHECK(looped_broadcast(m, NULL, 0, 0, &e) == 0 && looped_load(m, NULL, NULL) == GA_INPUT);
    for (int k = 0; k < LOOPED_ACCUMULATE; k++) CHECK(looped_backward(m, &b, &e) == 0); /* all that did no harm */
    CHECK(looped_step(m, &e) == 1);
    looped_close(m);
    printf("ok\n");
    return 0;
}
