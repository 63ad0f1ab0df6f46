/* log.c: events as JSON lines and as text. Each line is built whole and written at once. A failed write
 * is reported once; lines are dropped until writing works again, and training goes on. */
#include "log/log.h"

#include "log/progress.h"
#include "files/file.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 3072 };

typedef struct {
    int fd; /* -1: off */
    const char *name;
    bool broken;  /* part of a line may have been written */
    bool named;   /* a file that the log has opened by its name, and that is written again where it is removed */
    bool removed; /* the file has no name any more, and could not be written again */
} channel;

struct ga_log {
    channel json, text, talk;
    bool quiet;
    bool one_terminal; /* stdout is where progress is drawn */
    ga_progress progress;
    double opened;
    char line[LINE];
};

size_t ga_log_bytes(void) {
    return 8192;
}

/* Refuses a file with something else in it; otherwise says whether its last line was never finished. */
static int check_old(const char *path, bool *torn, ga_err *e) {
    static const char BEGIN[] = "{\"event\":\"";
    char found[sizeof BEGIN], last = '\n';
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return GA_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ga_fail(e, ga_file_status(), "--log: %s: cannot be read: %s", path, strerror(errno));
    const int64_t n = ga_file_read(fd, found, sizeof BEGIN - 1, 0);
    if (n > 0) ga_file_read(fd, &last, 1, st.st_size - 1);
    close(fd);
    if (n > 0 && memcmp(found, BEGIN, (size_t)n) == 0) {
        *torn = last != '\n';
        return GA_OK;
    }
    return ga_fail(e, GA_INPUT, "--log: %s: is there already and no log of a training program, expected a new file, or "
                   "one that begins with %s", path, BEGIN);
}

static int open_json(channel *c, const char *path, ga_err *e) {
    GA_TRY(check_old(path, &c->broken, e));
    /* O_NONBLOCK: a FIFO without a reader is refused instead of waited for. */
    c->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
    if (c->fd < 0) return ga_fail(e, ga_file_status(), "--log: %s: cannot be opened: %s", path, strerror(errno));
    struct stat st;
    c->named = fstat(c->fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 0;
    return GA_OK;
}

int ga_log_open(ga_log **out, const char *path, bool quiet, int rank, ga_arena *a, ga_err *e) {
    *out = NULL;
    ga_log *l = ga_take(a, sizeof *l, 64, e);
    if (!l) return GA_BUG;
    l->opened = ga_clock();
    l->quiet = quiet;
    l->text = (channel){.fd = rank == 0 ? STDOUT_FILENO : -1, .name = "stdout"};
    l->talk = (channel){.fd = rank == 0 ? STDERR_FILENO : -1, .name = "stderr"};
    l->json = (channel){.fd = -1, .name = path};
    ga_progress_open(&l->progress, rank == 0 && !quiet);
    l->one_terminal = l->progress.shown && isatty(STDOUT_FILENO);
    if (path && rank == 0) GA_TRY(open_json(&l->json, path, e));
    *out = l;
    return GA_OK;
}

void ga_log_close(ga_log *l) {
    if (!l) return;
    if (l->json.fd >= 0 && close(l->json.fd))
        ga_say("log: %s: close failed: %s", l->json.name, strerror(errno));
    l->json.fd = -1;
}

int ga_log_whole(const ga_log *l, ga_err *e) {
    const channel *lost = l->text.broken ? &l->text : &l->json;
    if (!lost->broken && !lost->removed) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "%s: it could not be written whole", lost->name);
}

void ga_log_plot(ga_log *l) {
    ga_progress_plot(&l->progress);
    if (l->talk.fd >= 0 && !l->progress.shown)
        ga_say("--plot: standard error is no terminal that moves its cursor: no curve is drawn");
}

static ga_text begin(ga_log *l) {
    return (ga_text){.base = l->line, .size = LINE - 1};
}

