/* options.c: the command line from one table, which is also the help text. */
#include "log/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum { FLAG, TEXT, NUMBER, REAL, SHARE, WATCH } kind;

typedef struct {
    const char *name, *value, *help;
    kind kind;
    size_t field;
    int64_t low, high; /* of a NUMBER */
} option;

#define AT(field) offsetof(ga_options, field)

static const option options[] = {
    {"cycles", "N", "end when N cycles are done", NUMBER, AT(cycles), 1, INT64_MAX},
    {"data", "DIR", "folder of the data", TEXT, AT(data), 0, 0},
    {"run", "NAME", "name of the run's folder in runs; default: the next number", TEXT, AT(run), 0, 0},
    {"checkpoint", "DIR", "folder of the checkpoints; default: checkpoints in the run's folder", TEXT, AT(checkpoint),
     0, 0},
    {"resume", "latest|RUN|PATH", "go on from a checkpoint: the newest, a run's newest, this one", TEXT, AT(resume), 0,
     0},
    {"init", "FILE.safetensors", "initial parameters; the file may hold more tensors", TEXT, AT(init), 0, 0},
    {"fresh", "GLOB,...", "of --init: keep what FILE lacks or has in another shape: 'head.*'", TEXT, AT(fresh), 0, 0},
    {"overfit", "N", "train on the first N micro-batches of an epoch, again and again; saves no checkpoints", NUMBER,
     AT(overfit), 1, INT64_MAX},
    {"eval", NULL, "evaluate instead of training", FLAG, AT(eval), 0, 0},
    {"log", "FILE.jsonl", "append one JSON object per event; default: log.jsonl in the run's folder", TEXT, AT(log), 0,
     0},
    {"watch", "PARAM[:N]", "print the first N elements after every micro-step", WATCH, AT(watch), 0,
     0},
    {"watch-kernels", NULL, "take an edited kernels.c at the next boundary if it computes the same", FLAG,
     AT(watch_kernels), 0, 0},
    {"dump", "DIR", "at the end write parameters, state and the last gradients, over a full cycle's weight", TEXT,
     AT(dump), 0, 0},
    {"threads", "N", "worker threads", NUMBER, AT(threads), 1, 1024},
    {"seed", "N", "instead of the seed of the spec", NUMBER, AT(seed), 0, INT64_MAX},
    {"quiet", NULL, "no figures and no progress: \"ready\" and what is wrong", FLAG, AT(quiet), 0, 0},
    {"plot", NULL, "draw the losses as a curve above the progress line, on a terminal", FLAG, AT(plot), 0, 0},
    {"stop-micro", "K", "save and stop once K micro-steps are done", NUMBER, AT(stop_micro), 1,
     INT64_MAX},
    {"no-graph", NULL, "on a device: send kernels one by one, without graphs", FLAG, AT(no_graph), 0, 0},
    {"offline", "ARCH", "on a device: compile the kernels for sm_90a or the like into modules, and end", TEXT,
     AT(offline), 0, 0},
    {"sample", "N", "write N tokens of the model's own instead of training", NUMBER, AT(sample), 1,
     INT64_MAX},
    {"prompt", "TEXT|FILE", "of --sample: what the tokens follow; default: the first token of the data", TEXT,
     AT(prompt), 0, 0},
    {"temperature", "X", "of --sample: 1 as learned, 0 the likeliest", REAL, AT(temperature), 0, 0},
    {"top-k", "K", "of --sample: only the K likeliest tokens", NUMBER, AT(top_k), 1, INT64_MAX},
    {"top-p", "P", "of --sample: only the likeliest tokens that have P of the probability, 0 < P <= 1", SHARE,
     AT(top_p), 0, 0},
    {"stop", "TEXT", "of --sample: end behind this text", TEXT, AT(stop), 0, 0},
    {"predict", "FILE", "write the outputs for each row of FILE to --out instead of training; targets are not read",
     TEXT, AT(predict), 0, 0},
    {"out", "FILE.npy|FILE.csv", "of --predict: the file of the outputs", TEXT, AT(out), 0, 0},
    {"probabilities", NULL, "of --predict: what softmax or sigmoid make of the outputs", FLAG, AT(probabilities), 0, 0},
    {"save-weights", "FILE", "write what NAME_predict reads: weights of the best checkpoint; FILE.h: as an array of C",
     TEXT, AT(save_weights), 0, 0},
    {"check-finite", NULL, "train-probe: stop at the first value that is not finite", FLAG,
     AT(check_finite), 0, 0},
    {"profile", NULL, "train-probe: time, GFLOP/s and GB/s of each kernel", FLAG, AT(profile), 0, 0},
    {"save-init", "FILE", "write the initial parameters as safetensors before training, which makes no run", TEXT,
     AT(save_init), 0, 0},
    {"help", NULL, "show this", FLAG, AT(help), 0, 0},
};

