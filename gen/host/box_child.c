/* box_child.c: the process of a spec, from the fork to its exit. The report it writes is
 *   gagen-spec 1; FILTER;    FILTER: 1 where the system-call filter holds, else 0
 *   + events .               (box_write.c)
 *   - LINE; MESSAGE FOUND BUG; AMONG;    a refusal; LINE 0: the place is not known; texts as
 * SIZE:BYTES Invariant: the user's text is first looked at after the limits and the filter are in
 * force. */
#define _GNU_SOURCE
#include "box.h"
#include "box_wire.h"

#include <lauxlib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    size_t used;  /* bytes of Lua values */
    int ticks;    /* of the instruction hook */
    size_t lines; /* handed to the parser */
    const char *at, *end;
} box;

enum { TICK = 10000 }; /* instructions */

static void *allocate(void *context, void *block, size_t old, size_t size) {
    box *b = context;
    if (!block) old = 0;
    if (size == 0) {
        free(block);
        b->used -= old;
        return NULL;
    }
    if (size > GA_BOX_BLOCK || (size > old && b->used - old + size > GA_BOX_MEMORY)) return NULL;
    void *moved = realloc(block, size);
    if (moved) b->used += size - old;
    return moved;
}

static box *box_of(lua_State *L) { return *(box **)lua_getextraspace(L); }

static void count_instructions(lua_State *L, lua_Debug *frame) {
    (void)frame;
    if (++box_of(L)->ticks < GA_BOX_INSTRUCTIONS / TICK) return;
    lua_sethook(L, NULL, 0, 0);
    ga_box_fail(L, ga_box_any_line(L), "the spec ran for more than 20M instructions");
}

static void end_by_time(lua_State *L, lua_Debug *frame) {
    (void)frame;
    lua_sethook(L, NULL, 0, 0);
    ga_box_fail(L, ga_box_any_line(L), "the spec used more than 1 s of CPU time");
}

static void on_timer(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    int every = LUA_MASKCOUNT | LUA_MASKCALL | LUA_MASKRET | LUA_MASKLINE;
    lua_sethook(info->si_value.sival_ptr, end_by_time, every, 1);
}

static bool start_timer(lua_State *L) {
    struct sigaction action = { .sa_sigaction = on_timer, .sa_flags = SA_SIGINFO };
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF };
    struct itimerspec limit = { .it_value = { GA_BOX_CPU_MS / 1000,
                                              GA_BOX_CPU_MS % 1000 * 1000000 } };
    sigset_t none;
    timer_t timer;
    event.sigev_value.sival_ptr = L;
    sigemptyset(&none);
    sigemptyset(&action.sa_mask);
    return sigaction(SIGPROF, &action, NULL) == 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0
           && timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0
           && timer_settime(timer, 0, &limit, NULL) == 0;
}

/* Hands one line at a time to the parser: an error without a place gets the line read last.
 */
static const char *next_line(lua_State *L, void *context, size_t *size) {
    (void)L;
    box *b = context;
    const char *line = b->at, *stop = memchr(line, '\n', (size_t)(b->end - line));
    *size = (size_t)((stop ? stop + 1 : b->end) - line);
    b->at += *size;
    if (*size) b->lines++;
    return line;
}

/* Gives an error that is a string its place: { line, message } or, for a defect of gagen, { bug }.
 */
static int handle(lua_State *L) {
    if (lua_type(L, 1) != LUA_TSTRING) return 1;
    const char *text = lua_tostring(L, 1), *message = text;
    int line = 0;
    bool ours = strncmp(text, "spec:", 5) != 0;
    if (!ours) {
        line = (int)strtol(text + 5, NULL, 10);
        message = strstr(text, ": ");
        message = message ? message + 2 : text;
    }
    if (strstr(text, "stack overflow")) {
        ours = false;
        line = ga_box_any_line(L);
        message = "stack overflow: functions call each other without end";
    }
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, line);
    lua_setfield(L, -2, "line");
    lua_pushstring(L, message);
    lua_setfield(L, -2, "message");
    lua_pushboolean(L, ours);
    lua_setfield(L, -2, "bug");
    return 1;
}

static const char *text_field(lua_State *L, const char *name, size_t *size) {
    lua_getfield(L, -1, name);
    const char *text = lua_tolstring(L, -1, size);
    if (!text) *size = 0;
    lua_pop(L, 1); /* the table keeps it */
    return text ? text : "";
}