/* Copies what the file of a log holds into a new one of its name; returns 0 or errno. */
static int write_again(channel *c) {
    char old[64], buffer[4096];
    int64_t n = 0, done = 0;
    snprintf(old, sizeof old, "/proc/self/fd/%d", c->fd);
    const int from = open(old, O_RDONLY | O_CLOEXEC);
    if (from < 0) return errno;
    const int to = open(c->name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    int failed = to < 0 ? errno : 0;
    while (!failed && (n = ga_file_read(from, buffer, sizeof buffer, done)) > 0) {
        failed = ga_write_all(to, buffer, (size_t)n);
        done += n;
    }
    if (n < 0) failed = errno;
    close(from);
    if (to >= 0) close(failed ? to : c->fd);
    if (to >= 0 && failed) unlink(c->name); /* no half of a log is left */
    if (!failed) c->fd = to;
    return failed;
}

/* A log that was removed is written again, with its first lines. */
static void keep(channel *c) {
    struct stat st;
    if (!c->named || c->removed || fstat(c->fd, &st) != 0 || st.st_nlink > 0) return;
    const int failed = write_again(c);
    c->removed = failed != 0;
    if (failed)
        ga_say("log: %s: was removed and cannot be written again (%s): all its lines are lost; training goes on",
               c->name, strerror(failed));
    else
        ga_say("log: %s: was removed and is written again", c->name);
}

/* Writes a line. After a failed write it first ends the partial line. */
static void send(channel *c, ga_text *t) {
    if (c->fd < 0 || t->full) return;
    keep(c);
    if (isatty(c->fd)) ga_draw_clear();
    if (c->broken && ga_write_all(c->fd, "\n", 1)) return;
    t->base[t->used++] = '\n';
    int rc = ga_write_all(c->fd, t->base, t->used);
    c->broken = rc != 0;
    if (rc) ga_say("log: %s: a line was lost (%s); training goes on", c->name, strerror(rc));
}

static void add_int(ga_text *t, const char *name, int64_t value) {
    ga_text_add(t, ",\"%s\":%lld", name, (long long)value);
}

static void add_number(ga_text *t, const char *name, double value) {
    ga_text_add(t, ",\"%s\":", name);
    ga_text_number(t, value, 9);
}

/* All significant digits, so that the logs of two runs can be compared exactly. */
static void add_exact(ga_text *t, const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.15g", value);
    ga_text_add(t, ",\"%s\":", name);
    ga_text_number(t, value, strtod(text, NULL) == value ? 15 : 17);
}

static void add_text(ga_text *t, const char *name, const char *value) {
    if (!value) return;
    ga_text_add(t, ",\"%s\":", name);
    ga_text_string(t, value);
}

void ga_log_start(ga_log *l, const ga_start_event *v) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"start\"");
    add_text(&t, "program", v->program);
    add_text(&t, "version", v->version);
    add_text(&t, "spec_sha256", v->spec_sha256);
    add_text(&t, "target", v->target);
    add_text(&t, "profile", v->profile);
    add_int(&t, "ranks", v->ranks);
    add_int(&t, "threads", v->threads);
    add_text(&t, "threads_why", v->threads_why);
    add_int(&t, "parameters", v->parameters);
    add_int(&t, "planned_bytes", v->planned_bytes);
    ga_text_add(&t, ",\"seed\":%llu", (unsigned long long)v->seed);
    if (v->overfit) add_int(&t, "overfit", v->overfit);
    add_text(&t, "resumed_from", v->resumed_from);
    ga_text_add(&t, "}");
    send(&l->json, &t);
}

void ga_log_kernels(ga_log *l, const ga_kernels_event *v) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"kernels\"");
    add_int(&t, "cycle", v->cycle);
    add_int(&t, "update", v->update);
    add_text(&t, "sha256", v->sha256);
    ga_text_add(&t, ",\"taken\":%s", v->taken ? "true" : "false");
    add_text(&t, "result", v->result);
    if (v->reason) add_text(&t, "reason", v->reason);
    if (v->kernel) add_text(&t, "kernel", v->kernel);
    if (v->kernel) add_text(&t, "element", v->element);
    if (v->kernel) add_exact(&t, "before", v->before);
    if (v->kernel) add_exact(&t, "after", v->after);
    if (v->kernel) add_exact(&t, "most", v->most);
    ga_text_add(&t, "}");
    send(&l->json, &t);
}

