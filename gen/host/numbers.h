/* numbers.h: functions of `host` for the elements of tensors, which lie in texts.
 *   distance               as host.h says
 *   floats(text, at, count, from, to)   `count` elements, F32 or F64, from byte `at` on (from 1), as bytes of F16 or
 *                          F32, rounded to the nearest; nothing if one is finite and too large for F16
 *   transposed(text, rows, columns)   a matrix of F32 with its axes exchanged
 *   checksums(path, most)  of a file, the crc32 of each 4 MiB (GA_BLOCK) as eight hexadecimal digits; nil, message: it
 *                          has more than `most` such blocks, or cannot be read
 */
#ifndef GA_NUMBERS_H
#define GA_NUMBERS_H

#include "host.h"

int ga_distance(lua_State *L);
int ga_floats(lua_State *L);
int ga_transposed(lua_State *L);
int ga_checksums(lua_State *L);

#endif
