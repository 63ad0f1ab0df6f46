/* box_wire.h: events as text in the pipe from the process of a spec to its parent. */
#ifndef GA_BOX_WIRE_H
#define GA_BOX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <lua.h>

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

/* Writes the array of events at `index`; false: an event does not have the fields of its kind,
 * which is a defect of gagen. */
bool ga_wire_events(ga_wire *w, lua_State *L, int index);

enum { GA_NAME_CONFIG = 1, GA_NAME_LAYER = 2, GA_NAME_POINTWISE = 4 };

/* Pushes the array of events read from [data, data + size), or returns a complaint. `names`:
 * index of a table from each known word to a set of GA_NAME bits; lines: lines of the spec. */
const char *ga_wire_read(lua_State *L, const char *data, size_t size, int names, int lines);

/* One event kind: its fields in the order of the pipe. */
typedef enum {
    GA_FIELD_END,
    GA_FIELD_NAME,
    GA_FIELD_WORD,
    GA_FIELD_KIND,
    GA_FIELD_OP,
    GA_FIELD_LIST,
    GA_FIELD_LINE,
    GA_FIELD_COUNT,
    GA_FIELD_TRUE,
    GA_FIELD_NEW_LAYER,
    GA_FIELD_LAYER,
    GA_FIELD_NEW_TENSOR,
    GA_FIELD_TENSOR,
    GA_FIELD_TENSORS,
    GA_FIELD_ARGUMENTS,
    GA_FIELD_OPERANDS,
    GA_FIELD_TABLE,
    GA_FIELD_VALUE
} ga_field_type;

typedef struct {
    const char *name;
    struct {
        const char *name;
        ga_field_type type;
        bool optional;
    } field[8];
    char opens, closes; /* the body that begins or ends: 'f' of a layer, others of a word */
} ga_event_kind;

extern const ga_event_kind ga_event_kinds[]; /* ends with name NULL */

#endif