void ga_log_device(ga_log *l, const ga_device_use *v) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"device\"");
    add_text(&t, "name", v->name);
    add_int(&t, "arch", v->arch);
    add_int(&t, "graph_launches", v->graph_launches);
    add_int(&t, "graph_kernels", v->graph_kernels);
    add_int(&t, "kernel_launches", v->kernel_launches);
    add_int(&t, "device_bytes", v->device_bytes);
    add_int(&t, "pinned_bytes", v->pinned_bytes);
    ga_text_add(&t, "}");
    send(&l->json, &t);
}

void ga_log_state_file(ga_log *l, int64_t bytes, int64_t read, int64_t written) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"state_file\"");
    add_int(&t, "bytes", bytes);
    add_int(&t, "read_bytes", read);
    add_int(&t, "written_bytes", written);
    ga_text_add(&t, "}");
    send(&l->json, &t);
}

static void update_json(ga_log *l, const ga_update_event *v) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"update\"");
    add_int(&t, "cycle", v->cycle);
    add_int(&t, "update", v->update);
    add_int(&t, "micro", v->micro);
    add_int(&t, "epoch", v->epoch);
    add_int(&t, "rows", v->rows);
    add_exact(&t, "loss", v->loss);
    add_exact(&t, "lr", v->lr);
    if (v->fields & GA_HAS_MOMENTUM) add_exact(&t, "momentum", v->momentum);
    if (v->fields & GA_HAS_GRAD_NORM) add_exact(&t, "grad_norm", v->grad_norm);
    if (v->fields & GA_HAS_SCALE) add_exact(&t, "scale", v->scale);
    add_int(&t, "skipped", v->skipped);
    add_exact(&t, "weight", v->weight);
    add_number(&t, "ms", v->ms);
    add_number(&t, "rows_per_s", v->rows_per_s);
    if (v->fields & GA_HAS_TOKENS) add_number(&t, "tokens_per_s", v->tokens_per_s);
    add_int(&t, "collectives", v->collectives);
    add_int(&t, "comm_bytes", v->comm_bytes);
    ga_text_add(&t, "}");
    send(&l->json, &t);
}

/* printf writes a NaN with its sign bit set as "-nan". */
static double plain(double value) {
    return isnan(value) ? fabs(value) : value;
}

static void update_progress(ga_log *l, const ga_update_event *v) {
    bool tokens = v->fields & GA_HAS_TOKENS;
    ga_progress_update(&l->progress,
                       &(ga_progress_event){
                           .cycle = v->cycle,
                           .cycles = v->cycles,
                           .loss = v->loss,
                           .lr = v->lr,
                           .grad_norm = v->fields & GA_HAS_GRAD_NORM ? v->grad_norm : -1,
                           .ms = v->ms,
                           .amount = 1e-3 * v->ms * (tokens ? v->tokens_per_s : v->rows_per_s),
                           .unit = tokens ? "tok" : "rows"});
}

static void update_text(ga_log *l, const ga_update_event *v) {
    ga_text t = begin(l);
    bool tokens = v->fields & GA_HAS_TOKENS;
    ga_text_add(&t, "update %lld/%lld loss %.4g lr %.3e", (long long)v->cycle, (long long)v->cycles,
                plain(v->loss), v->lr);
    if (v->fields & GA_HAS_GRAD_NORM) ga_text_add(&t, " gnorm %.3g", plain(v->grad_norm));
    if (v->fields & GA_HAS_SCALE) ga_text_add(&t, " scale %g", v->scale);
    ga_text_add(&t, " %s %.0f skipped %lld t %.1fs", tokens ? "tok/s" : "rows/s",
                tokens ? v->tokens_per_s : v->rows_per_s, (long long)v->skipped,
                ga_clock() - l->opened);
    send(&l->text, &t);
}

