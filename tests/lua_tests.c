/* lua_tests.c: see lua_tests.h. A test is loaded again for each of its runs, so that no test can
 * lean on what another has left behind. */
#define _GNU_SOURCE
#include "lua_tests.h"
#include "host.h"
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* Seconds of tests that one process takes at a time, and those of a test that has never run. */
static const double PIECE_SECONDS = 15, GUESSED_SECONDS = 2;

typedef struct {
    char *file; /* tests/lua/test_NAME.lua */
    char *name;
    lua_Integer entry; /* 0: the file itself could not be read, the test fails */
} lua_test;

/* Tests of one file, one after the other. */
typedef struct {
    lua_test *tests;
    size_t count;
    double seconds; /* expected */
} lua_piece;

static int take_strings(lua_State *L, char ***argv) {
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    *argv = lua_newuserdatauv(L, ((size_t)n + 1) * sizeof **argv, 0);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        const char *text = lua_tostring(L, -1);
        if (!text) return 0;
        (*argv)[i - 1] = (char *)text; /* the table keeps it */
        lua_pop(L, 1);
    }
    (*argv)[n] = NULL;
    return n > 0;
}

static bool is_set(const char *variable, const char *name) {
    const size_t length = strcspn(name, "=");
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

/* The environment of this process, changed by the words of the array at index -1: NAME=VALUE, or NAME to leave it
 * out. It belongs to Lua. */
static char **changed_environment(lua_State *L) {
    const size_t words = lua_rawlen(L, -1);
    size_t own = 0, n = 0;
    while (environ[own]) own++;
    char **list = lua_newuserdatauv(L, (own + words + 1) * sizeof *list, 0);
    memcpy(list, environ, own * sizeof *list);
    n = own;
    for (size_t k = 1; k <= words; k++) {
        size_t kept_so_far = 0;
        lua_rawgeti(L, -2, (lua_Integer)k);
        const char *word = luaL_checkstring(L, -1);
        for (size_t i = 0; i < n; i++) {
            if (!is_set(list[i], word)) list[kept_so_far++] = list[i];
        }
        n = kept_so_far;
        if (strchr(word, '=')) list[n++] = (char *)word; /* the table keeps it */
        lua_pop(L, 1);
    }
    list[n] = NULL;
    return list;
}

/* run { argv..., cwd =, timeout =, env = } */
static int native_run(lua_State *L) {
    ga_command c = { .capture = 1 };
    ga_outcome o;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argcheck(L, take_strings(L, &c.argv), 1, "expected an array of strings");
    lua_getfield(L, 1, "cwd");
    c.cwd = lua_tostring(L, -1);
    lua_getfield(L, 1, "timeout");
    c.seconds = luaL_optnumber(L, -1, 600);
    if (lua_getfield(L, 1, "env") == LUA_TTABLE) c.environment = changed_environment(L);
    int failed = ga_command_run(&c, &o);
    if (failed) return luaL_error(L, "%s: %s", c.argv[0], strerror(failed));
    lua_createtable(L, 0, 5);
    lua_pushinteger(L, o.status);
    lua_setfield(L, -2, "status");
    lua_pushlstring(L, o.out ? o.out : "", o.out_size);
    lua_setfield(L, -2, "out");
    lua_pushlstring(L, o.err ? o.err : "", o.err_size);
    lua_setfield(L, -2, "err");
    lua_pushnumber(L, o.cpu_seconds);
    lua_setfield(L, -2, "cpu_seconds");
    lua_pushboolean(L, o.timed_out);
    lua_setfield(L, -2, "timed_out");
    ga_outcome_free(&o);
    return 1;
}

/* Processes that the test has started and that run beside it. */
enum { MOST_BESIDE = 16 };
static struct {
    pid_t ids[MOST_BESIDE];
    int count;
} beside;

/* In the child of native_start: becomes the command, with both outputs in the file. */
static void become(char **argv, char **environment, const char *path, pid_t test) {
    const int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
    if (environment) environ = environment;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == test && fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 2) == 2) execvp(argv[0], argv);
    _exit(127);
}

