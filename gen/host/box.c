/* box.c: host.evaluate: reads a spec, runs it in a child process (box_child.c) and returns its
 * events, or a diagnostic for everything that can go wrong on the way. */
#define _GNU_SOURCE
#include "box.h"
#include "box_wire.h"
#include "host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    lua_State *L;
    const char *path;
    int words; /* index of the table */
    int lines; /* of the text */
    ga_box_source source;
} evaluation;

/* Pushes nil and a diagnostic for line `line` (0: the whole file); its message is on top of the
 * stack. */
static int refuse(evaluation *v, lua_Integer line, const char *kind, int signal) {
    lua_State *L = v->L;
    lua_createtable(L, 0, 6);
    lua_insert(L, -2);
    lua_setfield(L, -2, "message");
    if (line > 0) lua_pushfstring(L, "%s:%I", v->path, (LUAI_UACINT)line);
    else lua_pushstring(L, v->path);
    lua_setfield(L, -2, "at");
    if (kind) {
        lua_pushstring(L, kind);
        lua_setfield(L, -2, "kind");
    }
    if (signal) {
        lua_pushinteger(L, signal);
        lua_setfield(L, -2, "signal");
    }
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

static int refuse_text(evaluation *v, lua_Integer line, const char *kind, const char *message) {
    lua_pushstring(v->L, message);
    return refuse(v, line, kind, 0);
}

/* Sets v->source.text from args.text or the file; 0, or the number of results of a refusal. */
static int read_source(evaluation *v) {
    lua_State *L = v->L;
    if (lua_getfield(L, 1, "text") != LUA_TSTRING) {
        lua_pushcfunction(L, ga_files_read);
        lua_pushstring(L, v->path);
        lua_pushinteger(L, GA_BOX_TEXT);
        lua_call(L, 2, 2);
        if (lua_isnil(L, -2)) {
            /* ga_files_read says "path: what": the path is already the place of the diagnostic */
            const char *message = lua_tostring(L, -1);
            size_t n = strlen(v->path);
            bool named = strncmp(message, v->path, n) == 0 && message[n] == ':';
            return refuse_text(v, 0, NULL, named ? message + n + 2 : message);
        }
        lua_pop(L, 1);
    }
    ga_box_source *s = &v->source;
    s->text = lua_tolstring(L, -1, &s->size);
    if (s->size > GA_BOX_TEXT) return refuse_text(v, 0, NULL, "the spec is larger than 256 KB");
    if (s->size >= 3 && memcmp(s->text, "\xef\xbb\xbf", 3) == 0) {
        s->text += 3;
        s->size -= 3;
    }
    if (s->size > 0 && s->text[0] == LUA_SIGNATURE[0]) {
        return refuse_text(v, 0, NULL, "a binary chunk, expected the text of a spec");
    }
    v->lines = 1;
    for (size_t i = 0; i < s->size; i++) { /* as Lua counts them: \n, \r or both end a line */
        const char c = s->text[i], next = i + 1 < s->size ? s->text[i + 1] : 0;
        const bool ends = c == '\n' || c == '\r';
        v->lines += ends;
        if (ends && next != c && (next == '\n' || next == '\r')) i++;
    }
    int line = ga_bits_line(s->text, s->size);
    if (line > 0 && !ga_bits_sound()) {
        return refuse_text(v, line, NULL,
                           "bitwise operators are refused because this Lua (" LUA_RELEASE
                           ") computes some of them wrongly: use arithmetic");
    }
    return 0;
}

static long long milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Reads the pipe to its end into a string on the stack. false: too much, too late, or a failed read.
 */
static bool read_report(lua_State *L, int fd, const char **why) {
    long long deadline = milliseconds() + GA_BOX_WAIT_MS;
    size_t total = 0;
    luaL_Buffer report;
    luaL_buffinit(L, &report);
    for (*why = NULL;;) {
        long long left = deadline - milliseconds();
        struct pollfd one = { .fd = fd, .events = POLLIN };
        int ready = left > 0 ? poll(&one, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) {
            *why = "the spec did not end within 20 s";
            break;
        }
        ssize_t n = read(fd, luaL_prepbuffsize(&report, 65536), 65536);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        luaL_addsize(&report, (size_t)n);
        total += (size_t)n;
        if (total > GA_BOX_REPORT) {
            *why = "the spec records more than 32 MB";
            break;
        }
    }
    luaL_pushresult(&report);
    return *why == NULL;
}

static int refuse_signal(evaluation *v, int number) {
    const char *kind = NULL;
    if (number == SIGXCPU) {
        lua_pushfstring(v->L, "the spec used more than %d s of CPU time", (int)GA_BOX_CPU_HARD);
    } else if (number == SIGKILL) {
        lua_pushstring(v->L, "the spec was killed: it needs too much memory or time");
    } else if (number == SIGSYS) {
        kind = "bug";
        lua_pushstring(v->L, "the process of the spec made a system call it may not make");
    } else {
        kind = "bug";
        lua_pushfstring(
            v->L,
            "the process of the spec ended by signal %d (%s): a defect of Lua (" LUA_RELEASE
            ") or of gagen, met by this text",
            number, strsignal(number));
    }
    return refuse(v, 0, kind, number);
}

/* -- the report -- */

typedef struct {
    const char *at, *end;
} cursor;

static bool take_number(cursor *c, long *value) {
    char *last;
    if (c->at >= c->end || *c->at < '0' || *c->at > '9') return false;
    *value = strtol(c->at, &last, 10); /* the report is a Lua string: it ends in a zero byte */
    if (last >= c->end || *last != ';') return false;
    c->at = last + 1;
    return true;
}

static bool take_text(cursor *c, const char **text, size_t *size) {
    char *last;
    if (c->at >= c->end || *c->at < '0' || *c->at > '9') return false;
    unsigned long n = strtoul(c->at, &last, 10);
    if (last >= c->end || *last != ':' || n > (size_t)(c->end - last - 1)) return false;
    *text = last + 1;
    *size = n;
    c->at = last + 1 + n;
    return true;
}

/* Pushes the array of all words, from which hints are chosen. */
static void push_vocabulary(evaluation *v) {
    lua_State *L = v->L;
    const char *lists[] = { "config", "layers", "pointwise" };
    lua_Integer n = 0;
    lua_newtable(L);
    for (int i = 0; i < 3; i++) {
        lua_getfield(L, v->words, lists[i]);
        for (lua_Integer k = 1; lua_rawgeti(L, -1, k) != LUA_TNIL; k++) {
            if (lua_istable(L, -1)) {
                lua_getfield(L, -1, "name");
                lua_remove(L, -2);
            }
            lua_rawseti(L, -3, ++n);
        }
        lua_pop(L, 2);
    }
    lua_pushstring(L, "math");
    lua_rawseti(L, -2, ++n);
}

static int report_refusal(evaluation *v, cursor c) {
    const char *message, *found;
    size_t message_size, found_size;
    long line, bug, among;
    if (!take_number(&c, &line) || !take_text(&c, &message, &message_size)
        || !take_text(&c, &found, &found_size) || !take_number(&c, &bug) || !take_number(&c, &among)
        || c.at != c.end || line > v->lines) {
        return refuse_text(v, 0, "bug",
                           "the process of the spec wrote a refusal that cannot be read");
    }
    lua_State *L = v->L;
    lua_pushlstring(L, message, message_size);
    refuse(v, line, bug ? "bug" : NULL, 0);
    if (found_size > 0) {
        lua_pushlstring(L, found, found_size);
        lua_setfield(L, -2, "found");
    }
    if (among) {
        push_vocabulary(v);
        lua_setfield(L, -2, "among");
    }
    return 2;
}

static void add_names(evaluation *v, int set, const char *list, int bit) {
    lua_State *L = v->L;
    lua_getfield(L, v->words, list);
    for (lua_Integer k = 1; lua_rawgeti(L, -1, k) != LUA_TNIL; k++) {
        if (lua_istable(L, -1)) {
            lua_getfield(L, -1, "name");
            lua_remove(L, -2);
        }
        lua_pushvalue(L, -1);
        lua_rawget(L, set);
        lua_Integer bits = lua_tointeger(L, -1) | bit;
        lua_pop(L, 1);
        lua_pushinteger(L, bits);
        lua_rawset(L, set);
    }
    lua_pop(L, 2);
}

/* Pushes the table from each word to its set of GA_NAME bits. */
static void push_names(evaluation *v) {
    lua_State *L = v->L;
    const char *operators[] = { "add", "sub", "mul", "div", "pow", "neg" };
    lua_newtable(L);
    int set = lua_gettop(L);
    add_names(v, set, "config", GA_NAME_CONFIG);
    add_names(v, set, "layers", GA_NAME_LAYER);
    add_names(v, set, "pointwise", GA_NAME_POINTWISE);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        lua_pushinteger(L, GA_NAME_POINTWISE);
        lua_setfield(L, set, operators[i]);
    }
}