enum { OPTIONS = sizeof options / sizeof *options };

/* Edit distance (insert, delete, replace) between a, of n bytes, and b; compares at most 31 bytes of each. */
static int distance(const char *a, size_t n, const char *b) {
    int row[33];
    size_t m = strlen(b) < 32 ? strlen(b) : 32;
    if (n > 32) n = 32;
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = corner + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

static int unknown(const char *argument, size_t n, ga_err *e) {
    int nearest = 0, best = INT_MAX;
    for (int i = 0; i < OPTIONS; i++) {
        int d = distance(argument, n, options[i].name);
        if (d < best) {
            best = d;
            nearest = i;
        }
    }
    if (best <= 2 || (size_t)best < n / 2)
        return ga_fail(e, GA_INPUT, "--%.*s: unknown option, did you mean --%s? --help lists all",
                       (int)n, argument, options[nearest].name);
    return ga_fail(e, GA_INPUT, "--%.*s: unknown option; --help lists all", (int)n, argument);
}

/* Parses a whole number without sign, blanks or exponent. */
static bool parse_number(const char *text, int64_t *out) {
    int64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value))
            return false;
    *out = value;
    return at > text && *at == 0;
}

static int set_number(ga_options *o, const option *p, const char *text, ga_err *e) {
    int64_t value;
    if (!parse_number(text, &value) || value < p->low || value > p->high)
        return ga_fail(e, GA_INPUT,
                       "--%s: '%.100s' found, a whole number from %lld to %lld expected", p->name,
                       text, (long long)p->low, (long long)p->high);
    if (p->field == AT(threads))
        o->threads = (int)value;
    else
        *(int64_t *)((char *)o + p->field) = value;
    return GA_OK;
}

static int set_watch(ga_options *o, const char *text, ga_err *e) {
    const char *colon = strrchr(text, ':');
    int64_t count = 1;
    o->watch = text;
    o->watch_length = colon ? (size_t)(colon - text) : strlen(text);
    if (o->watch_length == 0 || (colon && !parse_number(colon + 1, &count)) || count < 1 ||
        count > 1000000)
        return ga_fail(
            e, GA_INPUT,
            "--watch: '%.100s' found, PARAM or PARAM:N with N from 1 to 1000000 expected", text);
    o->watch_count = (int)count;
    return GA_OK;
}

static int set_real(ga_options *o, const option *p, const char *text, ga_err *e) {
    char *end;
    const double value = strtod(text, &end);
    if (*end != 0 || !(value >= 0) || value > 1e6)
        return ga_fail(e, GA_INPUT, "--%s: '%.100s' found, a number from 0 to 1e6 expected", p->name, text);
    *(double *)((char *)o + p->field) = value;
    return GA_OK;
}

static int set_share(ga_options *o, const option *p, const char *text, ga_err *e) {
    char *end;
    const double value = strtod(text, &end);
    if (*end != 0 || !(value > 0) || value > 1)
        return ga_fail(e, GA_INPUT, "--%s: '%.100s' found, a number above 0 and at most 1 expected", p->name, text);
    *(double *)((char *)o + p->field) = value;
    return GA_OK;
}

