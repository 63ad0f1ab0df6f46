/* together.c: runs the processes of one job together: the ranks of a program, or a launcher that starts them. A request
 * to stop reaches each of them as SIGUSR1, a failure of one ends the others, and all end with this process. */
#define _GNU_SOURCE
#include "host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256, WORDS = 1024, STOPPED = 75, GRACE = 5 /* seconds from a failure to the end of the others */ };

typedef struct {
    pid_t process[MOST]; /* 0: ended */
    int count, running;
    const char *below;   /* name of the ranks below a launcher; NULL: the processes are the ranks themselves */
    int most_below;      /* ranks that were seen at once */
    int ending;          /* signal that ends a process at once */
    int status;          /* of the first failure, else 75 after a stop, else 0 */
    int requests;        /* to stop */
    bool ended;          /* by this process */
    double due;          /* when those that are left are ended; 0: never */
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether the process has the name and is no zombie. The system keeps 15 bytes of a name. */
static bool is_named(pid_t process, const char *name) {
    char path[64], found[16] = "", state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *f = fopen(path, "re");
    if (f && fscanf(f, "%*d (%15[^)]) %c", found, &state) != 2) state = 'Z';
    if (f) fclose(f);
    return state != 'Z' && strncmp(found, name, 15) == 0;
}

/* Sends a signal, or nothing if it is 0, to all processes of this name below `parent`; returns their number. */
static int signal_below(pid_t parent, const char *name, int number) {
    char pattern[64];
    glob_t threads = {0};
    int count = 0, child;
    snprintf(pattern, sizeof pattern, "/proc/%d/task/*/children", (int)parent);
    glob(pattern, 0, NULL, &threads);
    for (size_t i = 0; i < threads.gl_pathc; i++) {
        FILE *f = fopen(threads.gl_pathv[i], "re");
        while (f && fscanf(f, "%d", &child) == 1) {
            const bool named = is_named(child, name);
            if (named) kill(child, number);
            count += named ? 1 : signal_below(child, name, number);
        }
        if (f) fclose(f);
    }
    globfree(&threads);
    return count;
}

static void signal_all(const job *j, int number) {
    for (int i = 0; i < j->count; i++)
        if (j->process[i]) kill(j->process[i], number);
}

/* Becomes the command at the top of the stack: { argv..., set = { "NAME=VALUE", ... } }. A process group
 * of its own keeps Ctrl-C of a terminal away: request() hands it on. */
static void become(lua_State *L, pid_t parent, int ending) {
    static char *argv[WORDS];
    sigset_t none;
    const int n = (int)lua_rawlen(L, -1), nothing = open("/dev/null", O_RDONLY);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -1 - i, i + 1);
        argv[i] = (char *)lua_tostring(L, -1);
    }
    lua_getfield(L, -1 - n, "set");
    for (int i = 1; lua_istable(L, -1) && lua_rawgeti(L, -1, i) == LUA_TSTRING; i++) {
        putenv((char *)lua_tostring(L, -1));
        lua_pop(L, 1);
    }
    setpgid(0, 0);
    dup2(nothing, 0);
    prctl(PR_SET_PDEATHSIG, ending);
    if (getppid() != parent) _exit(GA_EXIT_ENVIRONMENT);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGXFSZ, SIG_DFL); /* gagen ignores it */
    execvp(argv[0], argv);
    fprintf(stderr, "%s: cannot be started: %s\n", argv[0], strerror(errno));
    _exit(GA_EXIT_ENVIRONMENT);
}

/* Starts the commands of the list at index 1; 0, or an errno value. */
static int start(lua_State *L, job *j) {
    const pid_t parent = getpid();
    for (int i = 0; i < (int)lua_rawlen(L, 1); i++) {
        lua_rawgeti(L, 1, i + 1);
        if (lua_rawlen(L, -1) >= WORDS) return E2BIG;
        const pid_t process = fork();
        if (process == 0) become(L, parent, j->ending);
        lua_pop(L, 1);
        if (process < 0) return errno;
        j->process[j->count++] = process;
        j->running++;
    }
    return 0;
}

