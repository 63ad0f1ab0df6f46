/* windows.h: sequences cut into windows: text as bytes, and token files. The files of a dataset
 * follow each other as one sequence of n ids; row i has the fields input, ids [i T, i T + T), and
 * target, the same shifted by one: i32, T = context each. There are (n - 1) / T rows. */
#ifndef GA_WINDOWS_H
#define GA_WINDOWS_H

#include "base/arena.h"
#include "data/scan.h"

/* Ids are the places of a byte in the vocabulary, the sorted set of the bytes that occur. */
typedef struct ga_text_spec {
    const ga_part *part; /* count: bytes */
    int parts;
    int64_t context;
    const unsigned char *vocabulary; /* rising */
    int vocabulary_size;             /* 1..256 */
} ga_text_spec;

/* Token files: little-endian u16 with nothing else, or llm.c's files: 256 i32 {magic, version,
 * tokens, 0...}, then the tokens: u16 for magic 20240520 version 1, u32 for 20240801 version 7. */
typedef struct ga_tokens_spec {
    const ga_part *part; /* count: tokens */
    int parts;
    int64_t context;
    int width;     /* bytes per token: 2 or 4, the same in all files */
    int64_t limit; /* tokens must be below */
} ga_tokens_spec;

/* Bytes of all files, and which of them occur: field[0] are the ids, 0..vocabulary - 1. allowed:
 * 256 flags, a byte without one is refused with its offset; NULL: all. */
int ga_text_scan(const char *const *path, int parts, const bool *allowed, ga_scan *out, ga_err *e);
int ga_text_open(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e);

/* Tokens of all files: least and largest in field[0], bytes per token in its element. */
int ga_tokens_scan(const char *const *path, int parts, ga_scan *out, ga_err *e);
int ga_tokens_open(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e);

/* The same rows as they pass by, any number of them; paths and spec are copied. */
int ga_text_stream(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e);
int ga_tokens_stream(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e);

#endif
