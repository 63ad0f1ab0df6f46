/* run.c: see run.h. Locks are POSIX record locks, since these tell who holds them; they end with the process. */
#include "log/run.h"

#include "base/text.h"
#include "files/file.h"
#include "files/folder.h"
#include "log/run_record.h"
#include "loop/stop.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PATH = GA_PATH_MAX + 64, LAST_NUMBER = 999999999, LONGEST = 800 /* path of a program's folder */,
    PAUSES = 50 /* of 20 ms, until a wait is spoken of */ };

/* FOLDER/NAME; ga_run_open and ga_run_find have seen to it that both are short enough. */
static void join(char out[PATH], const char *folder, const char *name) {
    snprintf(out, PATH, "%.*s/%s", LONGEST + 100, folder, name);
}

static int check_length(const char *program_folder, ga_err *e) {
    if (strlen(program_folder) <= LONGEST) return GA_OK;
    return ga_fail(e, GA_INPUT, "%.64s...: the path has %zu bytes, expected at most %d: runs lie in this folder",
                   program_folder, strlen(program_folder), LONGEST);
}

/* -- locks */

/* Takes the lock of the open file `fd` as `kind`. GA_INPUT if a process holds it: the message names that one. */
static int take_lock(int fd, short kind, const char *what, const char *advice, ga_err *e) {
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET};
    if (fcntl(fd, F_SETLK, &lock) == 0) return GA_OK;
    if (errno != EAGAIN && errno != EACCES)
        return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be locked: %s", what, strerror(errno));
    lock = (struct flock){.l_type = kind, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0)
        return ga_fail(e, GA_INPUT, "%s is in use: %s", what, advice);
    return ga_fail(e, GA_INPUT, "%s is in use by process %ld: %s", what, (long)lock.l_pid, advice);
}

int ga_run_use(const char *program_folder, ga_err *e) {
    char path[PATH];
    join(path, program_folder, ".lock");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return GA_OK;
    for (int pauses = 0;; pauses++) {
        const int code = take_lock(fd, F_RDLCK, program_folder, "gagen writes its files", e);
        if (code != GA_INPUT || ga_stop_requested()) return code;
        if (pauses == PAUSES) ga_say("%s; this start waits", e->msg);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

/* -- finding a checkpoint */

typedef struct {
    const char *runs; /* folder of the runs */
    char name[GA_RUN_NAME], started[32]; /* the newest so far; "": none */
    bool bounded; /* only runs before the bound count */
    char bound_name[GA_RUN_NAME], bound_started[32];
} newest;

/* Whether a run is older than another; of two of the same moment the name decides. */
static bool older(const char *started, const char *name, const char *other_started, const char *other_name) {
    const int by_time = strcmp(started, other_started);
    return by_time ? by_time < 0 : strcmp(name, other_name) < 0;
}

static int consider(void *arg, const char *name) {
    newest *n = arg;
    char folder[PATH], started[32];
    struct stat st;
    if (!isalnum((unsigned char)name[0]) || strlen(name) >= GA_RUN_NAME || strcmp(name, "latest") == 0) return GA_OK;
    join(folder, n->runs, name);
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode)) return GA_OK;
    ga_run_record_started(folder, started);
    if (n->bounded && !older(started, name, n->bound_started, n->bound_name)) return GA_OK;
    if (*n->name && older(started, name, n->started, n->name)) return GA_OK;
    snprintf(n->name, sizeof n->name, "%s", name);
    memcpy(n->started, started, sizeof started);
    return GA_OK;
}

