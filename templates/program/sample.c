//@ head(header, positions, width, ids)
$header

#include <ctype.h>
#include <errno.h>
#include <unistd.h>

#include "runtime/loop/stop.h"

/* Part of model.c. Row 0 of a micro-batch holds the last tokens; the model's output at the last of them says
 * what may follow. */
enum { POSITIONS = $positions, OUTPUT_WIDTH = $width, IDS = $ids, LONGEST_STOP = 256 /* tokens of --stop */ };

//@ tokens(text)
/* -- text and ids */

static void write_token(int32_t id) {
//% if text then
    putchar(VOCABULARY[id]);
//% else
    printf("%d ", id);
//% end
}

/* The next token of a text into *id: 1, 0 at the end, or a status. option: whose text it is. */
//% if text then
static int read_token(FILE *f, const char *option, int32_t *id, ga_err *e) {
    const int byte = getc(f);
    if (byte == EOF) return 0;
    for (*id = 0; *id < IDS; ++*id)
        if (VOCABULARY[*id] == byte) return 1;
    const char *shown = isprint(byte) ? "--%s: byte %ld is 0x%02x ('%c'), and the training text has no such byte"
        : "--%s: byte %ld is 0x%02x, and the training text has no such byte";
    return ga_fail(e, GA_INPUT, shown, option, ftell(f), byte, byte);
}
//% else
static int read_token(FILE *f, const char *option, int32_t *id, ga_err *e) {
    long long number;
    const int found = fscanf(f, "%lld", &number);
    if (found == EOF) return 0;
    if (found != 1 || number < 0 || number >= IDS)
        return ga_fail(e, GA_INPUT, "--%s: byte %ld: expected numbers of tokens, each from 0 to %d", option, ftell(f),
                       IDS - 1);
    *id = (int32_t)number;
    return 1;
}
//% end

//@ prompt()
/* The tokens of --stop, and those that were drawn last. */
typedef struct ending {
    int32_t stop[LONGEST_STOP], drawn[LONGEST_STOP];
    int n; /* of stop */
} ending;

static int read_ending(const ga_options *o, ending *end, ga_err *e) {
    int32_t id = 0;
    int code;
    FILE *f = fmemopen((void *)o->stop, strlen(o->stop), "r");
    if (!f) return ga_fail(e, GA_ENVIRONMENT, "--stop: %s", strerror(errno));
    while ((code = read_token(f, "stop", &id, e)) > 0 && end->n < LONGEST_STOP) end->stop[end->n++] = id;
    fclose(f);
    if (code > 0) return ga_fail(e, GA_INPUT, "--stop: more than %d tokens", LONGEST_STOP);
    for (int i = 0; i < end->n; i++) end->drawn[i] = -1;
    return code;
}

/* Takes a token that was drawn: whether the last ones are those of --stop. */
static bool ends(ending *end, int32_t id) {
    if (end->n == 0) return false;
    memmove(end->drawn, end->drawn + 1, (size_t)(end->n - 1) * sizeof id);
    end->drawn[end->n - 1] = id;
    return memcmp(end->drawn, end->stop, (size_t)end->n * sizeof id) == 0;
}

/* The last tokens, at most POSITIONS. The model has computed the first `done` of them where they stand. */
typedef struct window {
    int32_t *ids;
    int n, done;
} window;

static void push(window *w, int32_t id) {
    if (w->n == POSITIONS) {
        memmove(w->ids, w->ids + 1, (size_t)--w->n * sizeof *w->ids);
        w->done = 0;
    }
    w->ids[w->n++] = id;
    write_token(id);
}

/* --prompt is the name of a file, or else the text itself. */
static int read_prompt(const ga_options *o, window *w, ga_err *e) {
    int32_t id = 0;
    int code = 0;
    const bool file = access(o->prompt, F_OK) == 0;
    FILE *f = file ? fopen(o->prompt, "re") : fmemopen((void *)o->prompt, strlen(o->prompt), "r");
    if (!f) return ga_fail(e, GA_INPUT, "--prompt: %.200s: %s", o->prompt, strerror(errno));
    if (fseek(f, 0, SEEK_SET) == 0) { /* it can be read twice: first for what is wrong, before anything is written */
        while ((code = read_token(f, "prompt", &id, e)) > 0) {}
        rewind(f);
    }
    while (code == 0 && (code = read_token(f, "prompt", &id, e)) > 0) {
        push(w, id);
        code = 0;
    }
    if (code == 0 && ferror(f)) code = ga_fail(e, GA_INPUT, "--prompt: %.200s: %s", o->prompt, strerror(errno));
    fclose(f);
    if (code == 0 && w->n == 0) return ga_fail(e, GA_INPUT, "--prompt: %.200s: has no token", o->prompt);
    return code;
}

//@ draws()
/* -- draws */

/* Whether token a comes before b: it is likelier, or as likely and its id is smaller. */
static bool before(const real *x, int32_t a, int32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); }

/* Puts the token at place i of a heap of n tokens where it belongs: behind none that it comes before. */
static void sink(const real *x, int32_t *heap, int n, int i) {
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(x, heap[child + 1], heap[child])) child++;
        if (!before(x, heap[child], heap[i])) return;
        const int32_t lower = heap[i];
        heap[i] = heap[child];
        heap[child] = lower;
    }
}

