/* comparison.c: two children of one process, a pipe from one to the other, and a page that tells what was found. */
#define _GNU_SOURCE /* pipe2 */
#include "log/comparison.h"

#include "base/text.h"
#include "loop/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct ga_comparison {
    bool edited;
    int fd; /* of the pipe */
    ga_found *found;
    ga_dtype real;
    char *room; /* values that came */
    size_t size;
};

/* The head of values in the pipe. */
typedef struct {
    const ga_param *tensor;
    int64_t n;
    int iteration, type;
} heading;

double ga_rounding(ga_dtype real) { return real == GA_F64 ? 0x1p-40 : 0x1p-16; }

double ga_rounding_step(ga_dtype type) { return type == GA_BF16 ? 0x1p-7 : type == GA_F16 ? 0x1p-10 : 0; }

/* Ends a child. */
static void end(ga_comparison *c, const char *reason) {
    c->found->verdict = GA_ENDED;
    snprintf(c->found->reason, sizeof c->found->reason, "%s", reason);
    _exit(0);
}

/* Reads n bytes from the pipe. */
static void receive(ga_comparison *c, void *to, size_t n) {
    for (size_t done = 0; done < n;) {
        const ssize_t got = read(c->fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) end(c, "the child with the kernels in use has ended");
        done += (size_t)got;
    }
}

static void send(ga_comparison *c, const void *from, size_t n) {
    if (ga_write_all(c->fd, from, n)) _exit(0); /* nobody compares any more */
}

/* Memory for n bytes that come. */
static char *room(ga_comparison *c, size_t n) {
    if (n <= c->size) return c->room;
    if (c->room) munmap(c->room, c->size);
    c->room = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->room == MAP_FAILED) end(c, "no memory for the comparison");
    c->size = n;
    return c->room;
}

static double number(const void *values, ga_dtype type, int64_t i) {
    return type == GA_I32 ? ((const int32_t *)values)[i] : ga_get(values, type, i);
}

static double largest(const void *values, ga_dtype type, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs(number(values, type, i));
        if (isfinite(x) && x > most) most = x;
    }
    return most;
}

/* Notes element i of v; a lasting difference of rounding is noted over a smaller one. */
static void note(ga_comparison *c, const ga_compared *v, ga_verdict verdict, int64_t i, const double value[2],
                 double most) {
    ga_found *f = c->found;
    if (f->verdict == GA_ROUNDED && verdict == GA_ROUNDED &&
        fabs(value[1] - value[0]) / most <= fabs(f->after - f->before) / f->most)
        return;
    f->verdict = verdict;
    f->what = *v;
    f->element = i;
    f->before = value[0];
    f->after = value[1];
    f->most = most;
}

/* Compares n elements, the first of which is element `first` of v's tensor. */
static void examine(ga_comparison *c, const ga_compared *v, const void *before, const void *after, int64_t n,
                    int64_t first) {
    const bool exact = v->type == GA_I32;
    const double share = exact ? 0 : ga_rounding(c->real) * largest(before, v->type, n);
    bool rounded = false;
    for (int64_t i = 0; i < n; i++) {
        const double value[2] = {number(before, v->type, i), number(after, v->type, i)};
        if (value[0] == value[1] || (isnan(value[0]) && isnan(value[1]))) continue;
        const double most = share + ga_rounding_step(v->type) * fabs(value[0]);
        const bool differs = exact || !(isfinite(value[0]) && fabs(value[1] - value[0]) <= most);
        note(c, v, differs ? GA_DIFFERS : GA_ROUNDED, first + i, value, most);
        if (differs) _exit(0);
        rounded = true;
    }
    c->found->rounded += rounded;
}

static void see(ga_comparison *c, const ga_compared *v, int64_t first, int64_t n) {
    const size_t size = ga_dtype_bytes(v->type), bytes = (size_t)n * size;
    char *values = (char *)v->values + (size_t)first * size;
    const heading own = {.tensor = v->tensor, .n = n, .iteration = v->iteration, .type = v->type};
    if (!c->edited) {
        send(c, &own, sizeof own);
        send(c, values, bytes);
        return;
    }
    heading came;
    receive(c, &came, sizeof came);
    if (came.n != n || came.iteration != v->iteration || came.type != (int)v->type ||
        strcmp(came.tensor->name, v->tensor->name) != 0)
        end(c, "the calls of kernels are other ones: was step.c edited too?");
    char *before = room(c, bytes);
    receive(c, before, bytes);
    if (memcmp(before, values, bytes) == 0) return;
    examine(c, v, before, values, n, first);
    memcpy(values, before, bytes);
}

