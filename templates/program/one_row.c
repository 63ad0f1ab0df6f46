//@ row(header, name, functions, calls)
$header

/* Part of step.c. Results lie where those of a whole micro-batch lie: in its row 0. */

static batch batch_of(const char *at); /* these two are defined in step.c */
static int run_team(model *m, void (*body)(ga_worker *, void *), void *arg, ga_err *e);

$functions
/* Row 0 over all positions. */
static void forward_row(ga_worker *w, model *m, const batch *b) {
    $calls
    ga_barrier(w);
}

static void row_step(ga_worker *w, void *arg) {
    model *m = arg;
    const batch b = batch_of(m->eval_batch);
    forward_row(w, m, &b);
}

int $(name)_model_forward_row(model *m, ga_err *e) { return run_team(m, row_step, m, e); }

//@ position(name, calls)
/* One position of row 0. The positions before it have left their keys and values. */
static void forward_position(ga_worker *w, model *m, const batch *b, size_t position) {
    $calls
    ga_barrier(w);
}

typedef struct position_call {
    model *m;
    size_t position;
} position_call;

static void position_step(ga_worker *w, void *arg) {
    const position_call *call = arg;
    const batch b = batch_of(call->m->eval_batch);
    forward_position(w, call->m, &b, call->position);
}

int $(name)_model_forward_position(model *m, size_t position, ga_err *e) {
    return run_team(m, position_step, &(position_call){m, position}, e);
}
