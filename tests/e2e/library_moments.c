/* library_moments: calls of looped.h at moments where they may not come: by a gradient handler, and cycle where next
 * has given a part of the data's cycle. Each is GA_INPUT with a text, and training goes on. Prints "ok". Exit 0, or 1
 * with what was wrong. */
#include "looped.h"

#include "looped_checks.h"

#include <stdio.h>

enum { BATCH = 3, CLASSES = 3, ACCUMULATE = 4 };

typedef struct call {
    looped *m;
    looped_batch b;
    int handled;
} call;

static int same_value(void *context, ga_tensor *t) {
    (void)context, (void)t;
    return 0;
}

static int calls_all(void *context, ga_tensor *gradients, int n, ga_err *given) {
    call *c = context;
    looped *m = c->m;
    looped_metrics sums;
    float y[BATCH * CLASSES] = {0};
    double one = 1;
    ga_err e = {0};
    (void)gradients, (void)n, (void)given;
    FAILS(looped_step(m, &e), "step: called by the gradient handler, expected after its step");
    FAILS(looped_flush(m, &e), "flush: called by the gradient handler");
    FAILS(looped_cycle(m, &e), "cycle: called by the gradient handler");
    FAILS(looped_next(m, &c->b, &e), "next: called by the gradient handler");
    FAILS(looped_backward(m, &c->b, &e), "backward: called by the gradient handler");
    FAILS(looped_backward_by_grad(m, &c->b, y, &e), "backward_by_grad: called by the gradient handler");
    FAILS(looped_save(m, "nowhere", &e), "save: called by the gradient handler");
    FAILS(looped_validation_step(m, &c->b, &sums, &e), "validation_step: called by the gradient handler");
    FAILS(looped_forward_step(m, &c->b, y, &e), "forward_step: called by the gradient handler");
    FAILS(looped_predict_step(m, &c->b, y, &e), "predict_step: called by the gradient handler");
    FAILS(looped_load_state_dict(m, same_value, NULL, &e), "load_state_dict: called by the gradient handler");
    FAILS(looped_load(m, "nowhere", &e), "load: called by the gradient handler");
    looped_discard(m);
    CHECK(looped_reduce(m, &one, 1, GA_F64, GA_SUM, -1, &e) == 0 && one == looped_world(m));
    c->handled++;
    return 0;
}

static void by_handler(int threads) {
    ga_err e = {0};
    call c = {0};
    const looped_options o = {.threads = threads};
    CHECK(looped_open(&c.m, &o, &e) == 0);
    CHECK(looped_set_gradient_handler(c.m, calls_all, &c) == 0);
    for (int k = 0; k < ACCUMULATE; k++) CHECK(looped_next(c.m, &c.b, &e) == 1 && looped_backward(c.m, &c.b, &e) == 0);
    CHECK(looped_step(c.m, &e) == 1 && c.handled == 1);
    CHECK(looped_cycle(c.m, &e) == 1 && c.handled == 2 && looped_count(c.m)->cycle == 2);
    looped_close(c.m);
}

/* drops: by discard, else by flush. */
static void inside_of_next(bool drops) {
    ga_err e = {0};
    looped *m;
    looped_batch b;
    CHECK(looped_open(&m, NULL, &e) == 0);
    CHECK(looped_next(m, &b, &e) == 1 && looped_backward(m, &b, &e) == 0);
    if (drops) looped_discard(m);
    else CHECK(looped_flush(m, &e) == 1);
    FAILS(looped_cycle(m, &e), "cycle: next has given 1 micro-batches of a cycle of the data: expected all of them");
    for (int k = 1; k < ACCUMULATE; k++) CHECK(looped_next(m, &b, &e) == 1);
    const int64_t before = looped_count(m)->micro;
    CHECK(looped_cycle(m, &e) == 1 && looped_count(m)->micro == before + ACCUMULATE);
    looped_close(m);
}

int main(void) {
    ga_err e = {0};
    looped *m;
    by_handler(1);
    by_handler(2);
    inside_of_next(true);
    inside_of_next(false);
    FAILS(looped_open(&m, &(looped_options){.fresh = "fc1*"}, &e), "open: the option fresh without init");
    puts("ok");
    return 0;
}