/* start { argv..., out =, env = } -> the number of the process. It ends with the test, at the latest. */
static int native_start(lua_State *L) {
    const pid_t test = getpid();
    char **argv, **environment = NULL;
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argcheck(L, take_strings(L, &argv), 1, "expected an array of strings");
    luaL_argcheck(L, lua_getfield(L, 1, "out") == LUA_TSTRING, 1, "expected out, the file of its outputs");
    const char *out = lua_tostring(L, -1);
    if (lua_getfield(L, 1, "env") == LUA_TTABLE) environment = changed_environment(L);
    if (beside.count == MOST_BESIDE) return luaL_error(L, "more than %d processes beside the test", MOST_BESIDE);
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) return luaL_error(L, "fork: %s", strerror(errno));
    if (child == 0) become(argv, environment, out, test);
    beside.ids[beside.count++] = child;
    lua_pushinteger(L, child);
    return 1;
}

/* Ends what runs beside the test that is over. */
static void end_beside(void) {
    for (int status; beside.count > 0;) {
        const pid_t child = beside.ids[--beside.count];
        kill(child, SIGKILL);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    }
}

/* In the child of native_isolated: runs the function at index 1 as gagen's main is run. */
static void run_isolated(lua_State *L, int err, double seconds, double bytes) {
    const struct rlimit cpu = { (rlim_t)seconds + 1, (rlim_t)seconds + 2 };
    const struct rlimit memory = { (rlim_t)bytes, (rlim_t)bytes };
    const struct rlimit core = { 0, 0 };
    dup2(err, 2);
    setrlimit(RLIMIT_CPU, &cpu);
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CORE, &core);
    alarm((unsigned)(10 * seconds) + 1);
    lua_pushcfunction(L, ga_host_handler);
    lua_pushvalue(L, 1);
    int code = lua_pcall(L, 0, 1, -2) == LUA_OK ? (int)lua_tointeger(L, -1) : ga_host_report(L, stderr);
    fflush(stderr);
    _exit(code);
}

/* isolated(f, seconds, bytes) -> the exit code of f() in a copy of this process with these limits of CPU
 * time and address space, 128 + n after signal n; and what it wrote to standard error. An error in f is
 * the exit code that gagen would give it. */
static int native_isolated(lua_State *L) {
    int ends[2], status = 0;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    double seconds = luaL_checknumber(L, 2), bytes = luaL_checknumber(L, 3);
    if (pipe(ends) != 0) return luaL_error(L, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) run_isolated(L, ends[1], seconds, bytes);
    close(ends[1]);
    if (child < 0) return luaL_error(L, "fork: %s", strerror(errno));
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (ssize_t n = 1; n != 0;) {
        n = read(ends[0], luaL_prepbuffer(&text), LUAL_BUFFERSIZE);
        if (n > 0) luaL_addsize(&text, (size_t)n);
        if (n < 0 && errno != EINTR) break;
    }
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    luaL_pushresult(&text);
    lua_pushinteger(L, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    lua_insert(L, -2);
    return 2;
}

/* temporary() -> a new folder */
static int native_temporary(lua_State *L) {
    lua_getglobal(L, "host");
    lua_getfield(L, -1, "folder");
    lua_pushliteral(L, GA_TEST_FOLDER);
    lua_call(L, 1, 0);
    char path[] = GA_TEST_FOLDER "/XXXXXX";
    if (!mkdtemp(path)) return luaL_error(L, "%s: %s", path, strerror(errno));
    lua_pushstring(L, path);
    return 1;
}

/* locked(path, f) -> true, or false and the error of f(), called while no other process holds the lock of this file. */
static int native_locked(lua_State *L) {
    const char *path = luaL_checkstring(L, 1);
    const int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return luaL_error(L, "%s: %s", path, strerror(errno));
    while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        close(fd);
        return luaL_error(L, "%s: %s", path, strerror(errno));
    }
    lua_pushvalue(L, 2);
    const int status = lua_pcall(L, 0, 0, 0);
    close(fd);
    lua_pushboolean(L, status == LUA_OK);
    lua_insert(L, status == LUA_OK ? -1 : -2);
    return status == LUA_OK ? 1 : 2;
}

