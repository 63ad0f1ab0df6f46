/* box_events.c: the table of the kinds of events (described in gen/spec/record.lua) with their fields
 * in the order of the pipe, for box_write.c and box_read.c. */
#include "box_wire.h"

#define REQUIRED(name, type)                                                                       \
    { name, GA_FIELD_##type, false }
#define OPTIONAL(name, type)                                                                       \
    { name, GA_FIELD_##type, true }

const ga_event_kind ga_event_kinds[] = {
    {
        .name = "word",
        .field = { REQUIRED("name", WORD), REQUIRED("line", LINE), REQUIRED("args", TABLE) },
    },
    {
        .name = "layer",
        .field = { REQUIRED("id", NEW_LAYER), REQUIRED("kind", KIND), OPTIONAL("name", NAME),
                   OPTIONAL("count", COUNT), REQUIRED("line", LINE), REQUIRED("args", TABLE),
                   OPTIONAL("body", TRUE) },
    },
    {
        .name = "enter",
        .opens = 'f',
        .field = { REQUIRED("layer", LAYER), REQUIRED("ins", TENSORS), REQUIRED("arg", ARGUMENTS),
                   REQUIRED("line", LINE) },
    },
    {
        .name = "leave",
        .closes = 'f',
        .field = { REQUIRED("layer", LAYER), REQUIRED("result", TENSOR),
                   REQUIRED("out", NEW_TENSOR) },
    },
    {
        .name = "apply",
        .field = { REQUIRED("layer", LAYER), REQUIRED("ins", TENSORS), REQUIRED("out", NEW_TENSOR),
                   REQUIRED("line", LINE) },
    },
    {
        .name = "op",
        .field = { REQUIRED("op", OP), REQUIRED("ins", OPERANDS), REQUIRED("out", NEW_TENSOR),
                   REQUIRED("line", LINE) },
    },
    {
        .name = "field",
        .field = { REQUIRED("name", NAME), OPTIONAL("of", TENSOR), REQUIRED("out", NEW_TENSOR),
                   REQUIRED("line", LINE) },
    },
    {
        .name = "model",
        .field = { REQUIRED("form", LIST), REQUIRED("args", TABLE), REQUIRED("line", LINE) },
    },
    {
        .name = "model_begin",
        .opens = 'm',
        .field = { REQUIRED("line", LINE), REQUIRED("args", TABLE) },
    },
    {
        .name = "model_end",
        .closes = 'm',
        .field = { REQUIRED("result", VALUE) },
    },
    {
        .name = "loss_begin",
        .opens = 'l',
        .field = { REQUIRED("line", LINE), REQUIRED("out", NEW_TENSOR), REQUIRED("args", TABLE) },
    },
    {
        .name = "loss_end",
        .closes = 'l',
        .field = { REQUIRED("result", VALUE) },
    },
    {
        .name = "metric_begin",
        .opens = 'e',
        .field = { REQUIRED("name", NAME), REQUIRED("line", LINE), REQUIRED("out", NEW_TENSOR) },
    },
    {
        .name = "metric_end",
        .closes = 'e',
        .field = { REQUIRED("result", VALUE) },
    },
    {
        .name = "schedule_begin",
        .opens = 's',
        .field = { REQUIRED("line", LINE), REQUIRED("t", NEW_TENSOR), REQUIRED("base", NEW_TENSOR),
                   REQUIRED("args", TABLE) },
    },
    {
        .name = "gradient_begin",
        .opens = 'g',
        .field = { REQUIRED("line", LINE), REQUIRED("g", NEW_TENSOR), REQUIRED("w", NEW_TENSOR),
                   REQUIRED("args", TABLE) },
    },
    {
        .name = "gradient_end",
        .closes = 'g',
        .field = { REQUIRED("result", VALUE) },
    },
    {
        .name = "handler_begin",
        .opens = 'h',
        .field = { REQUIRED("line", LINE), REQUIRED("g", NEW_TENSOR), REQUIRED("w", NEW_TENSOR) },
    },
    {
        .name = "handler_end",
        .closes = 'h',
        .field = { REQUIRED("result", VALUE) },
    },
    {
        .name = "schedule_end",
        .closes = 's',
        .field = { REQUIRED("result", VALUE) },
    },
    { .name = NULL },
};