static int set_option(ga_options *o, const option *p, const char *text, ga_err *e) {
    if (p->kind == FLAG) {
        *(bool *)((char *)o + p->field) = true;
        return GA_OK;
    }
    if (*text == 0)
        return ga_fail(e, GA_INPUT, "--%s: empty value, %s expected", p->name, p->value);
    if (p->kind == NUMBER) return set_number(o, p, text, e);
    if (p->kind == REAL) return set_real(o, p, text, e);
    if (p->kind == SHARE) return set_share(o, p, text, e);
    if (p->kind == WATCH) return set_watch(o, text, e);
    *(const char **)((char *)o + p->field) = text;
    return GA_OK;
}

static bool given(const bool *seen, const char *name) {
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0) return seen[i];
    return false;
}

typedef struct dependence {
    const char *option, *of;
} dependence;

/* Refuses options that need another one. */
static int check_owners(const bool *seen, ga_err *e) {
    static const dependence needs[] = {{"fresh", "init"}, {"prompt", "sample"}, {"temperature", "sample"},
        {"top-k", "sample"}, {"top-p", "sample"}, {"stop", "sample"}, {"out", "predict"}, {"probabilities", "predict"},
        {"predict", "out"}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (given(seen, needs[i].option) && !given(seen, needs[i].of))
            return ga_fail(e, GA_INPUT, "--%s: given without --%s, expected both", needs[i].option, needs[i].of);
    return GA_OK;
}

enum { INSTEAD = 4, TRAINING = 8 };

/* Refuses options of training beside one that does not train, and two of those. */
static int check_training(const bool *seen, ga_err *e) {
    static const char *const training[TRAINING] = {"cycles", "watch", "dump", "stop-micro", "run", "overfit", "plot",
                                                        "watch-kernels"},
                     *const instead[INSTEAD] = {"eval", "sample", "predict", "save-weights"};
    const char *first = NULL;
    for (int i = 0; i < INSTEAD; i++) {
        if (!given(seen, instead[i])) continue;
        if (first)
            return ga_fail(e, GA_INPUT, "--%s: given beside --%s, one of the two expected", instead[i], first);
        first = instead[i];
    }
    for (int i = 0; first && i < TRAINING; i++)
        if (given(seen, training[i]))
            return ga_fail(e, GA_INPUT, "--%s: given beside --%s, which does not train", training[i], first);
    return GA_OK;
}

typedef struct conflict {
    const char *option, *beside, *why;
} conflict;

/* Refuses options that exclude each other. */
static int check_together(const ga_options *o, const bool *seen, ga_err *e) {
    static const char NO_CHECKPOINTS[] = "but a run of a few micro-batches has no checkpoints";
    static const conflict conflicts[] = {{"run", "save-init", "which makes no run"},
        {"init", "resume", "which has parameters of its own"}, {"plot", "quiet", "which shows no progress"},
        {"seed", "predict", "which draws nothing"}, {"seed", "save-weights", "which draws nothing"},
        {"profile", "save-weights", "which runs no kernel"}, {"check-finite", "save-weights", "which runs no kernel"},
        {"overfit", "resume", NO_CHECKPOINTS}, {"overfit", "checkpoint", NO_CHECKPOINTS}};
    GA_TRY(check_owners(seen, e));
    GA_TRY(check_training(seen, e));
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++)
        if (given(seen, conflicts[i].option) && given(seen, conflicts[i].beside))
            return ga_fail(e, GA_INPUT, "--%s: given beside --%s, %s", conflicts[i].option, conflicts[i].beside,
                           conflicts[i].why);
    for (int i = 0; o->offline && i < OPTIONS; i++)
        if (seen[i] && options[i].field != AT(offline) && options[i].field != AT(help))
            return ga_fail(e, GA_INPUT, "--%s: given beside --offline, which only compiles kernels", options[i].name);
    return GA_OK;
}