/* The newest run before the one that n names, or of all if it names none; false if there is none. */
static bool next_older(newest *n) {
    n->bounded = *n->name != 0;
    memcpy(n->bound_name, n->name, sizeof n->name);
    memcpy(n->bound_started, n->started, sizeof n->started);
    *n->name = 0;
    const int fd = open(n->runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    ga_folder_each(fd, consider, n);
    close(fd);
    return *n->name != 0;
}

/* Finds a checkpoint in a folder: ga_ckpt_find_newest or ga_ckpt_find_best. */
typedef int finder(const char *folder, char *path, ga_err *e);

/* The checkpoint of a run that `find` takes; a run without the folder has none. */
static int find_in_run(const char *runs, const char *name, finder *find, char *path, ga_err *e) {
    char run[PATH], folder[PATH];
    struct stat st;
    join(run, runs, name);
    join(folder, run, "checkpoints");
    if (stat(folder, &st) != 0) return ga_fail(e, GA_INPUT, "%s: has no checkpoint yet", run);
    return find(folder, path, e);
}

/* That of the newest run that has one. asked: the option, for messages. */
static int find_in_runs(const char *runs, finder *find, const char *asked, char *path, ga_err *e) {
    newest n = {.runs = runs};
    int seen = 0;
    for (; next_older(&n); seen++) {
        const int code = find_in_run(runs, n.name, find, path, e);
        if (code != GA_INPUT) return code;
    }
    if (seen == 0) return ga_fail(e, GA_INPUT, "%s: %s has no run yet", asked, runs);
    return ga_fail(e, GA_INPUT, "%s: no run in %s has a whole checkpoint", asked, runs);
}

static bool is_run(const char *runs, const char *what) {
    char folder[PATH];
    struct stat st;
    if (strchr(what, '/') || strlen(what) >= GA_RUN_NAME) return false;
    join(folder, runs, what);
    return stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
}

static int find_on_rank_0(const char *program_folder, const char *folder, const char *what, char *path, ga_err *e) {
    char runs[PATH];
    join(runs, program_folder, "runs");
    if (!what)
        return folder ? ga_ckpt_find_best(folder, path, e)
            : find_in_runs(runs, ga_ckpt_find_best, "the best checkpoint", path, e);
    if (strcmp(what, "latest") == 0)
        return folder ? ga_ckpt_find_newest(folder, path, e)
            : find_in_runs(runs, ga_ckpt_find_newest, "--resume latest", path, e);
    if (is_run(runs, what)) return find_in_run(runs, what, ga_ckpt_find_newest, path, e);
    struct stat st;
    if (!strchr(what, '/') && stat(what, &st) != 0)
        return ga_fail(e, GA_INPUT, "--resume %.200s: is neither a run in %.200s nor a checkpoint here", what, runs);
    return ga_ckpt_find_path(what, path, e);
}

int ga_run_find(const char *program_folder, const char *folder, const char *what, ga_comm *comm, char *path,
                ga_err *e) {
    char found[GA_PATH_MAX] = ""; /* `what` may lie in path */
    const int code = ga_comm_rank(comm) == 0 ? find_on_rank_0(program_folder, folder, what, found, e) : GA_OK;
    GA_TRY(ga_comm_agree(comm, code, e));
    memcpy(path, found, sizeof found);
    return ga_comm_broadcast(comm, path, GA_PATH_MAX, 0, e);
}

/* -- the folder of a run */

static void set_folder(ga_run *r, const char *runs) {
    snprintf(r->folder, sizeof r->folder, "%.*s/%s", LONGEST + 100, runs, r->name);
}

static int check_name(const char *name, ga_err *e) {
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || (n > 0 && name[n] && strchr("._-", name[n]))) n++;
    if (n > 0 && n < GA_RUN_NAME && !name[n] && strcmp(name, "latest") != 0) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "--run: '%.80s' found, expected a name of 1 to %d letters, digits, '.', '_' and '-' that begins "
                   "with a letter or digit, and not 'latest'", name, GA_RUN_NAME - 1);
}

static int highest(void *arg, const char *name) {
    char *end;
    const long number = strtol(name, &end, 10);
    if (isdigit((unsigned char)*name) && !*end && number > *(long *)arg && number < LAST_NUMBER) *(long *)arg = number;
    return GA_OK;
}

/* Makes the folder of the next number; another start may take a number at the same time. */
static int make_numbered(ga_run *r, const char *runs, ga_err *e) {
    long number = 0;
    const int fd = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        ga_folder_each(fd, highest, &number);
        close(fd);
    }
    int made;
    do {
        snprintf(r->name, sizeof r->name, "%03ld", ++number);
        set_folder(r, runs);
        made = mkdir(r->folder, 0777);
    } while (made != 0 && errno == EEXIST);
    return made == 0 ? GA_OK
        : ga_fail(e, ga_file_status(), "%s: cannot be made: %s", r->folder, strerror(errno));
}

static int make_named(ga_run *r, const char *runs, const char *name, ga_err *e) {
    GA_TRY(check_name(name, e));
    snprintf(r->name, sizeof r->name, "%s", name);
    set_folder(r, runs);
    if (mkdir(r->folder, 0777) == 0) return GA_OK;
    if (errno == EEXIST)
        return ga_fail(e, GA_INPUT, "--run %s: there is a run of this name; --resume %s goes on with it, another name "
                       "starts a new one", name, name);
    return ga_fail(e, ga_file_status(), "%s: cannot be made: %s", r->folder, strerror(errno));
}