/* Takes the first token out of a heap of n tokens, and leaves it in the place that becomes free, the last one. */
static void take_first(const real *x, int32_t *heap, int n) {
    const int32_t first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    sink(x, heap, n - 1, 0);
}

/* A token is drawn in proportion to this. */
static double share(const real *x, int32_t id, int32_t best, double temperature) {
    return exp((x[id] - x[best]) / temperature);
}

/* The tokens that --top-k and --top-p leave: the last ones of ids[IDS], the likeliest at the end. --top-p counts the
 * probability of those that --top-k leaves. Returns their number. */
static int likeliest(const real *x, const ga_options *o, int32_t best, int32_t *ids) {
    const int most = o->top_k > 0 && o->top_k < IDS ? (int)o->top_k : IDS;
    int sorted = 0, n = 0;
    double total = 0, sum = 0;
    for (int i = IDS / 2 - 1; i >= 0; i--) sink(x, ids, IDS, i);
    while (most < IDS && sorted < most) take_first(x, ids, IDS - sorted++);
    for (int i = 1; i <= most; i++) total += share(x, ids[IDS - i], best, o->temperature);
    while (n < most && (n == 0 || o->top_p == 1 || sum < o->top_p * total)) {
        if (n == sorted) take_first(x, ids, IDS - sorted++);
        sum += share(x, ids[IDS - ++n], best, o->temperature);
    }
    return n;
}

/* A token of which the output says x; number i that is drawn. */
static int32_t draw(const real *x, const ga_options *o, uint64_t seed, int64_t i) {
    static int32_t ids[IDS];
    int32_t best = 0;
    int n = IDS;
    double sum = 0;
    for (int32_t id = 1; id < IDS; id++) best = x[id] > x[best] ? id : best;
    if (o->temperature == 0) return best;
    for (int32_t id = 0; id < IDS; id++) ids[id] = id;
    if (o->top_k > 0 || o->top_p < 1) n = likeliest(x, o, best, ids);
    for (int k = IDS - n; k < IDS; k++) sum += share(x, ids[k], best, o->temperature);
    double rest = sum * ga_uniform(ga_rng(seed, ga_rng_stream("sample"), (uint64_t)i));
    for (int k = IDS - n; k < IDS; k++) {
        rest -= share(x, ids[k], best, o->temperature);
        if (rest < 0) return ids[k];
    }
    return best;
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

//@ read_device(fn, n, row, output)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    const ga_address at = $output + (ga_address)p * $row * sizeof(real);
    return ga_device_download(m->device, x, at, $n * sizeof(real), e);
}

//@ read_device_half(fn, n, row, output, half)
/* The $n numbers at position p of row 0. */
static int $fn(model *m, int p, real *x, ga_err *e) {
    static $half stored[$n];
    const ga_address at = $output + (ga_address)p * $row * sizeof *stored;
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

//@ forward(name, batch, row, position)
/* Computes the output at the last token. */
static int forward_window(model *m, window *w, ga_err *e) {
//% if position then
    if (w->done == w->n - 1) GA_TRY($(name)_model_forward_position(m, (size_t)w->n - 1, e));
    else GA_TRY($(name)_model_forward_row(m, e));
//% elseif row then
    GA_TRY($(name)_model_forward_row(m, e));
//% else
    GA_TRY($(name)_model_$batch(m, e));
//% end
    w->done = w->n;
    return 0;
}

//@ sample(name, chunked, device)
/* The first token of the training data. */
static int first_token(model *m, window *w, ga_err *e) {
    static int32_t input[POSITIONS], target[POSITIONS];
    if (!m->train.decode) return ga_fail(e, GA_INPUT, "--sample: data that are a stream need a --prompt");
    m->train.decode(&m->train, 0, NULL, (void *const[]){input, target});
    push(w, input[0]);
    return 0;
}

int $(name)_model_sample(model *m, const ga_options *o, ga_err *e) {
    static real x[OUTPUT_WIDTH];
    static ending end;
    int32_t *input = (int32_t *)(m->eval_batch + AT_INPUT), *target = (int32_t *)(m->eval_batch + AT_TARGET);
    window w = {input, 0, 0};
    if (ga_comm_rank(m->comm) != 0) return 0;
//% if chunked and device then
    GA_TRY($(name)_model_download(m, e)); /* the weights of the last layer */
//% end
    memset(input, 0, B * POSITIONS * sizeof *input);
    for (int i = 0; i < B * POSITIONS; i++) target[i] = IGNORE;
    *(ga_micro *)(m->eval_batch + AT_MICRO) = (ga_micro){.rows = 1, .cycle = m->count.cycle, .seed = m->seed};
    if (o->stop) GA_TRY(read_ending(o, &end, e));
    GA_TRY(o->prompt ? read_prompt(o, &w, e) : first_token(m, &w, e));
    for (int64_t i = 0; i < o->sample && !ga_stop_requested(); i++) {
        GA_TRY(forward_window(m, &w, e));
        GA_TRY(read_output(m, w.n - 1, x, e));
        const int32_t id = draw(x, o, m->seed, i);
        push(&w, id);
        GA_TRY(ga_flush_stdout(e));
        if (ends(&end, id)) break;
    }
    putchar('\n');
    return ga_flush_stdout(e);
}
