/* state_file.c: see state_file.h. Jobs are done in the order in which they were asked for; so a window is written
 * before another segment is read into it. */
#define _GNU_SOURCE /* O_TMPFILE */
#include "files/state_file.h"

#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { JOBS = 8, PATH = 512, NONE = -1 };

/* Elements from `at` on of each array. */
typedef struct elements {
    int64_t at, n;
} elements;

typedef struct job {
    int segment;
    unsigned arrays; /* their bits */
    bool writes;
} job;

/* The rest of one array. */
typedef struct rest {
    ga_rest rest;
    ga_state_file *file;
    int index;
    char *windows;
} rest;

struct ga_state_file {
    ga_state_config c;
    int fd; /* -1: there is no file */
    int64_t held, filed; /* elements of each array in memory, in the file */
    rest rests[GA_STATE_ARRAYS];
    elements *segments;
    int count;
    int present, ahead; /* segments of the sweep: in use, on its way; NONE: there is none */
    unsigned arrays;    /* that the sweep goes over: their bits */
    uint64_t arrives;   /* the number of the job that brings `ahead` */
    ga_state_counts counts;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    bool closing;
    job jobs[JOBS];
    uint64_t asked, done; /* jobs so far */
    int code;             /* of the first that failed, with its error */
    ga_err error;
};

/* === the file ============================================================================================== */

/* Offset in the file of element `at` of array i. */
static int64_t offset_of(const ga_state_file *f, int i, int64_t at) {
    return (i * f->filed + at - f->held) * (int64_t)f->c.size;
}

static int read_run(ga_state_file *f, int i, int64_t at, int64_t n, void *to, ga_err *e) {
    const int64_t bytes = n * (int64_t)f->c.size, from = offset_of(f, i, at);
    const int64_t got = ga_file_read(f->fd, to, bytes, from);
    f->counts.read += got > 0 ? got : 0;
    if (got == bytes) return GA_OK;
    if (got < 0)
        return ga_fail(e, GA_ENVIRONMENT, "%.300s: the file of the optimizer's state: reading %lld bytes at byte %lld "
                       "failed: %s", f->c.folder, (long long)bytes, (long long)from, strerror(errno));
    return ga_fail(e, GA_ENVIRONMENT, "%.300s: the file of the optimizer's state: %lld of %lld bytes are there at byte "
                   "%lld", f->c.folder, (long long)got, (long long)bytes, (long long)from);
}

static int write_run(ga_state_file *f, int i, int64_t at, int64_t n, const void *values, ga_err *e) {
    const int64_t bytes = n * (int64_t)f->c.size, to = offset_of(f, i, at);
    const int failed = ga_file_write(f->fd, values, bytes, to);
    if (failed == 0) {
        f->counts.written += bytes;
        return GA_OK;
    }
    return ga_fail(e, GA_ENVIRONMENT, "%.300s: the file of the optimizer's state: writing %lld bytes at byte %lld "
                   "failed: %s", f->c.folder, (long long)bytes, (long long)to, strerror(failed));
}

static int read_rest(const ga_rest *r, int64_t at, int64_t n, void *to, ga_err *e) {
    const rest *own = (const rest *)r;
    return read_run(own->file, own->index, at, n, to, e);
}

static int write_rest(const ga_rest *r, int64_t at, int64_t n, const void *values, ga_err *e) {
    const rest *own = (const rest *)r;
    return write_run(own->file, own->index, at, n, values, e);
}