/* Answers that outlive a test, for all tests of this process. */
static struct {
    char *key, *value;
} *kept;
static size_t kept_count;

static int native_kept(lua_State *L) {
    const char *key = luaL_checkstring(L, 1);
    for (size_t i = 0; i < kept_count; i++) {
        if (strcmp(kept[i].key, key) == 0) return lua_pushstring(L, kept[i].value), 1;
    }
    return 0;
}

/* keep(key, value): texts; a key is kept once. */
static int native_keep(lua_State *L) {
    const char *key = luaL_checkstring(L, 1), *value = luaL_checkstring(L, 2);
    kept = realloc(kept, (kept_count + 1) * sizeof *kept);
    if (!kept || !(kept[kept_count].key = strdup(key)) || !(kept[kept_count].value = strdup(value))) abort();
    kept_count++;
    return 0;
}

static int native_clock(lua_State *L) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    return 1;
}

/* Leaves the array of tests of the file on the stack, or an error and returns 0. */
static int load_file(lua_State *L, const char *file) {
    lua_pushcfunction(L, ga_host_handler);
    int handler = lua_gettop(L);
    int status = luaL_loadfilex(L, file, "t");
    if (status == LUA_OK) status = lua_pcall(L, 0, 1, handler);
    lua_remove(L, handler);
    if (status == LUA_OK && !lua_istable(L, -1)) {
        lua_pushfstring(L, "%s: returns no array of tests", file);
        return 0;
    }
    return status == LUA_OK;
}

/* Leaves the table `t` on the stack, or an error and returns 0. */
static int push_helpers(lua_State *L) {
    static const luaL_Reg native[] = { { "run", native_run },
                                       { "start", native_start },
                                       { "temporary", native_temporary },
                                       { "clock", native_clock },
                                       { "isolated", native_isolated },
                                       { "locked", native_locked },
                                       { "kept", native_kept },
                                       { "keep", native_keep },
                                       { NULL, NULL } };
    char *root = getcwd(NULL, 0);
    int status = luaL_loadfilex(L, "tests/lua/t.lua", "t");
    if (status == LUA_OK) status = lua_pcall(L, 0, 1, 0);
    if (status == LUA_OK) {
        luaL_newlib(L, native);
        lua_pushstring(L, root);
        lua_setfield(L, -2, "root");
        lua_pushliteral(L, GA_TEST_GAGEN);
        lua_setfield(L, -2, "gagen");
        lua_pushliteral(L, GA_TEST_BUILD);
        lua_setfield(L, -2, "build");
        lua_pushinteger(L, ga_workers_number());
        lua_setfield(L, -2, "worker");
        status = lua_pcall(L, 1, 1, 0);
    }
    free(root);
    return status == LUA_OK;
}

/* A traceback for plain errors; diagnostics and t.not_run stay what they are. */
static int test_handler(lua_State *L) {
    return lua_istable(L, 1) ? 1 : ga_host_handler(L);
}

/* Runs one test; its error is left on the stack. */
static int run_entry(lua_State *L, const lua_test *test) {
    if (!load_file(L, test->file)) return 0;
    lua_pushcfunction(L, test_handler);
    lua_rawgeti(L, -2, test->entry);
    lua_rawgeti(L, -1, 2);
    lua_remove(L, -2);
    return push_helpers(L) && lua_pcall(L, 1, 0, -3) == LUA_OK;
}

/* Text of an error value, to be freed; *skipped: it is t.not_run's. */
static char *error_text(lua_State *L, int *skipped) {
    if (lua_istable(L, -1) && lua_getfield(L, -1, "not_run") == LUA_TSTRING) {
        *skipped = 1;
        return strdup(lua_tostring(L, -1));
    }
    return strdup(luaL_tolstring(L, -1, NULL));
}