int ga_options_parse(ga_options *o, int argc, char *const *argv, ga_err *e) {
    bool seen[OPTIONS] = {false};
    *o = (ga_options){.seed = -1, .temperature = 1, .top_p = 1, .argc = argc, .argv = argv};
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (strcmp(argument, "-h") == 0) argument = "--help";
        if (strncmp(argument, "--", 2) != 0 || argument[2] == 0)
            return ga_fail(e, GA_INPUT, "'%.100s': not an option; --help lists all", argument);
        const char *name = argument + 2, *equals = strchr(name, '='),
                   *value = equals ? equals + 1 : "";
        size_t n = equals ? (size_t)(equals - name) : strlen(name);
        int k = 0;
        while (k < OPTIONS &&
               (strlen(options[k].name) != n || memcmp(options[k].name, name, n) != 0))
            k++;
        if (k == OPTIONS) return unknown(name, n < 100 ? n : 100, e);
        const option *p = &options[k];
        if (seen[k]) return ga_fail(e, GA_INPUT, "--%s: given twice", p->name);
        seen[k] = true;
        if (p->kind == FLAG && equals) return ga_fail(e, GA_INPUT, "--%s: takes no value", p->name);
        if (p->kind != FLAG && !equals) {
            if (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0)
                return ga_fail(e, GA_INPUT, "--%s: no value, %s expected", p->name, p->value);
            value = argv[++i];
        }
        GA_TRY(set_option(o, p, value, e));
    }
    return check_together(o, seen, e);
}

const char *ga_options_instead(const ga_options *o) {
    return o->eval ? "--eval" : o->sample ? "--sample" : o->predict ? "--predict"
        : o->save_weights ? "--save-weights" : NULL;
}

int ga_options_help(const char *program, ga_err *e) {
    printf("usage: %s [options]\n", program);
    for (int i = 0; i < OPTIONS; i++) {
        char left[48];
        snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        printf("  %-26s %s\n", left, options[i].help);
    }
    printf("--eval, --sample, --predict, --save-weights: of the best checkpoint, else the newest, or of --resume or\n"
           "--init; without any --eval takes the initial values, and the others end with exit status 1\n");
    printf("exit status: 0 done, 1 input, 2 a bug of gagen, 3 environment, 4 not finite, 75 "
           "stopped, resumable\n");
    return ga_flush_stdout(e);
}

int ga_program_folder(char *out, size_t size, ga_err *e) {
    ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0 || (size_t)n >= size - 1)
        return ga_fail(e, GA_ENVIRONMENT, "/proc/self/exe: %s",
                       n < 0 ? strerror(errno) : "the path is too long");
    out[n] = 0;
    char *slash = strrchr(out, '/');
    if (slash) slash[slash == out] = 0;
    return GA_OK;
}

static bool try_path(char *out, size_t size, const char *folder, const char *between,
                     const char *relative) {
    struct stat st;
    if (!folder || !*folder) return false;
    int n = snprintf(out, size, "%s%s%s", folder, between, relative);
    /* a file that stat cannot read counts as present: opening it reports the reason */
    return n > 0 && (size_t)n < size && (stat(out, &st) == 0 || (errno != ENOENT && errno != ENOTDIR));
}

int ga_data_path(char *out, size_t size, const char *option_dir, const char *program_dir,
                 const char *relative, ga_err *e) {
    const char *environment = getenv("GAGEN_DATA");
    if (relative[0] == '/') {
        if (try_path(out, size, relative, "", "")) return GA_OK;
        return ga_fail(e, GA_INPUT, "%s: data file not found", relative);
    }
    if (option_dir) {
        if (try_path(out, size, option_dir, "/", relative)) return GA_OK;
        return ga_fail(e, GA_INPUT, "--data %.300s: has no file %.100s", option_dir, relative);
    }
    if (try_path(out, size, environment, "/", relative) ||
        try_path(out, size, program_dir, "/data/", relative))
        return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "%.100s: data file not found under GAGEN_DATA (%.80s) or %.100s/data: name its "
                   "folder with --data",
                   relative, environment && *environment ? environment : "not set",
                   program_dir ? program_dir : ".");
}