static void reap(job *j) {
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
        const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        for (int i = 0; i < j->count; i++) {
            if (j->process[i] != ended) continue;
            j->process[i] = 0;
            j->running--;
            if (code && (!j->status || j->status == STOPPED)) j->status = code;
            if (code && code != STOPPED && !j->due) j->due = now() + GRACE;
        }
    }
}

/* A rank below a launcher that is gone ends the launcher, if that does not do so itself. */
static void watch_below(job *j) {
    const int alive = signal_below(getpid(), j->below, 0);
    if (alive > j->most_below) j->most_below = alive;
    if (alive < j->most_below && !j->due) j->due = now() + GRACE;
}

/* The first request asks for a checkpoint; a second SIGINT ends the job at once, as it ends a program. Not every
 * launcher hands a signal on, so ranks on this host get it from here, too: a request that comes twice is one. */
static void request(job *j, int number) {
    if (j->requests++ == 0) {
        signal_all(j, SIGUSR1);
        if (j->below) signal_below(getpid(), j->below, SIGUSR1);
    } else if (number == SIGINT) {
        j->due = now();
    }
}

static void end(job *j) {
    signal_all(j, j->ending);
    j->ending = SIGKILL;
    j->ended = true;
    j->due = now() + GRACE;
}

static void supervise(job *j, const sigset_t *awaited) {
    while (j->running > 0) {
        const int got = sigtimedwait(awaited, NULL, &(struct timespec){.tv_nsec = 250000000});
        if (got > 0 && got != SIGCHLD) request(j, got);
        reap(j);
        if (j->below) watch_below(j);
        if (j->due && now() >= j->due) end(j);
    }
    while (j->below && signal_below(getpid(), j->below, SIGKILL) > 0) { /* those that a launcher has left */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        reap(j);
    }
    if (j->ended && j->requests > 1) j->status = 128 + SIGINT;
    else if (j->ended && j->below) j->status = GA_EXIT_ENVIRONMENT;
}

/* The signals that are waited for; a SIGHUP that this process ignores, as under nohup, is no request. */
static void await_requests(sigset_t *awaited) {
    static const int numbers[] = { SIGCHLD, SIGINT, SIGTERM, SIGHUP };
    struct sigaction hangup;
    sigaction(SIGHUP, NULL, &hangup);
    sigemptyset(awaited);
    for (int i = 0; i < (hangup.sa_handler == SIG_IGN ? 3 : 4); i++) sigaddset(awaited, numbers[i]);
}

/* host.together { { argv..., set = }, ..., below = } */
int ga_together(lua_State *L) {
    job j = {0};
    sigset_t awaited, before;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argcheck(L, lua_rawlen(L, 1) >= 1 && lua_rawlen(L, 1) <= MOST, 1, "a number of commands from 1 to 256");
    luaL_checkstack(L, WORDS + 8, NULL);
    lua_getfield(L, 1, "below");
    j.below = lua_tostring(L, -1);
    j.ending = j.below ? SIGTERM : SIGKILL; /* to a rank SIGTERM is a request */
    fflush(stdout);
    await_requests(&awaited);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int failed = start(L, &j);
    if (failed) end(&j);
    supervise(&j, &awaited);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (failed) return ga_host_refuse(L, "%s", strerror(failed));
    lua_pushinteger(L, j.status);
    lua_pushboolean(L, j.requests > 0);
    return 2;
}

int ga_free_port(lua_State *L) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    const int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int found = s >= 0 && bind(s, (struct sockaddr *)&at, size) == 0
        && getsockname(s, (struct sockaddr *)&at, &size) == 0;
    const int failed = errno;
    if (s >= 0) close(s);
    if (!found) return ga_host_refuse(L, "no free port: %s", strerror(failed));
    lua_pushinteger(L, ntohs(at.sin_port));
    return 1;
}