/* Warns once per Lua state that the system refuses the filter. */
static void note_filter(lua_State *L, const char *path, bool filtered) {
    const char *key = "gagen.filter_noted";
    if (filtered) return;
    if (lua_getfield(L, LUA_REGISTRYINDEX, key) == LUA_TNIL) {
        fprintf(
            stderr,
            "gagen: this system refuses system-call filters: %s is held by resource limits only\n",
            path);
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, key);
    }
    lua_pop(L, 1);
}

/* The report is on top of the stack. */
static int take_report(evaluation *v, int status) {
    lua_State *L = v->L;
    size_t size;
    const char *report = lua_tolstring(L, -1, &size);
    const char *head = "gagen-spec 1;";
    size_t n = strlen(head);
    cursor c = { report + n, report + size };
    long filtered;
    if (WIFSIGNALED(status)) return refuse_signal(v, WTERMSIG(status));
    if (size == 0)
        return refuse_text(v, 0, "environment", "the process of the spec could not be limited");
    if (size < n || memcmp(report, head, n) != 0 || !take_number(&c, &filtered) || c.at == c.end) {
        return refuse_text(v, 0, "bug",
                           "the process of the spec wrote a report that cannot be read");
    }
    note_filter(L, v->path, filtered != 0);
    char outcome = *c.at++;
    if (outcome == '-') return report_refusal(v, c);
    push_names(v);
    const char *wrong = "neither events nor a refusal";
    if (outcome == '+') wrong = ga_wire_read(L, c.at, (size_t)(c.end - c.at), -1, v->lines);
    if (!wrong) return 1;
    lua_pushfstring(L, "the process of the spec wrote %s", wrong);
    return refuse(v, 0, "bug", 0);
}