static int lock_run(ga_run *r, ga_err *e) {
    char path[PATH];
    join(path, r->folder, ".lock");
    r->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (r->lock < 0) return ga_fail(e, ga_file_status(), "%s: %s", path, strerror(errno));
    return take_lock(r->lock, F_WRLCK, r->folder, "wait for it, or start without --resume for a run of its own", e);
}

/* Copies spec.lua of the program; a program without it is not gagen's own folder, and the run has none. */
static int copy_spec(const ga_run *r, const char *program_folder, ga_err *e) {
    char path[PATH], to[PATH], buffer[8192];
    int64_t n, done = 0;
    join(path, program_folder, "spec.lua");
    join(to, r->folder, "spec.lua");
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) return GA_OK;
    const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int failed = out < 0 ? errno : 0;
    while (!failed && (n = ga_file_read(from, buffer, sizeof buffer, done)) != 0) {
        failed = n < 0 ? errno : ga_write_all(out, buffer, (size_t)n);
        done += n;
    }
    close(from);
    if (out >= 0 && close(out) != 0 && !failed) failed = errno;
    return failed ? ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", to, strerror(failed)) : GA_OK;
}

/* The new folder is there after a power failure too. */
static int sync_folder(const char *path, ga_err *e) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int failed = fd < 0 ? errno : ga_folder_sync(fd);
    if (fd >= 0) close(fd);
    return failed ? ga_fail(e, GA_ENVIRONMENT, "%s: cannot be synced: %s", path, strerror(failed)) : GA_OK;
}

/* Makes the folder of the runs, or finds the run before in it. */
static int make_runs(const ga_run_start *s, newest *before, ga_err *e) {
    if (mkdir(before->runs, 0777) == 0) return s->options->checkpoint ? GA_OK : sync_folder(s->folder, e);
    if (errno != EEXIST) return ga_fail(e, ga_file_status(), "%s: cannot be made: %s", before->runs, strerror(errno));
    next_older(before);
    return GA_OK;
}

static int make_run(ga_run *r, const ga_run_start *s, ga_err *e) {
    char runs[PATH], folder[PATH];
    newest before = {.runs = runs};
    join(runs, s->folder, "runs");
    GA_TRY(make_runs(s, &before, e));
    join(folder, runs, before.name);
    GA_TRY(s->options->run ? make_named(r, runs, s->options->run, e) : make_numbered(r, runs, e));
    GA_TRY(lock_run(r, e));
    if (!s->options->checkpoint) GA_TRY(sync_folder(runs, e)); /* with checkpoints in it, it outlives power failures */
    GA_TRY(copy_spec(r, s->folder, e));
    return ga_run_record_new(r, s, *before.name ? folder : NULL, e);
}

/* -- going on with a run */

/* Whether the checkpoint lies in PROGRAM/runs/NAME/checkpoints; then name and folder are set. */
static bool belongs_to_run(ga_run *r, const ga_run_start *s) {
    char runs[PATH], *whole = realpath(s->resumed, NULL), *own = NULL;
    join(runs, s->folder, "runs");
    own = realpath(runs, NULL);
    bool belongs = false;
    if (whole && own && strncmp(whole, own, strlen(own)) == 0 && whole[strlen(own)] == '/') {
        const char *name = whole + strlen(own) + 1;
        const size_t n = strcspn(name, "/");
        belongs = n < GA_RUN_NAME && strncmp(name + n, "/checkpoints/", 13) == 0;
        if (belongs) {
            snprintf(r->name, sizeof r->name, "%.*s", (int)n, name);
            set_folder(r, runs);
        }
    }
    free(whole);
    free(own);
    return belongs;
}

/* The number behind "cycle" in a line of the log, or -1. */
static long long cycle_in(const char *line) {
    const char *at = strstr(line, "\"cycle\":");
    return at ? strtoll(at + 8, NULL, 10) : -1;
}

/* Leaves out the end of the log: from the first event of a later cycle on, or a line that was never finished. */
static int cut_log(const char *path, int64_t cycle, ga_err *e) {
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    ssize_t n;
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? GA_OK : ga_fail(e, ga_file_status(), "%s: %s", path, strerror(errno));
    while ((n = getline(&line, &room, f)) > 0 && line[n - 1] == '\n' && cycle_in(line) <= cycle) kept += n;
    free(line);
    fclose(f);
    return truncate(path, kept) == 0 ? GA_OK : ga_fail(e, ga_file_status(), "%s: %s", path, strerror(errno));
}

