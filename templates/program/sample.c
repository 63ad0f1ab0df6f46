//@ head(header, positions, width, ids, text)
$header

#include <errno.h>

#include "runtime/loop/stop.h"

/* Part of model.c. Row 0 of a micro-batch holds the last tokens; the model's output at the last of them says
 * what may follow. */
enum { POSITIONS = $positions, OUTPUT_WIDTH = $width, IDS = $ids };

/* A token of which the output says x; number i that is drawn. */
static int32_t draw(const real *x, double temperature, uint64_t seed, int64_t i) {
    int32_t best = 0;
    double sum = 0;
    for (int32_t id = 1; id < IDS; id++) best = x[id] > x[best] ? id : best;
    if (temperature == 0) return best;
    for (int32_t id = 0; id < IDS; id++) sum += exp((x[id] - x[best]) / temperature);
    double rest = sum * ga_uniform(ga_rng(seed, ga_rng_stream("sample"), (uint64_t)i));
    for (int32_t id = 0; id < IDS; id++) {
        rest -= exp((x[id] - x[best]) / temperature);
        if (rest < 0) return id;
    }
    return best;
}

static void write_token(int32_t id) {
//% if text then
    putchar(VOCABULARY[id]);
//% else
    printf("%d ", id);
//% end
}

static int flush(ga_err *e) {
    if (fflush(stdout) == 0) return 0;
    return ga_fail(e, GA_ENVIRONMENT, "standard output: %s", strerror(errno));
}

//@ features(features)
enum { FEATURES = $features }; /* that the last layer reads */

//@ read(fn, n, output)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    (void)e;
    memcpy(x, $output + (size_t)p * $n, $n * sizeof(real));
    return 0;
}

//@ read_half(fn, n, output, half)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    (void)e;
    for (int i = 0; i < $n; i++) x[i] = $(half)_widen($(output)[(size_t)p * $n + i]);
    return 0;
}

//@ read_device(fn, n, output)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    const ga_address at = $output + (ga_address)p * $n * sizeof(real);
    return ga_device_download(m->device, x, at, $n * sizeof(real), e);
}

//@ read_device_half(fn, n, output, half)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    static $half stored[$n];
    const ga_address at = $output + (ga_address)p * sizeof stored;
    GA_TRY(ga_device_download(m->device, stored, at, sizeof stored, e));
    for (int i = 0; i < $n; i++) x[i] = $(half)_widen(stored[i]);
    return 0;
}

//@ apply_head(weight, next, step, bias)
/* The output at position p of row 0, one number per id: the last layer's, which is never whole in memory. */
static int read_output(model *m, int p, real *x, ga_err *e) {
    static real in[FEATURES];
    GA_TRY(read_features(m, p, in, e));
    for (int id = 0; id < IDS; id++) {
        const real *weight = m->flat_w + $weight + (size_t)id * $next;
        double sum = $bias;
        for (int k = 0; k < FEATURES; k++) sum += (double)in[k] * weight[(size_t)k * $step];
        x[id] = (real)sum;
    }
    return 0;
}

//@ sample(name, chunked, device)
/* Begins with the first token of the training data. */
int $(name)_model_sample(model *m, const ga_options *o, ga_err *e) {
    static real x[OUTPUT_WIDTH];
    int32_t *input = (int32_t *)(m->eval_batch + AT_INPUT), *target = (int32_t *)(m->eval_batch + AT_TARGET);
    int n = 1;
    if (ga_comm_rank(m->comm) != 0) return 0;
//% if chunked and device then
    GA_TRY($(name)_model_download(m, e)); /* the weights of the last layer */
//% end
    m->train.decode(&m->train, 0, NULL, (void *const[]){input, target});
    memset(input + 1, 0, (B * POSITIONS - 1) * sizeof *input);
    for (int i = 0; i < B * POSITIONS; i++) target[i] = IGNORE;
    *(ga_micro *)(m->eval_batch + AT_MICRO) = (ga_micro){.rows = 1, .cycle = m->count.cycle, .seed = m->seed};
    write_token(input[0]);
    for (int64_t i = 0; i < o->sample && !ga_stop_requested(); i++) {
//% if chunked then
        GA_TRY($(name)_model_forward_batch(m, e));
//% else
        GA_TRY($(name)_model_evaluate_batch(m, e));
//% end
        GA_TRY(read_output(m, n - 1, x, e));
        if (n == POSITIONS) memmove(input, input + 1, (size_t)--n * sizeof *input);
        input[n] = draw(x, o->temperature, m->seed, i);
        write_token(input[n++]);
        GA_TRY(flush(e));
    }
    putchar('\n');
    return flush(e);
}
