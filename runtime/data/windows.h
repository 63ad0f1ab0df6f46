/* windows.h: sequences cut into windows: text as bytes, and token files. The files of a dataset form one
 * sequence of n ids. Row i has the fields input, ids [i T, i T + T), and target, ids shifted by one: i32
 * (T), T = context. There are (n - 1) / T rows. */
#ifndef GA_WINDOWS_H
#define GA_WINDOWS_H

#include "base/arena.h"
#include "data/scan.h"

/* The id of a byte is its index in the vocabulary, the sorted set of the bytes that occur. */
typedef struct ga_text_spec {
    const ga_part *part; /* count: bytes */
    int parts;
    int64_t context;
    const unsigned char *vocabulary; /* ascending */
    int vocabulary_size;             /* 1..256 */
} ga_text_spec;

/* Token files: only little-endian u16 tokens, or llm.c's format: 256 i32 {magic, version,
 * tokens, 0...}, then the tokens: u16 for magic 20240520 version 1, u32 for 20240801 version 7. A header of
 * another magic and gzip data are refused. */
typedef struct ga_tokens_spec {
    const ga_part *part; /* count: tokens */
    int parts;
    int64_t context;
    int width;     /* bytes per token: 2 or 4, the same in all files */
    int64_t limit; /* tokens are in [0, limit) */
} ga_tokens_spec;

/* Counts the bytes of all files and finds those that occur: field[0] has ids 0..vocabulary - 1. allowed:
 * 256 flags; a byte without its flag is refused with its offset; NULL: all are allowed. */
int ga_text_scan(const char *const *path, int parts, const bool *allowed, ga_scan *out, ga_err *e);
int ga_text_open(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e);

/* Counts the tokens of all files: field[0] has their range, and bytes per token in `element`. */
int ga_tokens_scan(const char *const *path, int parts, ga_scan *out, ga_err *e);
int ga_tokens_open(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e);

/* The same rows streamed from the files, of any number; paths and spec are copied. */
int ga_text_stream(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e);
int ga_tokens_stream(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e);

/* Windows to predict, of the first file of s->part: its ids in runs of T, without the one behind each; those that fill
 * no window are left out, which is said. Open the arena. */
int ga_text_predicted(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e);
int ga_tokens_predicted(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e);

#endif
