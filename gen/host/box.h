/* box.h: the sandbox of a spec: a child process that runs the user's chunk under limits and a system-call
 * filter, records what its words were given (gen/spec/record.lua) and writes that as text into one pipe.
 * The parent trusts nothing it reads there. */
#ifndef GA_BOX_H
#define GA_BOX_H

#include <stdbool.h>
#include <stddef.h>
#include <lua.h>

/* limits of a spec, in bytes unless said otherwise */
enum {
    GA_BOX_TEXT = 256 << 10,         /* source text */
    GA_BOX_MEMORY = 64 << 20,        /* all Lua values */
    GA_BOX_BLOCK = 16 << 20,         /* one block of memory */
    GA_BOX_REPORT = 32 << 20,        /* what the child may write */
    GA_BOX_STRING = 4096,            /* one string given to a word */
    GA_BOX_DEPTH = 32,               /* tables in tables */
    GA_BOX_ENTRIES = 100000,         /* values given to one word */
    GA_BOX_VALUES = 1000000,         /* values given to all words */
    GA_BOX_INSTRUCTIONS = 20000000,  /* of the Lua machine */
    GA_BOX_CPU_MS = 1000,            /* CPU time of the chunk, then a hook ends it */
    GA_BOX_CPU_HARD = 2,             /* seconds of CPU time of the process, then the kernel does */
    GA_BOX_WAIT_MS = 20000           /* wall-clock time the parent waits */
};

typedef struct {
    const char *text;    /* source, without byte order mark */
    size_t size;
    const char *record;  /* gen/spec/record.lua and gen/spec/record_nodes.lua */
    size_t record_size;
    const char *nodes;
    size_t nodes_size;
} ga_box_source;

/* -- child: box_limit.c, box_child.c ------------------------------------------------------------------- */

/* Moves descriptor fd to 0, closes every other one and sets the resource limits. */
bool ga_box_limit(int fd);

/* From here on only memory, time, write and exit: anything else kills the process with SIGSYS.
 * false: this system refuses filters; the limits alone hold. */
bool ga_box_filter(void);

/* Runs the spec and writes the report into fd; `words` is the index of their table in the parent's state. */
void ga_box_child(lua_State *parent, int words, const ga_box_source *source, int fd)
    __attribute__((noreturn));

/* Line of the innermost running function of the spec; 0: a tail call has lost it, or there is none. */
int ga_box_line(lua_State *L, int level);

/* Raises { line =, message = } with a message made as by lua_pushfstring. */
int ga_box_fail(lua_State *L, int line, const char *format, ...);

/* -- values: box_copy.c -------------------------------------------------------------------------------- */

/* copy(table, word, line [, without_first]): deep copy of what a word was given, or an error that names
 * the field. Upvalue 1: set of the names of fields whose table may have any whole numbers as keys. */
int ga_box_copy(lua_State *L);

typedef struct {
    const char *name; /* NULL: number */
    size_t size;
    lua_Integer number;
} ga_key;

/* Pushes a block with the keys of the table at `index` that are not 1..n: numbers first, then names, in
 * order. *count: how many. Raises no error but for memory; keys of other types are left out. */
const ga_key *ga_box_keys(lua_State *L, int index, lua_Integer n, size_t *count);

/* -- text in the pipe: box_write.c, box_read.c --------------------------------------------------------- */

typedef struct {
    int fd;
    bool failed;
    size_t used;
    char buffer[8192];
} ga_wire;

void ga_wire_put(ga_wire *w, const void *data, size_t size);
void ga_wire_text(ga_wire *w, const char *text, size_t size); /* SIZE:BYTES */
void ga_wire_number(ga_wire *w, lua_Integer value);           /* DIGITS; */
void ga_wire_flush(ga_wire *w);

/* Writes the array of events at `index`; false: an event is not of its kind, which is a defect of gagen. */
bool ga_wire_events(ga_wire *w, lua_State *L, int index);

enum { GA_NAME_CONFIG = 1, GA_NAME_LAYER = 2, GA_NAME_POINTWISE = 4 };

/* Pushes the array of events read from [data, data + size), or returns what is wrong. `names`: index of a
 * table from each known word to a set of GA_NAME bits; lines: lines of the spec. */
const char *ga_wire_read(lua_State *L, const char *data, size_t size, int names, int lines);

/* One event kind: its fields in the order of the pipe. */
typedef enum {
    GA_FIELD_END, GA_FIELD_NAME, GA_FIELD_WORD, GA_FIELD_KIND, GA_FIELD_OP, GA_FIELD_LIST,
    GA_FIELD_LINE, GA_FIELD_COUNT, GA_FIELD_TRUE, GA_FIELD_NEW_LAYER, GA_FIELD_LAYER, GA_FIELD_NEW_TENSOR,
    GA_FIELD_TENSOR, GA_FIELD_TENSORS, GA_FIELD_ARGUMENTS, GA_FIELD_OPERANDS, GA_FIELD_TABLE, GA_FIELD_VALUE
} ga_field_type;

typedef struct {
    const char *name;
    struct { const char *name; ga_field_type type; bool optional; } field[8];
    char opens, closes; /* which body begins or ends: 'f' a layer's, 'm' 'l' 's' the three words' */
} ga_event_kind;

extern const ga_event_kind ga_event_kinds[]; /* ends with name NULL */

/* -- bitwise operators: box_bits.c --------------------------------------------------------------------- */

/* First line with a bitwise operator outside of strings and comments, or 0. */
int ga_bits_line(const char *text, size_t size);

/* Whether the linked Lua computes bitwise operators right (5.4.4 does not always). */
bool ga_bits_sound(void);

#endif