/* A file that has no name from the beginning, or else none as soon as it is open. */
static int open_unnamed(const char *folder) {
    char path[PATH];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    if (snprintf(path, sizeof path, "%s/.state-XXXXXX", folder) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

static int reserve(const ga_state_file *f, ga_err *e) {
    const int64_t bytes = f->counts.bytes;
    struct statvfs v = {0};
    int failed;
    fstatvfs(f->fd, &v);
    do failed = posix_fallocate(f->fd, 0, bytes);
    while (failed == EINTR);
    if (failed == 0) return GA_OK;
    return ga_fail(e, GA_ENVIRONMENT, "parallel.nvme: %.300s: no room for the file of the optimizer's state: %lld "
                   "bytes are needed, %lld are free (%s): free some, or name another folder or a smaller fraction",
                   f->c.folder, (long long)bytes, (long long)v.f_bavail * (long long)v.f_frsize, strerror(failed));
}

static int open_file(ga_state_file *f, ga_err *e) {
    f->fd = open_unnamed(f->c.folder);
    if (f->fd < 0)
        return ga_fail(e, ga_file_status(), "parallel.nvme: %.300s: no file for the optimizer's state can be made in "
                       "this folder: %s", f->c.folder, strerror(errno));
    return reserve(f, e);
}

/* === the thread ============================================================================================ */

static char *window_of(const ga_state_file *f, int i, int segment) {
    return f->rests[i].windows + segment % GA_STATE_WINDOWS * f->c.window * (int64_t)f->c.size;
}

static int work_on(ga_state_file *f, job j, ga_err *e) {
    const elements s = f->segments[j.segment];
    for (int i = 0; i < f->c.arrays; i++) {
        if (!(j.arrays >> i & 1)) continue;
        char *window = window_of(f, i, j.segment);
        GA_TRY(j.writes ? write_run(f, i, s.at, s.n, window, e) : read_run(f, i, s.at, s.n, window, e));
    }
    return GA_OK;
}

/* Does one job after another; behind one that fails, none. */
static void *serve(void *arg) {
    ga_state_file *f = arg;
    ga_err e;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->done == f->asked && !f->closing) pthread_cond_wait(&f->changed, &f->lock);
        if (f->done == f->asked) break;
        if (f->code == GA_OK) {
            const job j = f->jobs[f->done % JOBS];
            pthread_mutex_unlock(&f->lock);
            const int code = work_on(f, j, &e);
            pthread_mutex_lock(&f->lock);
            if (code < 0) f->code = code, f->error = e;
        }
        f->done++;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int start_thread(ga_state_file *f, ga_err *e) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&f->thread, NULL, serve, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return ga_fail(e, GA_ENVIRONMENT, "the thread for the optimizer's state: %s", strerror(failed));
    f->threaded = true;
    return GA_OK;
}

/* Returns the number of the job: done has it when the job is done. */
static uint64_t ask(ga_state_file *f, int segment, bool writes) {
    pthread_mutex_lock(&f->lock);
    while (f->asked - f->done == JOBS) pthread_cond_wait(&f->changed, &f->lock);
    f->jobs[f->asked % JOBS] = (job){segment, f->arrays, writes};
    const uint64_t number = ++f->asked;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return number;
}

static int wait_for(ga_state_file *f, uint64_t number, ga_err *e) {
    pthread_mutex_lock(&f->lock);
    while (f->done < number) pthread_cond_wait(&f->changed, &f->lock);
    const int code = f->code;
    if (code < 0) *e = f->error;
    pthread_mutex_unlock(&f->lock);
    return code;
}

/* === sweeps ================================================================================================ */

/* Lets the segment in use be written. */
static void leave(ga_state_file *f) {
    if (f->present != NONE) ask(f, f->present, true);
    f->present = NONE;
}

static void read_ahead(ga_state_file *f, int segment) {
    f->arrives = ask(f, segment, false);
    f->ahead = segment;
}

int ga_state_file_need(ga_state_file *f, int segment, unsigned arrays, ga_err *e) {
    if (f->ahead != segment) { /* the first of a sweep */
        leave(f);
        f->arrays = arrays;
        read_ahead(f, segment);
    }
    const uint64_t arrives = f->arrives;
    f->ahead = NONE;
    if (segment + 1 < f->count) read_ahead(f, segment + 1);
    leave(f);
    f->present = segment;
    return wait_for(f, arrives, e);
}

int ga_state_file_finish(ga_state_file *f, ga_err *e) {
    leave(f);
    f->ahead = NONE;
    return wait_for(f, f->asked, e);
}

ga_state_part ga_state_file_part(const ga_state_file *f, int i) {
    if (f->present == NONE) return (ga_state_part){NULL, 0};
    return (ga_state_part){window_of(f, i, f->present), f->c.size * (size_t)f->segments[f->present].n};
}

ga_state_counts ga_state_file_counted(const ga_state_file *f) {
    return f ? f->counts : (ga_state_counts){0};
}

int64_t ga_state_file_run(const ga_state_file *f, int64_t at, int64_t n) {
    const int64_t most = at < f->held ? f->held - at : f->c.window;
    return n < most ? n : most;
}

int ga_state_file_add(ga_state_file *f, int64_t at, int64_t n, int64_t *memory) {
    *memory = at;
    if (at < f->held) return NONE;
    *memory = f->held + f->count % f->c.places * f->c.window;
    f->segments[f->count] = (elements){at, n};
    return f->count++;
}

/* === opening =============================================================================================== */

int64_t ga_state_file_held(const ga_state_file *f) {
    return f->held;
}

int64_t ga_state_file_window(const ga_state_file *f) {
    return f->c.window;
}

const ga_rest *ga_state_file_array(ga_state_file *f, int i, void *windows) {
    f->rests[i] = (rest){{f->held, read_rest, write_rest}, f, i, windows};
    return &f->rests[i].rest;
}

int ga_state_file_open(ga_state_file **out, const ga_state_config *config, ga_err *e) {
    ga_state_file *f = *out = calloc(1, sizeof *f);
    if (!f) return ga_fail(e, GA_ENVIRONMENT, "no memory for the file of the optimizer's state");
    f->c = *config;
    f->fd = f->present = f->ahead = NONE;
    f->held = (int64_t)((double)config->elements * (1 - config->fraction)) / GA_CUT * GA_CUT;
    f->filed = config->elements - f->held;
    f->counts.bytes = f->c.arrays * f->filed * (int64_t)f->c.size;
    if (f->c.window > f->filed) f->c.window = (f->filed + GA_CUT - 1) / GA_CUT * GA_CUT;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (f->filed == 0) return GA_OK;
    f->segments = malloc(sizeof(elements) * (size_t)config->segments);
    if (!f->segments)
        return ga_fail(e, GA_ENVIRONMENT, "no memory for a table of %d segments of the state", config->segments);
    GA_TRY(open_file(f, e));
    return start_thread(f, e);
}

void ga_state_file_close(ga_state_file *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (f->threaded) pthread_join(f->thread, NULL);
    if (f->fd >= 0) close(f->fd);
    free(f->segments);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}