static void run_lua_test(void **state) {
    const lua_test *test = *state;
    const ga_time begin = ga_workers_now();
    ga_host host = { 0 };
    int skipped = 0;
    char *text = NULL;
    lua_State *L = ga_host_open(&host);
    assert_non_null(L);
    if (!run_entry(L, test)) text = error_text(L, &skipped);
    end_beside();
    lua_close(L);
    ga_workers_took(test->name, begin);
    if (!text) return;
    if (skipped) printf("NOT RUN: %s: %s\n", test->name, text);
    else print_error("%s\n", text);
    free(text); /* before cmocka jumps out of here */
    if (skipped) skip();
    fail();
}

/* Runs a piece as a group of cmocka. */
static int run_piece(const void *what) {
    const lua_piece *piece = what;
    struct CMUnitTest *units = calloc(piece->count, sizeof *units);
    if (!units) abort();
    for (size_t i = 0; i < piece->count; i++) {
        units[i] = (struct CMUnitTest){ .name = piece->tests[i].name,
                                        .test_func = run_lua_test,
                                        .initial_state = &piece->tests[i] };
    }
    int failures = _cmocka_run_group_tests("lua", units, piece->count, NULL, NULL);
    free(units);
    return failures;
}

/* A new piece at the end of the list, for tests of another file or of a piece that is full. */
static lua_piece *new_piece(ga_tasks *list) {
    lua_piece *piece = calloc(1, sizeof *piece);
    list->tasks = realloc(list->tasks, (list->count + 1) * sizeof *list->tasks);
    if (!piece || !list->tasks) abort();
    list->tasks[list->count++] = (ga_task){ .run = run_piece, .what = piece };
    return piece;
}

/* Adds the test to the piece, or to a new one where it is NULL or full; returns that. */
static lua_piece *add(ga_tasks *list, lua_piece *piece, lua_test test) {
    if (!piece || piece->seconds >= PIECE_SECONDS) piece = new_piece(list);
    piece->tests = realloc(piece->tests, (piece->count + 1) * sizeof *piece->tests);
    if (!piece->tests) abort();
    piece->tests[piece->count++] = test;
    piece->seconds += ga_workers_expected(test.name, GUESSED_SECONDS);
    list->tasks[list->count - 1].seconds = piece->seconds;
    return piece;
}

static char *full_name(const char *file, const char *name) {
    const char *base = strrchr(file, '/') + 1;
    char *full;
    if (asprintf(&full, "%.*s: %s", (int)strcspn(base, "."), base, name) < 0) abort();
    return full;
}

static void add_file(ga_tasks *list, const char *file, bool (*wanted)(const char *name)) {
    ga_host host = { 0 };
    lua_piece *piece = NULL;
    lua_State *L = ga_host_open(&host);
    if (!L) abort();
    if (!load_file(L, file)) {
        fprintf(stderr, "%s\n", luaL_tolstring(L, -1, NULL));
        add(list, NULL, (lua_test){ .file = strdup(file), .name = full_name(file, "the file") });
    } else {
        for (lua_Integer i = 1; lua_rawgeti(L, -1, i) == LUA_TTABLE; i++, lua_pop(L, 2)) {
            char *name = full_name(file, lua_rawgeti(L, -1, 1) == LUA_TSTRING ? lua_tostring(L, -1) : "without a name");
            if (wanted(name)) piece = add(list, piece, (lua_test){ .file = strdup(file), .name = name, .entry = i });
            else free(name);
        }
    }
    lua_close(L);
}

void ga_lua_tasks(ga_tasks *list, bool (*wanted)(const char *name)) {
    glob_t files;
    if (glob("tests/lua/test_*.lua", 0, NULL, &files) != 0) return;
    for (size_t i = 0; i < files.gl_pathc; i++) add_file(list, files.gl_pathv[i], wanted);
    globfree(&files);
}
