/* process.c: see process.h. */
#define _GNU_SOURCE
#include "process.h"
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_MAX = 64 << 20 };

typedef struct {
    int fd; /* -1: closed or not captured */
    char *text;
    size_t size, room;
} stream;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Signals while a command runs in this process's own group. SIGINT from the terminal reaches the
 * command too, so it is ignored here; a signal sent to this process alone is forwarded. */
static volatile pid_t running;

static void forward_signal(int number) {
    if (running > 0) kill(running, number);
}

enum { SIGNALS = 4 };
static const int signals[SIGNALS] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP };

static void wait_quietly(struct sigaction before[SIGNALS], pid_t child) {
    running = child;
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction action = { .sa_handler = i < 2 ? SIG_IGN : forward_signal, .sa_flags = SA_RESTART };
        sigemptyset(&action.sa_mask);
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler == SIG_DFL) sigaction(signals[i], &action, NULL);
    }
}

static void end_quiet(const struct sigaction before[SIGNALS]) {
    for (int i = 0; i < SIGNALS; i++) sigaction(signals[i], &before[i], NULL);
    running = 0;
}

/* Reads the available bytes; closes the stream at its end. */
static int take(stream *s) {
    if (s->room - s->size < 65536) {
        size_t room = s->room ? 2 * s->room : 131072;
        char *text = realloc(s->text, room);
        if (!text) return ENOMEM;
        s->text = text;
        s->room = room;
    }
    ssize_t n = read(s->fd, s->text + s->size, 65535);
    if (n < 0 && errno == EINTR) return 0;
    if (n > 0 && s->size < KEPT_MAX) s->size += (size_t)n;
    if (n <= 0) {
        close(s->fd);
        s->fd = -1;
    }
    s->text[s->size] = '\0';
    return 0;
}

/* Reads both streams to their end; 1 if the deadline comes first (0: no deadline). */
static int collect(stream s[2], double deadline) {
    while (s[0].fd >= 0 || s[1].fd >= 0) {
        struct pollfd p[2] = { { s[0].fd, POLLIN, 0 }, { s[1].fd, POLLIN, 0 } };
        double left = deadline > 0 ? deadline - now() : 1;
        if (left <= 0) return 1;
        if (poll(p, 2, deadline > 0 ? (int)(left * 1000) + 1 : -1) < 0 && errno != EINTR) return 1;
        for (int i = 0; i < 2; i++) {
            if (s[i].fd >= 0 && p[i].revents && take(&s[i]) != 0) return 1;
        }
    }
    return 0;
}

static double seconds(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Waits for the process; kills its group at the deadline (0: no deadline). Sets status, timed_out,
 * cpu_seconds, peak_bytes. */
static void await(pid_t child, double deadline, ga_outcome *o) {
    int status = 0;
    struct rusage used = { 0 };
    for (;;) {
        pid_t done = wait4(child, &status, deadline > 0 && !o->timed_out ? WNOHANG : 0, &used);
        if (done == child || (done < 0 && errno != EINTR)) break;
        if (done != 0) continue;
        if (now() >= deadline) {
            kill(-child, SIGKILL);
            o->timed_out = 1;
        } else {
            nanosleep(&(struct timespec){ 0, 2000000 }, NULL);
        }
    }
    o->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    o->cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    o->peak_bytes = 1024.0 * (double)used.ru_maxrss;
}

static void close_pair(int ends[2]) {
    if (ends[0] >= 0) close(ends[0]);
    if (ends[1] >= 0) close(ends[1]);
    ends[0] = ends[1] = -1;
}

/* Sets output, folder, signals and group of the new process; 0 or an errno value. */
static int describe(const ga_command *c, int out, int err, posix_spawn_file_actions_t *actions,
                    posix_spawnattr_t *how) {
    sigset_t none, usual;
    int failed = 0;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGXFSZ); /* gagen ignores it */
    if (out >= 0) failed = posix_spawn_file_actions_adddup2(actions, out, 1);
    if (!failed && err >= 0) failed = posix_spawn_file_actions_adddup2(actions, err, 2);
    if (!failed && c->cwd) failed = posix_spawn_file_actions_addchdir_np(actions, c->cwd);
    if (!failed) failed = posix_spawnattr_setsigmask(how, &none);
    if (!failed) failed = posix_spawnattr_setsigdefault(how, &usual);
    if (failed) return failed;
    return posix_spawnattr_setflags(how, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
                                                 | (c->seconds > 0 ? POSIX_SPAWN_SETPGROUP : 0)));
}

