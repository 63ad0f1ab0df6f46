/* box.h: the sandbox of a spec: a child process that runs the user's chunk under limits and a
 * system-call filter, records the arguments of its words (gen/spec/record.lua) and writes them as
 * text into one pipe. The parent checks everything it reads there. */
#ifndef GA_BOX_H
#define GA_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <lua.h>

/* limits of a spec, in bytes unless said otherwise */
enum {
    GA_BOX_TEXT = 256 << 10,        /* source text */
    GA_BOX_MEMORY = 64 << 20,       /* all Lua values */
    GA_BOX_BLOCK = 16 << 20,        /* one block of memory */
    GA_BOX_REPORT = 32 << 20,       /* output of the child */
    GA_BOX_STRING = 4096,           /* one string in the arguments of a word */
    GA_BOX_DEPTH = 32,              /* tables in tables */
    GA_BOX_ENTRIES = 100000,        /* values in the arguments of one word */
    GA_BOX_VALUES = 1000000,        /* values in the arguments of all words */
    GA_BOX_INSTRUCTIONS = 20000000, /* of the Lua machine */
    GA_BOX_CPU_MS = 1000,           /* CPU time of the chunk, enforced by a hook */
    GA_BOX_CPU_HARD = 2,            /* seconds of CPU time of the process, enforced by the kernel */
    GA_BOX_WAIT_MS = 20000          /* wall-clock time the parent waits */
};

typedef struct {
    const char *text; /* source, without byte order mark */
    size_t size;
    const char *record; /* gen/spec/record.lua and gen/spec/record_nodes.lua */
    size_t record_size;
    const char *nodes;
    size_t nodes_size;
} ga_box_source;

typedef struct {
    lua_State *parent; /* its table of words is at index `words` */
    int words;
    const ga_box_source *source;
} ga_box_arguments;

/* -- the child: box_limit.c, box_prelude.c, box_child.c */

/* Moves descriptor fd to 0, closes every other one and sets the resource limits. */
bool ga_box_limit(int fd);

/* Installs the filter: any system call except for memory, time, write and exit kills the process
 * with SIGSYS. false: this system has no filters, only the limits apply. */
bool ga_box_filter(void);

/* Takes a ga_box_arguments; returns the environment of the chunk and the list of events. */
int ga_box_prelude(lua_State *L);

/* Runs the spec, writes the report into fd and ends the process. */
void ga_box_child(const ga_box_arguments *a, int fd) __attribute__((noreturn));

/* Line of the innermost running function of the spec; 0 if a tail call lost it or none runs. */
int ga_box_line(lua_State *L, int level);

/* The same, but past tail calls: the line of a caller. */
int ga_box_any_line(lua_State *L);

/* Raises { line =, message = } with a message made as by lua_pushfstring. */
int ga_box_fail(lua_State *L, int line, const char *format, ...);

/* -- values: box_copy.c */

/* copy(table, word, line [, without_first]): deep copy of the argument of a word, or an error that
 * names the field. Upvalue 1: set of the names of fields whose table may have any whole numbers as
 * keys. */
int ga_box_copy(lua_State *L);

typedef struct {
    const char *name; /* NULL: number */
    size_t size;
    lua_Integer number;
} ga_key;

/* Pushes a block with the keys of the table at `index` that are not 1..n: numbers first, then
 * names, in order. *count: how many. Raises no error but for memory; keys of other types are left
 * out. */
const ga_key *ga_box_keys(lua_State *L, int index, lua_Integer n, size_t *count);

/* -- bitwise operators: box_bits.c */

/* First line with a bitwise operator outside of strings and comments, or 0. */
int ga_bits_line(const char *text, size_t size);

/* Whether the linked Lua computes bitwise operators right (5.4.4 does not always). */
bool ga_bits_sound(void);

#endif