void ga_log_update(ga_log *l, const ga_update_event *v) {
    update_json(l, v);
    if (!l->quiet && !l->one_terminal) update_text(l, v);
    update_progress(l, v);
}

double ga_eval_value(const ga_eval_event *v, const char *name) {
    for (const ga_metric *metric = v->metrics; metric < v->metrics + GA_METRICS && metric->name; metric++)
        if (strcmp(metric->name, name) == 0) return metric->value;
    return NAN;
}

void ga_log_eval(ga_log *l, const ga_eval_event *v) {
    const ga_metric *end = v->metrics;
    while (end < v->metrics + GA_METRICS && end->name) end++;
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"eval\"");
    add_int(&t, "cycle", v->cycle);
    add_text(&t, "split", v->split);
    add_int(&t, "rows", v->rows);
    if (v->best) ga_text_add(&t, ",\"best\":true");
    for (const ga_metric *metric = v->metrics; metric < end; metric++)
        if (!metric->hidden) add_exact(&t, metric->name, metric->value);
    ga_text_add(&t, "}");
    send(&l->json, &t);
    if (l->quiet) return;
    t = begin(l);
    ga_text_add(&t, "%s %lld", v->split, (long long)v->cycle);
    for (const ga_metric *metric = v->metrics; metric < end; metric++) {
        const char *format = metric->share ? " %s %.4f" : " %s %.4g";
        if (!metric->hidden) ga_text_add(&t, format, metric->name, plain(metric->value));
    }
    ga_text_add(&t, " rows %lld%s", (long long)v->rows, v->best ? ", best so far" : "");
    send(&l->text, &t);
}

void ga_log_checkpoint(ga_log *l, int64_t cycle, const char *path, double ms) {
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"checkpoint\"");
    add_int(&t, "cycle", cycle);
    add_text(&t, "path", path);
    add_number(&t, "ms", ms);
    ga_text_add(&t, "}");
    send(&l->json, &t);
    if (l->quiet) return;
    t = begin(l);
    ga_text_add(&t, "checkpoint %lld %s %.0f ms", (long long)cycle, path, ms);
    send(&l->talk, &t);
}

void ga_log_end(ga_log *l, int64_t cycle, int64_t update, int64_t skipped, const char *reason) {
    const double seconds = ga_clock() - l->opened;
    const int64_t peak = ga_peak_bytes();
    ga_text t = begin(l);
    ga_text_add(&t, "{\"event\":\"end\"");
    add_int(&t, "cycle", cycle);
    add_int(&t, "update", update);
    add_int(&t, "skipped", skipped);
    add_text(&t, "reason", reason);
    add_number(&t, "seconds", seconds);
    add_int(&t, "peak_rss_bytes", peak);
    ga_text_add(&t, "}");
    send(&l->json, &t);
    if (l->quiet) return;
    ga_progress_end(&l->progress);
    t = begin(l);
    ga_text_add(&t, "end %s cycle %lld update %lld skipped %lld mem %lldMiB t %.1fs", reason,
                (long long)cycle, (long long)update, (long long)skipped,
                (long long)peak / (1 << 20), seconds);
    send(&l->text, &t);
}

void ga_log_watch(ga_log *l, int64_t iteration, const char *name, const void *values, ga_dtype t,
                  int n) {
    ga_text line = begin(l);
    ga_text_add(&line, "iteration %lld, first %d elements of %s:", (long long)iteration, n, name);
    for (int i = 0; i < n; i++) {
        if (line.size - line.used < 40) { /* longer than the buffer: the line goes out in parts */
            if (l->text.fd >= 0 && ga_write_all(l->text.fd, line.base, line.used))
                l->text.broken = true;
            line.used = 0;
        }
        ga_text_add(&line, i ? ", %.9g" : " %.9g", ga_get(values, t, i));
    }
    send(&l->text, &line);
}