/* Starts the command; -1, and *failed becomes an errno value, if it cannot be started. */
static pid_t launch(const ga_command *c, int out, int err, int *failed) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t how;
    pid_t child = -1;
    if ((*failed = posix_spawn_file_actions_init(&actions)) != 0) return -1;
    if ((*failed = posix_spawnattr_init(&how)) == 0) {
        *failed = describe(c, out, err, &actions, &how);
        if (!*failed)
            *failed = posix_spawnp(&child, c->argv[0], &actions, &how, c->argv,
                                   c->environment ? c->environment : environ);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&actions);
    return *failed ? -1 : child;
}

int ga_command_run(const ga_command *c, ga_outcome *o) {
    int out[2] = { -1, -1 }, err[2] = { -1, -1 }, failed;
    *o = (ga_outcome){ 0 };
    if ((c->capture && pipe2(out, O_CLOEXEC) != 0)
        || (c->capture == 1 && pipe2(err, O_CLOEXEC) != 0)) {
        failed = errno;
        close_pair(out);
        return failed;
    }
    const double deadline = c->seconds > 0 ? now() + c->seconds : 0;
    pid_t child = launch(c, out[1], c->capture == 2 ? out[1] : err[1], &failed);
    if (out[1] >= 0) close(out[1]);
    if (err[1] >= 0) close(err[1]);
    stream s[2] = { { .fd = out[0] }, { .fd = err[0] } };
    struct sigaction before[SIGNALS];
    if (child > 0) {
        if (c->seconds == 0) wait_quietly(before, child);
        if (collect(s, deadline) && deadline > 0) {
            kill(-child, SIGKILL);
            o->timed_out = 1;
        }
        await(child, deadline, o);
        if (c->seconds == 0) end_quiet(before);
    }
    for (int i = 0; i < 2; i++) {
        if (s[i].fd >= 0) close(s[i].fd);
    }
    o->out = s[0].text;
    o->out_size = s[0].size;
    o->err = s[1].text;
    o->err_size = s[1].size;
    return child > 0 ? 0 : failed;
}

void ga_outcome_free(ga_outcome *o) {
    free(o->out);
    free(o->err);
    o->out = o->err = NULL;
}

/* host.run { argv..., cwd=, quiet= } */
int ga_process_host(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    luaL_argcheck(L, n > 0, 1, "no program");
    ga_command c = { 0 };
    c.argv = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof *c.argv, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        if (lua_rawgeti(L, 1, i) != LUA_TSTRING)
            return luaL_argerror(L, 1, "an argument that is no string");
        c.argv[i - 1] = (char *)lua_tostring(L, -1);
        lua_pop(L, 1);
    }
    c.argv[n] = NULL;
    lua_getfield(L, 1, "cwd");
    c.cwd = lua_tostring(L, -1);
    lua_getfield(L, 1, "quiet");
    c.capture = lua_toboolean(L, -1) ? 2 : 0;
    ga_outcome o;
    fflush(stdout);
    int failed = ga_command_run(&c, &o);
    if (failed) return ga_host_refuse(L, "%s: %s", c.argv[0], strerror(failed));
    lua_pushinteger(L, o.status);
    if (c.capture) lua_pushlstring(L, o.out ? o.out : "", o.out_size);
    ga_outcome_free(&o);
    return c.capture ? 2 : 1;
}