static int continue_run(ga_run *r, const ga_run_start *s, ga_err *e) {
    char log[PATH];
    if (s->options->run && strcmp(s->options->run, r->name) != 0)
        return ga_fail(e, GA_INPUT,
                       "--run %.80s: the checkpoint belongs to run %s, and that run goes on in its own folder: leave "
                       "--run out", s->options->run, r->name);
    GA_TRY(lock_run(r, e));
    join(log, r->folder, "log.jsonl");
    if (!s->options->log) GA_TRY(cut_log(log, s->cycle, e));
    return ga_run_record_resumed(r, s, e);
}

typedef struct {
    int64_t cycle;
    int r;
    bool later; /* than these */
} place;

static int compare_place(void *arg, const char *name) {
    place *p = arg;
    int64_t cycle;
    int r;
    if (ga_ckpt_name_parse(name, &cycle, &r) && (cycle > p->cycle || (cycle == p->cycle && r > p->r))) p->later = true;
    return GA_OK;
}

/* Whether the run has checkpoints behind the one that is resumed. */
static bool has_later(const ga_run *r, const ga_run_start *s) {
    char folder[PATH];
    place p = {s->cycle, s->r, false};
    join(folder, r->folder, "checkpoints");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    ga_folder_each(fd, compare_place, &p);
    close(fd);
    return p.later;
}

/* A run goes on from its newest whole checkpoint. An older one, named by its path, begins another run, since the later
 * ones are kept. */
static int open_on_rank_0(ga_run *r, const ga_run_start *s, ga_err *e) {
    const char *word = s->options->resume;
    char runs[PATH];
    join(runs, s->folder, "runs");
    const bool by_path = *s->resumed && strcmp(word, "latest") != 0 && !is_run(runs, word);
    r->continues = *s->resumed && !s->options->checkpoint && belongs_to_run(r, s) && !(by_path && has_later(r, s));
    return r->continues ? continue_run(r, s, e) : make_run(r, s, e);
}

int ga_run_open(ga_run *r, const ga_run_start *s, ga_comm *comm, ga_err *e) {
    const bool first = ga_comm_rank(comm) == 0;
    *r = (ga_run){.began = ga_clock()};
    if (s->options->save_init) return GA_OK;
    GA_TRY(check_length(s->folder, e));
    GA_TRY(ga_comm_agree(comm, first ? open_on_rank_0(r, s, e) : GA_OK, e));
    GA_TRY(ga_comm_broadcast(comm, r->name, sizeof r->name, 0, e));
    GA_TRY(ga_comm_broadcast(comm, r->folder, sizeof r->folder, 0, e));
    snprintf(r->checkpoints, sizeof r->checkpoints, "%.*s/checkpoints", LONGEST + 200, r->folder);
    snprintf(r->log, sizeof r->log, "%.*s/log.jsonl", LONGEST + 200, r->folder);
    return GA_OK;
}

/* The folder that a run's folder lies in. */
static void runs_of(const ga_run *r, char out[PATH]) {
    snprintf(out, PATH, "%.*s", (int)(strlen(r->folder) - strlen(r->name) - 1), r->folder);
}

void ga_run_begin(const ga_run *r, bool quiet) {
    char runs[PATH], link[PATH], temporary[PATH + 32];
    if (r->lock <= 0) return;
    runs_of(r, runs);
    join(link, runs, "latest");
    snprintf(temporary, sizeof temporary, "%s.%ld", link, (long)getpid());
    if (symlink(r->name, temporary) == 0 && rename(temporary, link) != 0) unlink(temporary);
    if (!quiet) ga_say("run %s: %s", r->name, r->folder);
}

void ga_run_close(ga_run *r, const ga_run_end *end) {
    ga_err e;
    if (r->lock <= 0) return;
    if (ga_run_record_end(r, end, &e) < 0) ga_say("%s", e.msg);
    close(r->lock);
    r->lock = 0;
}

void ga_run_drop(ga_run *r) {
    char runs[PATH];
    if (r->lock <= 0) return;
    close(r->lock);
    r->lock = 0;
    if (r->continues) return;
    const int own = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own >= 0) {
        ga_folder_remove(own, "checkpoints");
        close(own);
    }
    runs_of(r, runs);
    const int parent = open(runs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return;
    ga_folder_remove(parent, r->name);
    close(parent);
}