void ga_compare_skipped(ga_comparison *c) {
    if (c->edited) c->found->skipped = true;
}

void ga_compare_call(ga_comparison *c, const char *kernel) {
    if (c->edited) c->found->running = kernel;
}

void ga_compare_see(ga_comparison *c, const ga_compared *v) { see(c, v, 0, v->tensor->n); }

void ga_compare_element(ga_comparison *c, const ga_found *of, const char *kernel, const char *at) {
    ga_compared v = of->what;
    v.kernel = kernel;
    v.at = at;
    see(c, &v, of->element, 1);
}

/* The work of a child. */
static _Noreturn void work(const ga_comparing *job, ga_comparison *c) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}; /* the parent decides about these */
    for (int i = 0; i < 5; i++) signal(numbers[i], SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); /* where memory ends, a child does first */
    if (fd >= 0) ga_write_all(fd, "1000", 4);
    ga_err e = {0};
    if (job->run(job->arg, c, c->edited, &e) < 0 && c->edited) end(c, e.msg);
    _exit(0);
}

/* Waits for the child that compares. */
static int await(pid_t child, bool *stopped) {
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (ga_stop_requested() && !*stopped) {
            *stopped = true;
            kill(child, SIGKILL);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return status;
}

static void allow_copies(const ga_comparing *job, int advice) {
    for (int i = 0; i < job->arena_count; i++)
        if (job->arenas[i].base) madvise(job->arenas[i].base, job->arenas[i].bytes, advice);
}

/* Starts both children; no child is left if that fails. */
static int start(const ga_comparing *job, ga_found *found, pid_t children[2], ga_err *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return ga_fail(e, GA_ENVIRONMENT, "pipe: %s", strerror(errno));
    int code = 0;
    for (int edited = 0; edited < 2 && code == 0; edited++) {
        children[edited] = fork();
        if (children[edited] == 0) {
            close(ends[edited]);
            work(job, &(ga_comparison){.edited = edited, .fd = ends[!edited], .found = found, .real = job->real});
        }
        if (children[edited] < 0) code = ga_fail(e, GA_ENVIRONMENT, "fork: %s", strerror(errno));
    }
    close(ends[0]);
    close(ends[1]);
    if (code < 0 && children[0] > 0) {
        kill(children[0], SIGKILL);
        waitpid(children[0], NULL, 0);
    }
    return code;
}

int ga_compare(ga_found *out, const ga_comparing *job, ga_err *e) {
    ga_found *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) return ga_fail(e, GA_ENVIRONMENT, "no memory for a comparison: %s", strerror(errno));
    pid_t children[2] = {0};
    bool stopped = false;
    *found = (ga_found){.verdict = GA_EQUAL};
    allow_copies(job, MADV_DOFORK);
    const int code = start(job, found, children, e);
    allow_copies(job, MADV_DONTFORK);
    if (code == 0) {
        const int status = await(children[1], &stopped);
        kill(children[0], SIGKILL);
        while (waitpid(children[0], NULL, 0) < 0 && errno == EINTR) {}
        if (stopped) {
            found->verdict = GA_ENDED;
            snprintf(found->reason, sizeof found->reason, "the run was asked to stop");
        } else if (WIFSIGNALED(status)) {
            found->verdict = GA_ENDED;
            snprintf(found->reason, sizeof found->reason, "%s in %s", strsignal(WTERMSIG(status)),
                     found->running ? found->running : "the first kernel");
        } else if (WEXITSTATUS(status) != 0) {
            found->verdict = GA_ENDED;
            snprintf(found->reason, sizeof found->reason, "exit %d in %s", WEXITSTATUS(status),
                     found->running ? found->running : "the first kernel");
        }
    }
    *out = *found;
    munmap(found, sizeof *found);
    return code;
}

char *ga_found_place(const ga_found *f, char *out) {
    const ga_param *p = f->what.tensor;
    ga_text t = {.base = out, .size = GA_NAME_MAX + 128};
    char name[GA_NAME_MAX];
    ga_text_add(&t, "%s[", ga_param_name(p, f->what.iteration, f->what.suffix, name));
    int64_t rest = f->element, below = p->n;
    for (int i = 0; i < p->rank; i++) {
        below /= p->shape[i];
        ga_text_add(&t, "%s%lld", i ? ", " : "", (long long)(rest / below));
        rest %= below;
    }
    ga_text_add(&t, "]");
    return out;
}