static void write_refusal(ga_wire *w, lua_State *L) {
    size_t size;
    lua_getfield(L, -1, "line");
    ga_wire_put(w, "-", 1);
    ga_wire_number(w, lua_tointeger(L, -1));
    lua_pop(L, 1);
    const char *text = text_field(L, "message", &size);
    ga_wire_text(w, text, size);
    text = text_field(L, "found", &size);
    ga_wire_text(w, text, size);
    lua_getfield(L, -1, "bug");
    lua_getfield(L, -2, "among");
    ga_wire_number(w, lua_toboolean(L, -2));
    ga_wire_number(w, lua_toboolean(L, -1));
    lua_pop(L, 2);
}

static void write_failure(ga_wire *w, int line, const char *message) {
    ga_wire_put(w, "-", 1);
    ga_wire_number(w, line);
    ga_wire_text(w, message, strlen(message));
    ga_wire_text(w, "", 0);
    ga_wire_number(w, 0);
    ga_wire_number(w, 0);
}

static void write_error(ga_wire *w, lua_State *L, int status, int line) {
    if (status == LUA_ERRMEM) {
        write_failure(w, 0, "the spec needs too much memory (more than 64 MB)");
    } else if (lua_istable(L, -1)) {
        write_refusal(w, L);
    } else {
        write_failure(w, line, "stack overflow: functions call each other without end");
    }
}

/* Pushes a message of the parser with its '<\27>' written as '\x1b'. */
static void push_readable(lua_State *L, const char *text) {
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    while (*text) {
        char *end = NULL;
        long byte = strncmp(text, "'<\\", 3) == 0 ? strtol(text + 3, &end, 10) : 0;
        if (end && strncmp(end, ">'", 2) == 0) {
            char hex[16];
            luaL_addlstring(&out, hex, (size_t)snprintf(hex, sizeof hex, "'\\x%02lx'", byte & 255));
            text = end + 2;
        } else {
            luaL_addchar(&out, *text++);
        }
    }
    luaL_pushresult(&out);
}

/* Loads the chunk, or leaves { line, message } of the parser's error. */
static int load_chunk(lua_State *L, box *b) {
    int status = lua_load(L, next_line, b, "=spec", "t");
    if (status != LUA_ERRSYNTAX && status != LUA_ERRRUN) return status;
    const char *text = lua_tostring(L, -1);
    bool deep = strstr(text, "C stack overflow") || strstr(text, "too many C levels");
    if (deep) lua_pushfstring(L, "spec:%d: nested too deep", (int)b->lines);
    else push_readable(L, text);
    if (strncmp(lua_tostring(L, -1), "spec:", 5) != 0) {
        lua_pushfstring(L, "spec:%d: %s", (int)b->lines, lua_tostring(L, -1));
    }
    lua_pushcfunction(L, handle);
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    return status;
}

/* Runs the chunk in the environment at index 1; on success the events stay at index 2. */
static int run_chunk(lua_State *L, box *b) {
    int status = load_chunk(L, b);
    if (status != LUA_OK) return status;
    lua_pushvalue(L, 1);
    if (!lua_setupvalue(L, -2, 1))
        lua_pop(L, 1); /* a chunk that names no word has no environment */
    lua_pushcfunction(L, handle);
    lua_insert(L, -2);
    lua_sethook(L, count_instructions, LUA_MASKCOUNT, TICK);
    status = lua_pcall(L, 0, 0, -2);
    lua_sethook(L, NULL, 0, 0);
    return status;
}

void ga_box_child(const ga_box_arguments *a, int fd) {
    box b = { .at = a->source->text, .end = a->source->text + a->source->size };
    ga_wire w = { .fd = 0 };
    if (!ga_box_limit(fd)) _exit(9);
    lua_State *L = lua_newstate(allocate, &b);
    if (!L) _exit(9);
    *(box **)lua_getextraspace(L) = &b;
    lua_pushcfunction(L, ga_box_prelude);
    lua_pushlightuserdata(L, (void *)a);
    int status = lua_pcall(L, 1, 2, 0);
    bool timed = start_timer(L), filtered = ga_box_filter();
    ga_wire_put(&w, "gagen-spec 1;", 13);
    ga_wire_number(&w, filtered);
    if (status != LUA_OK || !timed) {
        const char *text = lua_tostring(L, -1);
        write_failure(&w, 0, text ? text : "the sandbox did not start");
    } else if ((status = run_chunk(L, &b)) != LUA_OK) {
        write_error(&w, L, status, 0);
    } else {
        ga_wire_put(&w, "+", 1);
        if (!ga_wire_events(&w, L, 2)) ga_wire_put(&w, "!", 1);
    }
    ga_wire_flush(&w);
    _exit(w.failed ? 9 : 0);
}