/* Pushes the text of a prelude, which stays on the stack while the child is forked. */
static const char *push_prelude(lua_State *L, const char *name, size_t *size) {
    if (!ga_embedded_push(L, name)) luaL_error(L, "%s is missing", name);
    return lua_tolstring(L, -1, size);
}

int ga_box_evaluate(lua_State *L) {
    evaluation v = { .L = L };
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_getfield(L, 1, "path");
    v.path = luaL_checkstring(L, -1);
    lua_getfield(L, 1, "words");
    luaL_checktype(L, -1, LUA_TTABLE);
    v.words = lua_gettop(L);
    int refused = read_source(&v);
    if (refused) return refused;
    v.source.record = push_prelude(L, "gen/spec/record.lua", &v.source.record_size);
    v.source.nodes = push_prelude(L, "gen/spec/record_nodes.lua", &v.source.nodes_size);
    ga_box_arguments arguments = { L, v.words, &v.source };
    int ends[2], status = 0;
    if (pipe(ends) != 0) return refuse_text(&v, 0, "environment", strerror(errno));
    pid_t child = fork();
    if (child == 0) ga_box_child(&arguments, ends[1]);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return refuse_text(&v, 0, "environment", strerror(errno));
    }
    const char *why;
    bool whole = read_report(L, ends[0], &why);
    close(ends[0]);
    if (!whole) kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    return whole ? take_report(&v, status) : refuse_text(&v, 0, NULL, why);
}
